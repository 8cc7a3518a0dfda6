"""Messages between kernel and gateway over one WebSocket: records as in :mod:`.protocol.runs`.

The kernel sends :data:`ClientMessage` and gets :data:`GatewayMessage`.
"""

from __future__ import annotations

import msgspec

from .bounds import Count, Finite, Number, Resumed, SmallBlob, Word
from .events import Event
from .lineage import UsedInputs
from .rest import PriceList
from .runs import RunRequest, RunView

#: what this version speaks. A new message, or another meaning, is the next number; a field with a default is not
PROTOCOL = 2


def is_understood(protocol: int) -> bool:
    """Tell if a peer that speaks ``protocol`` and we can work together: its version is at most one away from ours.

    The newer of the two sees to it: it reads what the version before wrote, and sends it nothing that is new.
    """
    return abs(protocol - PROTOCOL) <= 1


def driver_session(sweep: str) -> str:
    """The session of the run that drives a sweep, through all of its attempts."""
    return f"sweep-{sweep}"


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First message on a session socket."""

    protocol: Number
    session: Word
    version: Word = ""
    #: runs to go on with: id → number of the last event seen
    resume: Resumed = msgspec.field(default_factory=dict)
    #: the client's own end of the connection, "address port": what the gateway sees when nothing lies in between
    here: Word = ""


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Ask for a run; answered by :class:`Accepted` or :class:`Refused`."""

    request: RunRequest


#: signal, and code of the reason why the trial ends
PRUNED = "pruned"


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """``interrupt`` (KeyboardInterrupt, then kill after the grace; a queued run is cancelled) or ``kill``.

    ``pruned``: an interrupt of a trial that does badly.
    """

    run: Word
    signal: Word = "interrupt"
    #: the same one, sent again after a reconnect, counts once (the gateway takes a second interrupt for a kill)
    id: Word = ""


class Detach(msgspec.Struct, frozen=True, tag="detach"):
    """Let a run go on when this kernel ends; committed when a view comes that is ``detached``."""

    run: Word


class Subscribe(msgspec.Struct, frozen=True, tag="subscribe"):
    """Follow a run from event number ``after`` + 1 on. ``adopt``: a run whose own kernel is gone belongs to this
    session from now on.
    """

    run: Word
    after: Number = 0
    adopt: bool = False


class Supply(msgspec.Struct, frozen=True, tag="supply"):
    """Value that a rank of a run asked its waiting kernel for. ``body``: a msgpack :class:`.Answer`, which the gateway
    does not read; ``used``: the inputs that the run has by it.
    """

    run: Word
    rank: Count = 0
    body: SmallBlob = b""
    used: UsedInputs = msgspec.field(default_factory=list)


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Sent by the client every few seconds and echoed: tells a kernel that ended from a network that is gone."""

    at_s: Finite = 0.0


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """The client ends on purpose: its attached runs end now, without the reconnect grace."""


ClientMessage = Hello | Submit | Signal | Detach | Supply | Subscribe | Heartbeat | Bye


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """Answer to :class:`Hello`: which cluster this is."""

    protocol: int
    version: str
    user: str
    simulated: bool
    gpus_total: int
    #: root of the store as the nodes see it
    store: str
    #: embedded (this machine's own) or attached to a Ray cluster somebody else runs
    embedded: bool = True
    python: str = ""
    #: what ``store.json`` in it must say; empty: not known
    store_id: str = ""
    #: ``PYTHONHASHSEED`` of the cells; empty: not known
    hash_seed: str = ""
    #: user that the cluster's agents run as, where that is to be trusted; None: it does not matter
    service_uid: int | None = None
    #: digest of what is installed on the nodes, or ``UNKNOWN``; empty: they build no environments
    packages: str = ""
    #: rates of the queues file, by the names that it gives types; None: it names none
    prices: PriceList | None = None
    #: GPUs with all nodes that may be borrowed; 0: none are
    gpus_borrowed_most: int = 0

    @property
    def gpus_most(self) -> int:
        """GPUs that may run cells at once, also on nodes that are not there yet."""
        return max(self.gpus_total, self.gpus_borrowed_most)


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The submission is committed."""

    view: RunView


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The request about ``run`` was refused; ``code`` as in errors.py. An empty ``run``: the connection itself."""

    run: str
    code: str
    message: str
    hint: str = msgspec.field(default="", name="mend")


class Update(msgspec.Struct, frozen=True, tag="update"):
    """The run's newest view, sent behind its events up to ``after_event``."""

    view: RunView
    after_event: int = 0


class Events(msgspec.Struct, frozen=True, tag="events"):
    """Consecutive events of one run."""

    run: str
    events: list[Event]


GatewayMessage = Welcome | Accepted | Refused | Update | Events | Heartbeat
