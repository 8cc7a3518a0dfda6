"""Whether a kernel is executing, from the parents of its IOPub messages.

``execution_state`` alone is wrong: a subshell request that ends says ``idle`` while the main shell goes on, since
IOPub carries the states of all shells. Here every request that was begun and not ended counts for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: requests that tools send by themselves: they keep a kernel busy for a moment, but are no one's work
UNTRACKED = frozenset(
    {"kernel_info_request", "comm_info_request", "debug_request", "complete_request", "inspect_request",
     "is_complete_request", "history_request", "shutdown_request", "interrupt_request", "usage_request",
     "create_subshell_request", "delete_subshell_request", "list_subshell_request"}
)  # fmt: skip
_DEBUG_BEGINS = frozenset({"initialized", "process", "thread", "stopped"})
_DEBUG_ENDS = frozenset({"terminated", "exited"})


@dataclass
class Conversation:
    """What has been heard of one kernel since :attr:`began_s` (its start, restart, or our first look)."""

    began_s: float
    #: sessions whose requests are our own (asking libraries to let go is no activity of a user)
    own_sessions: set[str] = field(default_factory=set)
    #: the main shell answered since we listen: from then on silence means idle
    main_shell_answered: bool = False
    #: something came over IOPub since then: what is begun from now on will be heard of
    heard: bool = False
    #: requests begun and not ended: id → what it is
    open: dict[str, str] = field(default_factory=dict)
    #: when the last tracked request was begun or ended, or said something
    last_activity_s: float = 0.0
    debugger: bool = False
    #: why nothing is known while the main shell has not answered
    unheard: str = "the kernel has not answered since this server watches it"

    def __post_init__(self) -> None:
        self.last_activity_s = self.last_activity_s or self.began_s

    def hear(
        self, header: Mapping[str, Any], parent: Mapping[str, Any], content: Mapping[str, Any], now_s: float
    ) -> None:
        """Take one IOPub message."""
        kind, request, what = header.get("msg_type", ""), parent.get("msg_id", ""), parent.get("msg_type", "")
        if kind == "debug_event":
            self._debug(content.get("event", ""))
        if kind == "status":
            self._status(content.get("execution_state", ""), request, what, parent.get("session", ""), now_s)
        elif what and what not in UNTRACKED and parent.get("session") not in self.own_sessions:
            self.last_activity_s = now_s
        self.heard = True

    def answered(self) -> None:
        """The main shell answered. IOPub may be connected later than the shell: then this answer does not count."""
        self.main_shell_answered = self.heard

    def _status(self, state: str, request: str, what: str, session: str, now_s: float) -> None:
        if state == "starting":
            self.restarted(now_s)
            return
        own = session in self.own_sessions
        if state == "busy" and request and not own:
            self.open[request] = what
        if state == "idle":
            self.open.pop(request, None)
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
