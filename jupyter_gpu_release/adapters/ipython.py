"""IPython: what it shows, the folders of ``%cd``, and what earlier cells have imported from ``__future__``."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from .. import streams
from .adapter import Adapter, LibrarySettings, Reducer, Staying, Values

#: what IPython itself shows, by the object that holds it
_SHOWN = {"ast_node_interactivity": "last_expr", "float_precision": "", "max_seq_length": 1000, "pprint": True}
#: folders of ``%cd``, for ``%cd -`` and ``%dhist``
_VISITED = "_dh"


def current_shell() -> Any:
    """The shell of this process; None: it has none."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def reduce_shell(_pickler: Any, shell: Any) -> Any:
    """It is the process's own everywhere (``ip = get_ipython()``)."""
    return (shell_here, ()) if shell is current_shell() else NotImplemented


@streams.named
def shell_here() -> Any:
    """The shell of the process that asks."""
    return current_shell()


def _shows(shell: Any, name: str) -> Any:
    return shell if name == "ast_node_interactivity" else shell.display_formatter.formatters["text/plain"]


def _ipython(_module: Any) -> Values:
    shell = current_shell()
    if shell is None:
        return {}
    shown = {name: getattr(_shows(shell, name), name) for name in _SHOWN}
    visited = list(shell.user_ns.get(_VISITED, ()))
    return {**shown, **dict(_called_later(shell)), "xmode": shell.InteractiveTB.mode, _VISITED: visited}


def _called_later(shell: Any) -> Iterator[tuple[str, Staying]]:
    """Functions of the notebook that IPython calls for cells and errors, which are this process's."""
    for event, callbacks in shell.events.callbacks.items():
        for callback in callbacks:
            if getattr(callback, "__module__", "") == "__main__":
                yield f"{event} callback `{getattr(callback, '__qualname__', callback)}`", Staying(callback)
    if shell.custom_exceptions:
        kinds = ", ".join(each.__name__ for each in shell.custom_exceptions)
        yield f"handler of {kinds}", Staying(shell.custom_exceptions)


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


# -------------------------------------------------- how objects of a class are shown (``formatter.for_type(…)``)
#: packages that say by themselves, in each process, how their objects are shown
_OWN = frozenset({"IPython", "ipykernel", "matplotlib_inline", __name__.partition(".")[0]})
#: a class, or its module and name → what makes the format of its object
Printers = dict[Any, Any]
#: a format, the name of a class
_NAME = "formatter {} of {}"


class _ByFormat(type):
    """Attributes of its class are formatters of this process's shell; one that is set adds to them."""

    def __setattr__(cls, name: str, value: Printers) -> None:
        formatter = current_shell().display_formatter.formatters[name.split()[1]]
        for key, printer in value.items():
            if isinstance(key, type):
                formatter.for_type(key, printer)
            else:
                formatter.for_type_by_name(*key, printer)


class ShownAs(metaclass=_ByFormat):
    """Printers that were registered with the shell's formatters, by format and the class's name."""

    __module__ = streams.__name__


def _printers(formats: dict[str, Any]) -> dict[str, Printers]:
    found: dict[str, Printers] = {}
    for format_, formatter in formats.items():
        for key, printer in {**formatter.type_printers, **formatter.deferred_printers}.items():
            if "." not in format_ and _is_from_outside(printer):
                name = key.__name__ if isinstance(key, type) else key[1]
                found.setdefault(_NAME.format(format_, name), {})[key] = printer
    return found


def _is_from_outside(printer: Any) -> bool:
    made_of = printer.func if isinstance(printer, functools.partial) else printer
    return str(getattr(made_of, "__module__", "")).partition(".")[0] not in _OWN


# ------------------------------------------------------- magics, aliases and annotations that a notebook has made
class _Told(type):
    """Attributes of its class are what was told to this process's shell; one that is set is told to it."""

    def __setattr__(cls, words: str, value: Any) -> None:
        shell, (kind, name) = current_shell(), words.split(" ", 1)
        if kind == _ALIAS:
            shell.alias_manager.define_alias(name, value)
        elif kind == _ANNOTATION:
            shell.user_ns.setdefault("__annotations__", {})[name] = value
        elif kind == _TRANSFORMERS:
            others = [each for each in shell.ast_transformers if not _is_of_notebook(each)]
            shell.ast_transformers[:] = [*others, *value]
        elif kind == _CLASS:
            shell.register_magics(value)
        elif type(value) is tuple:
            shell.magics_manager.register_alias(name, value[0], kind.removesuffix("-magic"), value[1])
        else:
            shell.register_magic_function(value, kind.removesuffix("-magic"), name)


class ToldIpython(metaclass=_Told):
    """Magics, aliases of commands, annotations of names and transformers of code that a notebook has made."""

    __module__ = streams.__name__


#: of magics, as IPython makes them
_USUAL_ALIASES = frozenset({"ed", "hist", "rep", "SVG", "HTML", "file"})
_ALIAS, _ANNOTATION, _CLASS, _TRANSFORMERS = "alias", "annotation", "magics-class", "ast-transformers"


def _is_of_notebook(thing: Any) -> bool:
    return type(thing).__module__ == "__main__"


def _told(shell: Any) -> Iterator[tuple[str, Any]]:
    for kind, magics in shell.magics_manager.magics.items():
        for name, magic in magics.items():
            if type(magic) is types.FunctionType and magic.__module__ == "__main__":
                yield f"{kind}-magic {name}", magic
            elif type(magic).__name__ == "MagicAlias" and name not in _USUAL_ALIASES:
                yield f"{kind}-magic {name}", (magic.magic_name, magic.magic_params)
    objects = filter(_is_of_notebook, shell.magics_manager.registry.values())
    yield from ((f"{_CLASS} {type(each).__name__}", each) for each in objects)
    usual = dict(shell.alias_manager.default_aliases)
    yield from ((f"{_ALIAS} {name}", line) for name, line in shell.alias_manager.aliases if usual.get(name) != line)
    if own := list(filter(_is_of_notebook, shell.ast_transformers)):
        yield f"{_TRANSFORMERS} of the notebook", own
    annotations = shell.user_ns.get("__annotations__")
    if type(annotations) is dict:
        yield from ((f"{_ANNOTATION} {name}", value) for name, value in annotations.items() if type(name) is str)


class IpythonAdapter(Adapter):
    """Settings, formatters, magics."""

    carried_calls = ("register_line_magic", "register_cell_magic", "register_line_cell_magic", "register_magics")

    settings = (
        LibrarySettings(
            "IPython", _ipython, lambda _: {**_SHOWN, "xmode": "Context", _VISITED: []}, _set_ipython, that_count=False
        ),
        LibrarySettings(
            "__future__", _futures, lambda futures: dict.fromkeys(futures.all_feature_names, False), _set_future
        ),
    )

    def extended_classes(self) -> Iterable[type]:
        return [ShownAs, ToldIpython]

    def extensions(self) -> Iterable[tuple[type, str, Any]]:
        shell = current_shell()
        found = {} if shell is None else _printers(shell.display_formatter.formatters)
        told = [] if shell is None else [(ToldIpython, *each) for each in _told(shell)]
        return [*((ShownAs, name, printers) for name, printers in found.items()), *told]

    def reducer_for(self, kind: type) -> Reducer | None:
        return reduce_shell if any(base.__name__ == "InteractiveShell" for base in kind.__mro__) else None

    def holds_itself(self, kind: type) -> bool:
        return str(kind.__module__).startswith(("IPython", "ipykernel"))


ADAPTER = IpythonAdapter()
