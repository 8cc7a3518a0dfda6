"""Following one run from its submission until its names can be used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from ...client.results import is_usable
from ...client.tracebacks import make_interrupt
from ...errors import GatewayUnavailableError, GpuReleaseError, RunCancelledError, RunLostError, from_code
from ...presentation.run_display import RunDisplay
from ...presentation.wording import describe_lost
from ...protocol.events import Event
from ...protocol.runs import RunView
from ...protocol.session import Accepted, Events, Refused, Update
from ..interrupts import Interrupts
from ..output.cell_output import CellOutput

if TYPE_CHECKING:
    from ...client.feed import FeedItem, RunFeed
    from ...client.session import GatewaySession

TICK_S = 0.25
#: how long a stage lasts before it is said: waiting, and anything else
_QUIET_WAITING_S, _QUIET_S = 0.3, 1.0
_GIVE_UP_S = 60.0
_LOST = "connection to the gateway lost, {}; reconnecting …"
_INTERRUPTED = " (the run is interrupted when the gateway is back; interrupt once more to stop waiting)"


@dataclass(frozen=True)
class FollowMode:
    """Rules for following a run: by default, those of a cell that waits for its own run."""

    #: an interrupt ends the following, not the run
    leaves: bool = False
    #: a gateway that stays away is waited for without end (nobody else waits)
    patient: bool = False
    #: what was recorded before is shown folded: of a progress bar its last state
    replays: bool = False
    #: behind what the status line says
    suffix: str = ""


_OWN_CELL = FollowMode()


class RunFollower:
    """Shows what a run does and passes interrupts on; ends when its names can be used and its lease is gone."""

    def __init__(
        self,
        output: CellOutput,
        session: GatewaySession,
        feed: RunFeed,
        interrupts: Interrupts,
        manner: FollowMode = _OWN_CELL,
        on_events: Callable[[Iterable[Event]], None] = lambda _events: None,
    ) -> None:
        self.output = output
        self.display = RunDisplay(output, _first_view(session, feed), replays=manner.replays, suffix=manner.suffix)
        self.manner = manner
        self._on_events = on_events
        self._session = session
        self._feed = feed
        self._interrupts = interrupts
        self._passed_on = 0
        self._has_stopped_waiting = False
        self._is_accepted = False
        self._lost_at: float | None = None
        self._stage, self._stage_begun_at = self.display.stage(), time.monotonic()

    @property
    def view(self) -> RunView:
        """The run as it is known now."""
        return self.display.view

    @property
    def is_accepted(self) -> bool:
        """Tell if the gateway has committed the run."""
        return self._is_accepted

    def until_usable(self) -> RunView:
        """Block until the run's names can be used; returns its newest view.

        Raises what the gateway refuses it with, :class:`RunLostError` when the cluster died, and
        :class:`GatewayUnavailableError` when the gateway stays away too long (the run may go on).
        """
        try:
            while not (is_usable(self.view) or self._has_given_up_waiting()):
                self._say_state()
                self._step()
        finally:
            self.display.relay.show_held_back()
            self._session.drop_feed(self._feed)
        return self.view

    def until_accepted(self) -> None:
        """Block until the gateway has committed the run; raises what it is refused with."""
        try:
            while not self._is_accepted:
                self._step()
        except BaseException:
            self._session.drop_feed(self._feed)
            raise

    def failure(self, error: GpuReleaseError) -> BaseException:
        """The error of the cell: an interrupt, where the user has ended the wait for a node."""
        is_own = isinstance(error, RunCancelledError) and self._interrupts.count and not self._is_accepted
        return make_interrupt(error.message) if is_own else error

    def _step(self) -> None:
        item = self._feed.next_item(TICK_S)
        if item is not None:
            self._take(item)
        else:
            self.display.relay.show(())
        self.output.keep_busy()
        self._pass_interrupts_on()
        self._watch_connection()

    def _take(self, item: FeedItem) -> None:
        if isinstance(item, Events):
            self._on_events(item.events)
            self.display.show_events(item.events)
        elif isinstance(item, Accepted | Update):
            self.display.show_view(item.view)
            self._is_accepted = True
            self._lost_at = None
        elif isinstance(item, Refused):
            error = from_code(item.code, item.message, item.hint)
            raise RunLostError(item.message, hint=item.hint) if self._is_accepted else error
        else:
            self._take_connection(item)

    def _take_connection(self, item: FeedItem) -> None:
        from ...client.feed import ConnectionLost

        if not isinstance(item, ConnectionLost):
            self._lost_at = None
        elif item.final:
            raise item.error
        elif self._lost_at is None:
            self._lost_at = time.monotonic()

    def _pass_interrupts_on(self) -> None:
        while self._passed_on < self._interrupts.count:
            self._passed_on += 1
            if self.view.gone_at is None and not self.manner.leaves:
                self._session.signal(self._feed.run, "interrupt" if self._passed_on == 1 else "kill")
            else:
                self._has_stopped_waiting = True

    def _has_given_up_waiting(self) -> bool:
        """An interrupt that comes while results are written ends the wait, not the one that ended the cell before.

        While contact is lost, a second one ends any wait.
        """
        return self._has_stopped_waiting or (self._lost_at is not None and self._interrupts.count > 1)

    def _watch_connection(self) -> None:
        if self._lost_at is None:
            return
        from ...client.discovery import has_ended

        run = self._feed.run
        if has_ended(self._session.target):
            raise RunLostError(
                f"this machine's own cluster ended while run {run} was {self.view.state}; your variables are as before",
                hint="run the cell again: that starts the cluster anew",
            )
        if time.monotonic() - self._lost_at > _GIVE_UP_S and not self.manner.patient:
            raise GatewayUnavailableError(
                f"the gateway {self._session.target.url} has not answered for {_GIVE_UP_S:.0f} s; "
                f"run {run} may still go on, your variables are as before",
                hint=f"look at it with %gpu_logs {run}, end it with %gpu_cancel {run}",
            )
        is_accepted = self._is_accepted or self._feed.request is None
        text = _LOST.format(describe_lost(self.view.granted_at, is_accepted=is_accepted))
        self.display.line.show_text(text + (_INTERRUPTED if self._interrupts.count and not self.manner.leaves else ""))

    def _say_state(self) -> None:
        """Quick runs and short stages pass without a word; what has lasted a moment is said."""
        stage, now = self.display.stage(), time.monotonic()
        if stage != self._stage:
            self._stage, self._stage_begun_at = stage, now
        quiet_s = _QUIET_WAITING_S if self.view.granted_at is None else _QUIET_S
        if self._lost_at is None and not self.display.relay.cleared and now - self._stage_begun_at >= quiet_s:
            self.display.say_state()


def _first_view(session: GatewaySession, feed: RunFeed) -> RunView:
    """The view until the gateway answers: what was asked for (a run that is brought back: nothing)."""
    view, asked, welcome = RunView(run=feed.run, user="", state="submitted"), feed.request, session.welcome
    if asked is None or welcome is None:
        return view
    return msgspec.structs.replace(view, gpus=asked.ask.gpus, ranks=asked.ask.ranks, simulated=welcome.simulated)
