"""Post-mortem of a failed GPU cell, here: real frames with the variables that came home, as ``%debug`` wants them.

Each frame runs a stub of one call: at the failed line, under the file, function and first line of the original, with
the notebook's names as globals. The innermost one raises, which leaves a traceback of such frames.
"""

from __future__ import annotations

import ast
import builtins
import sys
import warnings
from collections.abc import Iterator, MutableMapping
from functools import partial
from types import CodeType, TracebackType
from typing import Any

from ..core.failed_frames import FailedFrames, Frame
from ..core.last_output import LastOutput
from ..errors import GpuReleaseError
from ..storage import codec
from ..storage.rebuild import Realm
from ..storage.references import Key, Live

_RENDER = "_render_traceback_"


class NotHere:
    """Stands for a variable whose value stayed behind; its text says why."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def value_of(last: LastOutput, names: dict[str, Any], realm: Realm, sent: Live) -> Any:
    """What ``_`` shall be, or words in its place; it may hold what the notebook's names hold, or what was ``sent``."""

    def live(key: Key) -> Any:
        return names[key] if isinstance(key, str) else sent(key)

    if last.text:
        return NotHere(last.text)
    if last.name:
        return names.get(last.name, NotHere(f"<`{last.name}` of a GPU cell, which the notebook has not any more>"))
    if last.library not in sys.modules:
        return NotHere(f"<a value of {last.library}, which is not imported here; give it a name to have it here>")
    try:
        return codec.load(last.stream, [bytearray(each) for each in last.buffers], realm, live).values.get("_")
    except GpuReleaseError as error:
        return NotHere(f"<a value of a GPU cell that cannot be rebuilt here: {error.message}>")


class _Variables:
    """Those of all frames; rebuilt when the first one is looked at (that may import what the kernel has not)."""

    def __init__(self, failed: FailedFrames, names: dict[str, Any], realm: Realm) -> None:
        self._failed, self._names, self._realm = failed, names, realm
        self._loaded: dict[str, Any] | None = None

    def find(self, key: str) -> Any:
        failed = self._failed
        if key in failed.texts:
            return NotHere(failed.texts[key])
        if key in failed.refs:
            name = failed.refs[key]
            return self._names.get(name, NotHere(f"<`{name}`, which the notebook has not any more>"))
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded.get(key, NotHere("<not sent>"))

    def _load(self) -> dict[str, Any]:
        try:
            loaded = codec.load(self._failed.stream, [bytearray(each) for each in self._failed.buffers], self._realm)
        except GpuReleaseError as error:
            words = f"<cannot be rebuilt here: {error.message}>"
            return {
                f"{n} {name}": NotHere(words) for n, f in enumerate(self._failed.frames) for name in f.variables or ()
            }
        modules = {key: sys.modules.get(name, NotHere(f"<module {name}>")) for key, name in loaded.modules.items()}
        return {**loaded.values, **modules}


class _Locals(MutableMapping[str, Any]):
    """One frame's variables; a debugger may set them."""

    def __init__(self, number: int, names: list[str], variables: _Variables) -> None:
        self._number, self._variables = number, variables
        self._values: dict[str, Any] = dict.fromkeys(names, self)

    def __getitem__(self, name: str) -> Any:
        if self._values[name] is self:
            self._values[name] = self._variables.find(f"{self._number} {name}")
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values


class _ReachedError(Exception):
    """The innermost frame has been reached."""


def rebuild_traceback(failed: FailedFrames, names: dict[str, Any], realm: Realm) -> TracebackType | None:
    """A traceback of real frames; ``names``: what the cell's own frames have as globals."""
    variables = _Variables(failed, names, realm)
    step: Any = None
    for number in reversed(range(len(failed.frames))):
        frame = failed.frames[number]
        space = _globals_of(frame, names)
        own = space if frame.variables is None else _Locals(number, frame.variables, variables)
        step = partial(exec, _stub(frame, step), space, own)
    try:
        step()
    except _ReachedError as reached:
        trace = reached.__traceback__
        return trace.tb_next if trace is not None else None
    raise AssertionError("a stub went on")


def attach_traceback(error: BaseException, trace: TracebackType | None) -> None:
    """Have ``%debug``, ``%tb`` and ``sys.last_traceback`` find these frames when ``error`` is shown, and no others.

    Python adds the frames through which it is raised here; IPython asks for our lines after it has noted them.
    """
    render = getattr(error, _RENDER, None)
    if render is None or trace is None:
        return

    def render_and_leave() -> list[str]:
        leave_for_debugger(error, trace)
        return list(render())

    BaseException.__setattr__(error, _RENDER, render_and_leave)


def leave_for_debugger(error: BaseException, trace: TracebackType) -> None:
    """Let a post-mortem that begins now begin at ``error``."""
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def begin_post_mortem(shell: Any, error: BaseException) -> None:
    """Open the debugger at ``error``, as ``%debug`` does."""
    if error.__traceback__ is not None:
        leave_for_debugger(error, error.__traceback__)
    shell.InteractiveTB.tb = None  # what was shown last
    shell.debugger(force=True)


def _globals_of(frame: Frame, names: dict[str, Any]) -> dict[str, Any]:
    if frame.is_users:
        return names
    module = sys.modules.get(frame.module)
    if module is not None:
        return vars(module)
    return {"__name__": frame.module, "__file__": frame.file, "__builtins__": builtins}


def _stub(frame: Frame, step: Any) -> CodeType:
    """Calls ``step`` (None: raises) in the frame's failed line."""
    number = ast.Constant(0)
    what: ast.stmt = ast.Expr(ast.Call(number, [], [])) if step is not None else ast.Raise(number)
    for node in ast.walk(what):
        if isinstance(node, ast.expr | ast.stmt):
            node.lineno = node.end_lineno = max(frame.line - frame.first_line, 0) + 1
            node.col_offset = node.end_col_offset = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a number is called, until the next line
        code = compile(ast.Module([what], []), frame.file, "exec")
    constants = tuple((step or _ReachedError()) if type(each) is int else each for each in code.co_consts)
    return code.replace(
        co_consts=constants, co_name=frame.name, co_qualname=frame.name, co_firstlineno=frame.first_line
    )
