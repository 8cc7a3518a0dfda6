"""Post-mortem of a failed GPU cell, here: real frames with the variables that came home, as ``%debug`` wants them.

Each frame runs a stub of one call: at the failed line, under the file, function, arguments and first line of the
original, with the notebook's names as globals. The innermost one raises, which leaves a traceback of such frames. The
errors that the last one came from are made again, too, each with its own.
"""

from __future__ import annotations

import ast
import builtins
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, TracebackType
from typing import Any

from ...client.tracebacks import remote_error
from ...errors import GpuReleaseError
from ...protocol.cell import FailedError, FailedFrames, Frame, LastOutput
from ...protocol.runs import ErrorInfo, Outcome
from ...serialization import codec
from ...serialization.rebuild import NamespaceInfo
from ...serialization.sharing.references import Key, Live
from ...unpickling import Trust

_RENDER = "_render_traceback_"


class UnavailableVariable:
    """Stands for a variable whose value stayed behind; its text says why."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def value_of(last: LastOutput, names: dict[str, Any], realm: NamespaceInfo, sent: Live) -> Any:
    """The value for ``_``, or words in its place; it may hold what the notebook's names hold, or what was ``sent``."""

    def live(key: Key) -> Any:
        return _at(names, key) if isinstance(key, str) else sent(key)

    if last.text:
        return UnavailableVariable(last.text)
    if last.name:
        try:
            return _at(names, last.name)
        except KeyError:
            return UnavailableVariable(f"<`{last.name}` of a GPU cell, which the notebook has not any more>")
    if last.library not in sys.modules:
        return UnavailableVariable(
            f"<a value of {last.library}, which is not imported here; give it a name to have it here>"
        )
    try:
        return codec.load(last.stream, last.buffers, realm, live, trust=Trust.GATEWAY).values.get("_")
    except GpuReleaseError as error:
        return UnavailableVariable(f"<a value of a GPU cell that cannot be rebuilt here: {error.message}>")


def _at(names: dict[str, Any], place: str) -> Any:
    """The value of a name, or of an attribute of one. Raises KeyError."""
    name, _, attribute = place.partition(".")
    try:
        return getattr(names[name], attribute) if attribute else names[name]
    except AttributeError:
        raise KeyError(place) from None


class _Variables:
    """Variables of all frames; rebuilt when the first one is looked at (that may import what the kernel has not)."""

    def __init__(self, failed: FailedFrames, names: dict[str, Any], realm: NamespaceInfo) -> None:
        self._failed, self._names, self._realm = failed, names, realm
        self._loaded: dict[str, Any] | None = None

    def find(self, key: str) -> Any:
        failed = self._failed
        if key in failed.texts:
            return UnavailableVariable(failed.texts[key])
        if key in failed.refs:
            name = failed.refs[key]
            return self._names.get(name, UnavailableVariable(f"<`{name}`, which the notebook has not any more>"))
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded.get(key, UnavailableVariable("<not sent>"))

    def _load(self) -> dict[str, Any]:
        try:
            loaded = codec.load(self._failed.stream, self._failed.buffers, self._realm, trust=Trust.GATEWAY)
        except GpuReleaseError as error:
            words = f"<cannot be rebuilt here: {error.message}>"
            return {
                f"{n} {name}": UnavailableVariable(words)
                for n, f in enumerate(self._failed.frames)
                for name in f.variables or ()
            }
        modules = {
            key: sys.modules.get(name, UnavailableVariable(f"<module {name}>")) for key, name in loaded.modules.items()
        }
        return {**loaded.values, **modules}


#: what Python itself has in place of an argument; :class:`_Locals` knows better
_UNFILLED = object()


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
        if value is not _UNFILLED:
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


@dataclass(frozen=True)
class FailedCell:
    """A run's error with its frames, as :func:`attach_frames` left them."""

    run: str
    error: BaseException
    remains: Remains


