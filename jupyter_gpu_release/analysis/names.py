"""Names that belong to IPython and Python, not to the user; they never travel."""

from __future__ import annotations

import re

_OWN = frozenset(
    {
        "In", "Out", "_ih", "_oh", "_dh", "_i", "_ii", "_iii", "get_ipython", "exit", "quit", "_exit_code",
        "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtin__", "__builtins__",
        "__annotations__", "__conditional_annotations__", "__warningregistry__",
    }
)  # fmt: skip
_INPUT = re.compile(r"_i\d+")
_OUTPUT = re.compile(r"_{1,3}|_\d+")
#: the history objects, which hold the whole session
HISTORY = frozenset({"In", "Out", "_ih", "_oh"})


def is_machinery(name: str) -> bool:
    """Whether ``name`` is IPython's or Python's own."""
    return name in _OWN or _INPUT.fullmatch(name) is not None


def is_last_output(name: str) -> bool:
    """``_``, ``__``, ``_12``: sent when the cell reads them, never returned."""
    return _OUTPUT.fullmatch(name) is not None
