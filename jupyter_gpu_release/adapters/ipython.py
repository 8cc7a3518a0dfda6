"""IPython: what it shows, the folders of ``%cd``, and what earlier cells have imported from ``__future__``."""

from __future__ import annotations

import sys
from typing import Any

from .adapter import Adapter, LibrarySettings, Values

#: what IPython itself shows, by the object that holds it
_SHOWN = {"ast_node_interactivity": "last_expr", "float_precision": "", "max_seq_length": 1000, "pprint": True}
#: folders of ``%cd``, for ``%cd -`` and ``%dhist``
_VISITED = "_dh"


def current_shell() -> Any:
    """The shell of this process; None: it has none."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _shows(shell: Any, name: str) -> Any:
    return shell if name == "ast_node_interactivity" else shell.display_formatter.formatters["text/plain"]


def _ipython(_module: Any) -> Values:
    shell = current_shell()
    if shell is None:
        return {}
    shown = {name: getattr(_shows(shell, name), name) for name in _SHOWN}
    return {**shown, "xmode": shell.InteractiveTB.mode, _VISITED: list(shell.user_ns.get(_VISITED, ()))}


def _set_ipython(_module: Any, name: str, value: Any) -> None:
    shell = current_shell()
    if name == _VISITED:
        shell.user_ns.setdefault(name, [])[:] = value
    elif name == "xmode":
        shell.InteractiveTB.set_mode(mode=value)
    else:
        setattr(_shows(shell, name), name, value)


def _futures(futures: Any) -> Values:
    """State of the features of ``__future__``: those that earlier cells have imported are active in later ones."""
    shell = current_shell()
    if shell is None:
        return {}
    return {
        name: bool(shell.compile.flags & getattr(futures, name).compiler_flag) for name in futures.all_feature_names
    }


def _set_future(futures: Any, name: str, value: Any) -> None:
    shell, flag = current_shell(), getattr(futures, name).compiler_flag
    shell.compile.flags = shell.compile.flags | flag if value else shell.compile.flags & ~flag


class IpythonAdapter(Adapter):
    """Settings."""

    settings = (
        LibrarySettings(
            "IPython", _ipython, lambda _: {**_SHOWN, "xmode": "Context", _VISITED: []}, _set_ipython, that_count=False
        ),
        LibrarySettings(
            "__future__", _futures, lambda futures: dict.fromkeys(futures.all_feature_names, False), _set_future
        ),
    )

    def holds_itself(self, kind: type) -> bool:
        return str(kind.__module__).startswith(("IPython", "ipykernel"))


ADAPTER = IpythonAdapter()
