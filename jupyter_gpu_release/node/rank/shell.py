"""The IPython shell of a rank: built in the fork server, connected to its outlet in the rank."""

from __future__ import annotations

import base64
import builtins
import contextlib
import getpass
import sys
import time
import traceback
import warnings
from types import CodeType
from typing import TYPE_CHECKING, Any

from IPython.core import interactiveshell, page
from IPython.core.autocall import ExitAutocall
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any as AnyTrait
from traitlets.config import Config

from ...analysis import sources
from ...errors import GpuReleaseError
from ...presentation.tracebacks import drop_own_causes, without_own
from ...serialization import exceptions
from .environment import look_like_a_notebook
from .interrupts import InterruptGate
from .output import OutputSender
from .resuming.preempted import Preempted, StatementRunner

if TYPE_CHECKING:
    import ast


def _textual(data: dict[str, Any]) -> dict[str, Any]:
    """Binary representations as base64 text, as Jupyter's messages want them."""
    return {
        mime: base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
        for mime, value in data.items()
    }


class RankDisplayPublisher(DisplayPublisher):
    """Turns ``display``, updates and ``clear_output`` into events."""

    outlet: Any = AnyTrait(None, allow_none=True)

    def publish(  # noqa: D102
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: Any = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_kwargs: Any,
    ) -> None:
        if self.outlet is not None:
            kind = "update_display" if update else "display"
            body = {"data": _textual(data), "metadata": metadata or {}, "transient": transient or {}}
            self.outlet.add_event(kind, body)

    def clear_output(self, wait: bool = False) -> None:  # noqa: D102
        if self.outlet is not None:
            self.outlet.add_event("clear_output", {"wait": wait})


class RankDisplayHook(DisplayHook):
    """The last expression's value becomes a display event (its number belongs to the notebook)."""

    cell = ""

    def quiet(self) -> bool:
        """Tell if the cell ends in ``;`` (then the value is not shown)."""
        return bool(self.semicolon_at_end_of_expression(self.cell))

    #: a value is being formatted
    is_showing = False
    #: the values that were shown, of which the notebook's `_` is the last one
    shown: tuple[Any, ...] = ()

    def update_user_ns(self, result: Any) -> None:
        """`_` and `Out` are the notebook's: they are filled there."""
        self.shown = (result,)

    def start_displayhook(self) -> None:  # noqa: D102
        self._format: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        self.is_showing = True

    def write_output_prompt(self) -> None:  # noqa: D102
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:  # noqa: D102
        self._format = (format_dict, md_dict or {})

    def finish_displayhook(self) -> None:  # noqa: D102
        self.is_showing = False
        data, metadata = self._format
        if data:
            self.shell.display_pub.publish(data, metadata)

    def log_output(self, format_dict: dict[str, Any]) -> None:  # noqa: D102
        pass


class RankCompiler(CachingCompiler):
    """Compiles the notebook's cell under the file name that the kernel gave it."""

    #: text of the cell, its file name
    given: tuple[str, str] = ("", "")

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:  # noqa: D102
        text, name = self.given
        if name and transformed_code == text:
            return name
        return str(super().get_code_name(raw_code, transformed_code, number))


class _Exit(ExitAutocall):
    """``exit()`` and ``quit()``, which end the cell as ``sys.exit()`` does; the notebook's kernel goes on."""

    def __call__(self, *code: object) -> None:
        raise SystemExit(*code)


