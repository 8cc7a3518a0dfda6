"""Kernels: their processes, their IOPub, busy or not.

``execution_state`` alone is wrong: a subshell request that ends says ``idle`` while the main shell goes on, since
IOPub carries the states of all shells. Here every request that was begun and not ended counts for itself. IOPub drops
messages of a kernel that says more than a busy server reads: of one that has fallen silent the main shell is asked.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.session import Session
from traitlets.config import LoggingConfigurable

from .attribution import KERNEL_MARKER, KernelProcess

#: requests that tools send by themselves: they keep a kernel busy for a moment, but are no one's work
UNTRACKED = frozenset(
    {
        "kernel_info_request",
        "comm_info_request",
        "debug_request",
        "complete_request",
        "inspect_request",
        "is_complete_request",
        "history_request",
        "shutdown_request",
        "interrupt_request",
        "usage_request",
        "create_subshell_request",
        "delete_subshell_request",
        "list_subshell_request",
    }
)
#: a kernel at work that says nothing for so long is asked: with a look and an answer a lost end counts for 10 s
_SILENT_S = 5.0
#: implementations whose main shell takes one request after the other
_ANSWER_IN_TURN = frozenset({"ipython", "xeus-python"})
_DEBUG_BEGINS = frozenset({"initialized", "process", "thread", "stopped"})
_DEBUG_ENDS = frozenset({"terminated", "exited"})


@dataclass
class Conversation:
    """Record of what has been heard of one kernel since :attr:`began_s` (its start, restart, or our first look)."""

    began_s: float
    #: sessions whose requests are our own (asking libraries to let go is no activity of a user)
    own_sessions: set[str] = field(default_factory=set)
    #: the main shell answered since we listen: from then on silence means idle
    main_shell_answered: bool = False
    #: something came over IOPub since then: what is begun from now on will be heard of
    heard: bool = False
    #: requests begun and not ended: id → what it is
    open: dict[str, str] = field(default_factory=dict)
    #: those of them that are not the main shell's
    in_subshells: set[str] = field(default_factory=set)
    #: when anything was said
    heard_s: float = 0.0
    #: when the last tracked request was begun or ended, or said something
    last_activity_s: float = 0.0
    debugger: bool = False
    #: why nothing is known while the main shell has not answered
    unheard: str = "the kernel has not answered since this server watches it"

    def __post_init__(self) -> None:
        self.last_activity_s = self.last_activity_s or self.began_s

    def on_message(
        self, header: Mapping[str, Any], parent: Mapping[str, Any], content: Mapping[str, Any], now_s: float
    ) -> None:
        """Take one IOPub message."""
        kind, request, what = header.get("msg_type", ""), parent.get("msg_id", ""), parent.get("msg_type", "")
        if kind == "debug_event":
            self._debug(content.get("event", ""))
        if kind == "status":
            if content.get("execution_state") == "busy" and parent.get("subshell_id"):
                self.in_subshells.add(request)
            self._status(content.get("execution_state", ""), request, what, parent.get("session", ""), now_s)
        elif what and what not in UNTRACKED and parent.get("session") not in self.own_sessions:
            self.last_activity_s = now_s
        self.heard = True
        self.heard_s = now_s

    def is_doubtful(self, now_s: float) -> bool:
        """Tell if a request counts as open of which nothing has been heard for a while: its end may be lost."""
        return bool(self.open.keys() - self.in_subshells) and now_s - self.heard_s >= _SILENT_S

    def answered(self, asked_behind: Collection[str] = ()) -> None:
        """The main shell answered a question that was asked behind these requests: they have ended.

        IOPub may be connected later than the shell: then this answer tells nothing of what was begun before.
        """
        self.main_shell_answered = self.heard
        for request in set(asked_behind) - self.in_subshells:
            self.open.pop(request, None)

    def _status(self, state: str, request: str, what: str, session: str, now_s: float) -> None:
        if state == "starting":
            self.restarted(now_s)
            return
        own = session in self.own_sessions
        if state == "busy" and request and not own:
            self.open[request] = what
        if state == "idle":
            self.open.pop(request, None)
            self.in_subshells.discard(request)
        if what and what not in UNTRACKED and not own:
            self.last_activity_s = now_s

    def _debug(self, event: str) -> None:
        if event in _DEBUG_BEGINS:
            self.debugger = True
        elif event in _DEBUG_ENDS:
            self.debugger = False

    def restarted(self, now_s: float) -> None:
        """A new process: what was open died with the old one."""
        self.open.clear()
        self.in_subshells.clear()
        self.debugger = False
        self.main_shell_answered = self.heard = False
        self.began_s = self.last_activity_s = now_s

    def busy(self) -> tuple[bool | None, str]:
        """True, False, or None for unknown; and why, in words."""
        working = [what for what in self.open.values() if what not in UNTRACKED]
        if working:
            more = f" and {len(working) - 1} more" if len(working) > 1 else ""
            return True, f"a cell is running ({working[0]}{more})"
        if self.debugger:
            return True, "a debugger is attached"
        if not self.main_shell_answered:
            return None, self.unheard
        return False, "no request is open"


#: how old the list of sessions (which notebook has which kernel) may be
_PATHS_S = 15.0
_NAMELESS_S = 0.5
MoreVariables = Callable[[Mapping[str, str]], Mapping[str, str]]
_CONTENT_NEEDED = frozenset({"status", "debug_event"})


class Watch:
    """One kernel. ``manager`` is Jupyter's KernelManager of it."""

    def __init__(self, kernel: str, manager: Any, on_busy: Callable[[str], None]) -> None:
        self.kernel = kernel
        self.manager = manager
        self.path = ""
        self.since_s = time.monotonic()
        #: another Jupyter server runs it (``GatewayClient``) and talks to it: there is nothing to listen to here
        self.elsewhere = not manager.iopub_port
        self.conversation = Conversation(time.monotonic())
        self._on_busy = on_busy
        self._session = Session(config=manager.session.config, key=manager.session.key)
        self.process: KernelProcess | None = None
        self._iopub: Any = None
        self._shell: Any = None
        self._asked_behind: frozenset[str] = frozenset()
        if self.elsewhere:
            self.conversation.unheard = "it runs on another Jupyter server"
        else:
            self._iopub = manager.connect_iopub()
            self._iopub.on_recv(self._on_iopub)

    @property
    def name(self) -> str:
        """The kernelspec's name."""
        return str(self.manager.kernel_name)

    @property
    def language(self) -> str:
        """The kernelspec's language, in small letters."""
        with contextlib.suppress(Exception):  # a spec that was removed meanwhile
            return str(self.manager.kernel_spec.language).lower()
        return ""

    @property
    def execution_state(self) -> str:
        """The state according to Jupyter (starting, restarting, dead …; its busy and idle are not trusted)."""
        return "unknown" if self.elsewhere else str(getattr(self.manager, "execution_state", "unknown"))

    def find_process(self) -> None:
        """Find the root process again; a new one (restart) begins a new conversation."""
        pid = getattr(self.manager.provisioner, "pid", None)
        if not isinstance(pid, int):  # nothing, or the name that a process has on another machine
            self.process = None
        elif self.process is None or self.process.pid != pid:
            if self.process is not None:
                self.conversation.restarted(time.monotonic())
                self._close_shell()  # the question went to the old process
            self.process = KernelProcess(self.kernel, pid, None)
        is_unsure = not self.conversation.main_shell_answered or self.conversation.is_doubtful(time.monotonic())
        if self.process is not None and is_unsure and self._shell is None:
            self._ask_main_shell()

    def known_start(self, start_s: float) -> None:
        """Pin the process by its start, so that a successor under the same id is not taken for it."""
        if self.process is not None and self.process.start_s is None:
            self.process = KernelProcess(self.kernel, self.process.pid, start_s)

    def _ask_main_shell(self) -> None:
        """The main shell answers in its turn: when it does, nothing that was begun before still runs there."""
        self._asked_behind = frozenset(self.conversation.open)
        self._shell = self.manager.connect_shell()
        self._shell.on_recv(self._on_answer)
        self._session.send(self._shell, "kernel_info_request")

    def _on_answer(self, parts: list[bytes]) -> None:
        message = self._read(parts)
        said = self._session.unpack(message["content"]) if message else {}
        self.conversation.answered(self._asked_behind if said.get("implementation") in _ANSWER_IN_TURN else ())
        self._close_shell()  # an answer that did not count is asked for again at the next look

    def _close_shell(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None and not shell.closed():
            shell.close()

    def _read(self, parts: list[bytes]) -> dict[str, Any]:
        """A message with its content left packed; empty when it is not signed with this kernel's key, or is none."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            _, rest = self._session.feed_identities(parts)
            found: dict[str, Any] = self._session.deserialize(rest, content=False)
            return found
        return {}

    def _on_iopub(self, parts: list[bytes]) -> None:
        message = self._read(parts)
        if not message:
            return
        header, parent = message["header"], message.get("parent_header") or {}
        needed = header["msg_type"] in _CONTENT_NEEDED
        content = self._session.unpack(message["content"]) if needed else {}
        self.conversation.on_message(header, parent, content, time.monotonic())
        if content.get("execution_state") == "busy" and parent.get("msg_type") == "execute_request":
            self._on_busy(self.kernel)

    def close(self) -> None:
        """Stop listening."""
        self._close_shell()
        if self._iopub is not None and not self._iopub.closed():
            self._iopub.close()


class Watches(LoggingConfigurable):
    """All kernels of this server, kept up to date by :meth:`refresh`."""

    def __init__(
        self, serverapp: Any, on_busy: Callable[[str], None], environment: MoreVariables, **kwargs: Any
    ) -> None:
        """``environment``: asked at each start of a kernel, with its environment, for what it gets besides the mark."""
        super().__init__(**kwargs)
        self._manager = serverapp.kernel_manager
        self._sessions = serverapp.session_manager
        self._terminals: Callable[[], Any] = lambda: serverapp.web_app.settings.get("terminal_manager")
        self._on_busy = on_busy
        self._paths_s = -_PATHS_S
        self.watches: dict[str, Watch] = {}
        mark_kernels(self._manager, environment)

    async def refresh(self) -> None:
        """Begin to watch what is new, forget what is gone."""
        present = set(self._manager.list_kernel_ids())
        for kernel in set(self.watches) - present:
            self.watches.pop(kernel).close()
        for kernel in present:
            manager = self._manager.get_kernel(kernel)
            watch = self.watches.get(kernel)
            if watch is not None and watch.manager is not manager:
                watch.close()
                watch = None
            if watch is None and manager.has_kernel:
                watch = self.watches[kernel] = Watch(kernel, manager, self._on_busy)
                self._paths_s = -_PATHS_S
            if watch is not None:
                watch.find_process()
        now_s = time.monotonic()
        # Jupyter notes a session some time after it started the kernel: new kernels are asked about more often
        nameless = any(not watch.path and now_s - watch.since_s < 2 * _PATHS_S for watch in self.watches.values())
        if now_s - self._paths_s >= (_NAMELESS_S if nameless else _PATHS_S):
            await self._read_paths()

    async def _read_paths(self) -> None:
        self._paths_s = time.monotonic()
        for model in await self._sessions.list_sessions():
            watch = self.watches.get((model.get("kernel") or {}).get("id", ""))
            if watch is not None:
                watch.path = str(model.get("path", ""))

    def connections(self, kernel: str) -> int:
        """Open WebSockets (tabs) of a kernel."""
        watch = self.watches.get(kernel)
        if watch is None or kernel not in self._manager:
            return 0
        # asked of a kernel that is elsewhere Jupyter would ask over there, and wait
        model = watch.manager.kernel if watch.elsewhere else self._manager.kernel_model(kernel)
        return int((model or {}).get("connections", 0))

    def processes(self) -> list[KernelProcess]:
        """The root processes."""
        return [watch.process for watch in self.watches.values() if watch.process is not None]

    def terminals(self) -> dict[str, int]:
        """Terminal name → process id of its shell."""
        manager = self._terminals()
        if manager is None:
            return {}
        return {str(name): int(terminal.ptyproc.pid) for name, terminal in list(manager.terminals.items())}

    def close(self) -> None:
        """Stop listening to all."""
        for watch in self.watches.values():
            watch.close()
        self.watches.clear()


def mark_kernels(manager: Any, more: MoreVariables) -> None:
    """Have every kernel that starts from now on carry its id in its environment (and in that of its workers)."""
    original = manager.pre_start_kernel

    def pre_start_kernel(kernel_name: str | None, kwargs: dict[str, Any]) -> Any:
        kernel = kwargs.setdefault("kernel_id", None) or manager.new_kernel_id()
        environment = kwargs.get("env")
        environment = dict(os.environ if environment is None else environment)
        kwargs["kernel_id"] = kernel
        kwargs["env"] = {**environment, **more(environment), KERNEL_MARKER: kernel}
        return original(kernel_name, kwargs)

    manager.pre_start_kernel = pre_start_kernel