@dataclass(frozen=True)
class Remains:
    """The remains of an error for a debugger: its frames, and the error that it came from."""

    trace: TracebackType | None
    before: BaseException | None = None
    is_cause: bool = False

    def put_on(self, error: BaseException) -> None:
        """Let ``error`` have these, and nothing that Python gave it here."""
        put = BaseException.__setattr__  # the class's own may refuse
        put(error, "__traceback__", self.trace)
        put(error, "__cause__", self.before if self.is_cause else None)
        put(error, "__context__", self.before)
        put(error, "__suppress_context__", self.is_cause or self.before is None)


def rebuild(failed: FailedFrames, names: dict[str, Any], realm: NamespaceInfo) -> Remains:
    """Real frames for the last error, and the others of its chain with theirs.

    ``names``: what the cell's own frames have as globals.
    """
    variables = _Variables(failed, names, realm)
    number, remains = len(failed.frames), Remains(None)
    before: BaseException | None = None
    for each in reversed(failed.errors):
        number -= len(each.frames)
        remains = Remains(_traceback(each.frames, number, names, variables), before, each.has_cause)
        if each is not failed.errors[0]:
            before = error_of(each)
            remains.put_on(before)
    return remains


def frames_of(outcome: Outcome, rank: int, realm: NamespaceInfo) -> FailedFrames | None:
    """The frames of a rank that handed no names over."""
    graph = outcome.frames.get(rank)
    if graph is None:
        return None
    loaded = codec.load(graph.stream, graph.buffers, realm, trust=Trust.GATEWAY)
    found: FailedFrames | None = loaded.facts.get("failed")
    return found


def error_of(failed: FailedError) -> BaseException:
    """The error itself, without its frames."""
    info = ErrorInfo(failed.name, failed.text, pickled=failed.pickled)
    return remote_error(info, to_catch=True)


def _traceback(frames: list[Frame], first: int, names: dict[str, Any], variables: _Variables) -> TracebackType | None:
    step: Any = None
    for number, frame in reversed(list(enumerate(frames, first))):
        space = _globals_of(frame, names)
        own = None if frame.variables is None else _Locals(number, frame.variables, variables)
        step = _step(_stub(frame, step), space, own)
    try:
        if step is not None:
            step()
    except _ReachedError as reached:
        trace = reached.__traceback__
        return trace.tb_next if trace is not None else None
    return None


def _step(code: CodeType, space: dict[str, Any], own: _Locals | None) -> Callable[[], Any]:
    """Runs ``code``, as the body of a class: only there Python takes variables of any kind, and arguments as well."""
    if own is None:
        return partial(exec, code, space)
    function = FunctionType(code, space, code.co_name, (_UNFILLED,) * code.co_argcount)
    body = type("Body", (), {"__prepare__": staticmethod(lambda *_: own)})
    return partial(builtins.__build_class__, function, code.co_name, metaclass=body)


def attach_frames(error: BaseException, remains: Remains) -> None:
    """Have ``%debug``, ``%tb`` and ``sys.last_traceback`` find these frames when ``error`` is shown, and no others.

    Python adds the frames through which it is raised here; IPython asks for our lines after it has noted them.
    """
    render = getattr(error, _RENDER, None)
    if render is None or remains.trace is None:
        return

    def render_and_leave() -> list[str]:
        leave_for_debugger(error, remains)
        return list(render())

    BaseException.__setattr__(error, _RENDER, render_and_leave)


def leave_for_debugger(error: BaseException, remains: Remains) -> None:
    """Let a post-mortem that begins now begin at ``error``."""
    remains.put_on(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, remains.trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def begin_post_mortem(shell: Any, failed: FailedCell) -> None:
    """Open the debugger at the error, as ``%debug`` does."""
    leave_for_debugger(failed.error, failed.remains)
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
    arguments = tuple(frame.arguments) if frame.variables is not None else ()
    return code.replace(
        co_consts=constants,
        co_name=frame.name,
        co_qualname=frame.name,
        co_firstlineno=frame.first_line,
        co_varnames=arguments,
        co_nlocals=len(arguments),
        co_argcount=len(arguments),
    )