class RankShell(InteractiveShell):
    """A shell without terminal, history or prompts; errors become events."""

    compiler_class = RankCompiler
    outlet: OutputSender | None = None
    kernel: Any
    traceback_lines: list[str]
    #: when the latest error was raised (unix seconds)
    failed_at_s = 0.0
    _matplotlib_ready = False

    #: of the cell itself, while its statements run (cells that it runs have results of their own)
    _result: Any = None
    #: its statements have not begun
    _is_early = True
    #: the error of a last value that cannot be shown: it fails the cell, as in ipykernel
    unshown: BaseException | None = None
    #: functions whose frames are left out of the user's traceback
    hidden_codes: set[CodeType]
    gate: InterruptGate
    #: runs the statements of a cell that may be preempted
    restartable: StatementRunner | None = None
    #: file name of a statement that is ours: the call of a launched function
    hidden_file = ""

    def _get_exc_info(self, exc_tuple: Any = None) -> tuple[Any, Any, Any]:
        etype, value, trace = super()._get_exc_info(exc_tuple)
        shown, link = trace, trace
        while link is not None:
            if link.tb_frame.f_code not in self.hidden_codes:
                shown = link
            link = link.tb_next
            shown.tb_next = link
        self._leave_out_call(trace)
        if isinstance(value, GpuReleaseError | TimeoutError):  # a barrier's, or another's: then no frame is ours
            drop_own_causes(value)
            trace = without_own(trace)
        return etype, value, trace

    def _leave_out_call(self, trace: Any) -> None:
        """A function's traceback begins in the function, if it got there."""
        while self.hidden_file and trace is not None:
            link = trace.tb_next
            if link is not None and link.tb_next is not None and link.tb_frame.f_code.co_filename == self.hidden_file:
                trace.tb_next = link.tb_next
            trace = trace.tb_next

    async def run_ast_nodes(self, *args: Any, **kwargs: Any) -> bool:
        """The cell's own code: the only part that an interrupt may strike.

        Elsewhere IPython swallows it (its callbacks catch KeyboardInterrupt). One that came earlier strikes first.
        """
        if self._result is not None:  # a cell that the cell runs
            return bool(await super().run_ast_nodes(*args, **kwargs))
        self._result, self._is_early = kwargs["result"], False
        run = super().run_ast_nodes
        try:
            self.gate.open()
            if self.restartable is not None:
                return await self._run_restartable(self.restartable, run, *args, **kwargs)
            return bool(await run(*args, **kwargs))
        except KeyboardInterrupt as error:
            kwargs["result"].error_in_exec = error
            self.showtraceback()
            return True
        finally:
            self.gate.close()
            self._result = None

    async def _run_restartable(
        self, cell: StatementRunner, run: Any, nodes: list[ast.stmt], name: str, *, interactivity: str, **kwargs: Any
    ) -> bool:
        def run_nodes(few: list[ast.stmt], shown: str) -> Any:
            return run(few, name, interactivity=shown, **kwargs)

        failed = await cell.run_statements(nodes, interactivity, run_nodes)
        if cell.taken is not None:
            kwargs["result"].error_in_exec = Preempted()
        return failed

    def begin_cell(self) -> None:
        """Call before each cell."""
        self.traceback_lines, self.unshown, self._is_early = [], None, True
        self.displayhook.shown = ()

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Formatting takes long for deep recursion: the cell's statements have ended before it."""
        given = args[0] if args else kwargs.get("exc_tuple")
        error = (given or sys.exc_info())[1]
        if isinstance(error, Preempted):
            return
        if self._ends_cell(error):
            self.failed_at_s = time.time()
            self.gate.close()  # an interrupt would be shown in its place
            if isinstance(error, SystemExit):  # IPython would not say in which line
                kwargs["exception_only"] = False
        sources.tell_inspect(self.compile)
        if exceptions.has_group(error):  # IPython would print it, and leave us without lines
            etype, value, trace = self._get_exc_info()
            lines = traceback.format_exception(etype, value, trace and trace.tb_next)  # below the shell's own frame
            self._showtraceback(etype, value, "".join(lines).rstrip("\n").split("\n"))
        else:
            super().showtraceback(*args, **kwargs)

    def lines_of(self, error: BaseException) -> list[str]:
        """The traceback of an error that the frame which called us has caught, without that frame."""
        sources.tell_inspect(self.compile)
        trace = error.__traceback__
        trace = trace.tb_next if trace is not None and trace.tb_next is not None else trace
        if not exceptions.has_group(error):
            with contextlib.suppress(Exception):  # the user's class may be odd in any way
                return list(self.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=0))
        return "".join(traceback.format_exception(type(error), error, trace)).rstrip("\n").split("\n")

    def get_parent(self) -> dict[str, Any]:
        """The notebook's request, as of a kernel's shell."""
        kernel = getattr(self, "kernel", None)
        return dict(kernel.get_parent()) if kernel is not None else {}

    def show_in_pager(self, data: Any, start: int = 0, **_more: Any) -> None:
        """``np.sum?``: the notebook's own pager shows it."""
        pages = data if isinstance(data, dict) else {"text/plain": data}
        self._send_payload({"source": "page", "data": pages, "start": max(0, start)})

    def set_next_input(self, s: str, replace: bool = False) -> None:
        """``%load``: the text goes into the notebook's cell."""
        self._send_payload({"source": "set_next_input", "text": s, "replace": replace})

    def _send_payload(self, payload: dict[str, Any]) -> None:
        if self.outlet is not None:
            self.outlet.add_event("payload", payload)

    def _ends_cell(self, error: BaseException | None) -> bool:
        """Tell if ``error`` is the cell's own; others are only shown: `%run`, a cell that the cell runs, a callback."""
        if self._result is None:
            return self._is_early
        own = (self._result.error_in_exec, self._result.error_before_exec)
        return error is not None and any(error is each for each in own)

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        lines = [stb] if isinstance(stb, str) else list(stb)
        if self._ends_cell(evalue):
            self._show_unshown()
            self.traceback_lines = lines
        elif self.displayhook.is_showing and self._result is not None:
            self._show_unshown()
            self.unshown, self.traceback_lines, self.failed_at_s = evalue, lines, time.time()
        else:
            self._show_aside(evalue, lines)

    def show_usage_error(self, exc: Any) -> None:
        """One line; printed here and raised at home it would be shown twice."""
        if self._ends_cell(exc):
            self.traceback_lines = [f"UsageError: {exc}"]
        else:
            super().show_usage_error(exc)

    def _show_unshown(self) -> None:
        """Show such errors; of several the last one ends the cell."""
        if self.unshown is not None:
            self._show_aside(self.unshown, self.traceback_lines)
            self.unshown = None

    def _show_aside(self, error: BaseException, lines: list[str]) -> None:
        if self.outlet is not None:
            body = {"ename": type(error).__name__, "evalue": exceptions.error_text(error), "traceback": lines}
            self.outlet.add_event("traceback", body)

    def enable_gui(self, gui: Any = None) -> None:
        """No GUI event loop here; ``%matplotlib inline`` asks for none."""

    def init_virtualenv(self) -> None:
        """The interpreter is the right one already."""

    def raw_input(self, prompt: str = "") -> str:  # noqa: D102
        return _no_input(prompt)


_NOBODY = (
    "cannot ask inside a GPU cell (nobody waits at the node): ask in an ordinary cell before it and use the variable"
)


def _no_input(_prompt: object = "", /) -> str:
    raise RuntimeError(f"input() {_NOBODY} here")


def _no_getpass(prompt: str = "Password: ", stream: Any = None, **_more: Any) -> str:
    raise RuntimeError(f"getpass() {_NOBODY} here")


def _warn(message: Any, *args: Any, **kwargs: Any) -> None:
    """IPython's warnings, but not how to leave a shell that nobody sits at."""
    if not str(message).startswith("To exit: use"):
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        warnings.warn(message, *args, **kwargs)


def build_shell() -> RankShell:
    """Make the shell (about 100 ms; done once, before forking). No history database, no threads."""
    HistoryManager.enabled = False
    interactiveshell.warn = _warn
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "neutral"
    config.InteractiveShell.cache_size = 0
    shell: RankShell = RankShell.instance(
        config=config, displayhook_class=RankDisplayHook, display_pub_class=RankDisplayPublisher
    )
    shell.traceback_lines = []
    shell.user_ns["exit"] = shell.user_ns["quit"] = _Exit()
    look_like_a_notebook(shell)
    shell.gate = InterruptGate()
    ours = (InterruptGate.open, _no_input, _no_getpass, RankShell.raw_input, _Exit.__call__)
    shell.hidden_codes = {function.__code__ for function in ours}
    shell.set_hook("show_in_pager", page.as_hook(shell.show_in_pager), 99)
    shell.Completer.use_jedi = False
    # one round through the machinery, so that its lazy imports are done before the forks; an error's are the longest
    for source in ("1 + 1", "1 / 0"):
        shell.run_cell(source, store_history=False)
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
    shell.traceback_lines, shell.failed_at_s = [], 0.0
    return shell


def connect_shell(shell: RankShell, outlet: OutputSender) -> None:
    """Let the shell of this rank speak through ``outlet``."""
    shell.outlet = outlet
    shell.display_pub.outlet = outlet
    builtins.input = _no_input
    getpass.getpass = _no_getpass
    _route_comms(outlet)


def _route_comms(outlet: OutputSender) -> None:
    """Widgets: comm messages become events that the notebook's kernel sends on."""
    try:
        import comm
        from comm.base_comm import BaseComm, CommManager
    except ImportError:
        return

    class RankComm(BaseComm):
        def publish_msg(
            self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
        ) -> None:
            content = {"data": data or {}, "comm_id": self.comm_id, **keys}
            raw = [bytes(buffer) for buffer in buffers or []]
            body = {"msg_type": msg_type, "content": content, "metadata": metadata or {}, "buffers": raw}
            outlet.add_event("comm", body)

    manager = CommManager()
    comm.create_comm = RankComm
    comm.get_comm_manager = lambda: manager


def use_inline_figures(shell: RankShell) -> None:
    """Connect matplotlib's inline backend to this shell, when matplotlib is loaded."""
    if shell._matplotlib_ready or "matplotlib" not in sys.modules:
        return
    import matplotlib
    from matplotlib_inline.backend_inline import configure_inline_support

    matplotlib.interactive(True)
    shell._matplotlib_ready = True
    configure_inline_support(shell, "module://matplotlib_inline.backend_inline")
