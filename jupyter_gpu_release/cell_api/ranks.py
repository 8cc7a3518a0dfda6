"""``gpu_release.ranks``: which process of a gang this is, and how it meets the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import streams
from ..errors import RankError
from ..units import parse_seconds

#: (op, source rank, value, seconds) → the value that was broadcast
Meet = Callable[[str, int, Any, float | None], Any]


def _meet_nobody(_op: str, _src: int, value: Any, _timeout_s: float | None) -> Any:
    return value


@dataclass(frozen=True)
class RankContext:
    """The place of this process in its gang; the default: alone."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    node: int = 0
    nodes: int = 1
    #: ``rank``, ``ps`` or ``evaluator``
    role: str = "rank"
    meet: Meet = _meet_nobody
    #: process that this is about: a child that the cell forks is no rank
    pid: int = 0


#: of the process, since users' code reads ``gpu_release.ranks`` with nothing that could carry it
_place = RankContext()


def set_rank_context(place: RankContext) -> None:
    """Say who this process is (called by the rank before the cell)."""
    global _place
    _place = place


@streams.named
class Ranks:
    """The ranks that run the cell together. Outside of a gang there is one, and meeting it takes no time."""

    @property
    def rank(self) -> int:
        """This process's rank, 0 … ``size`` - 1; parameter servers are numbered among themselves."""
        return _place.rank

    @property
    def size(self) -> int:
        """The number of ranks on all nodes."""
        return _place.size

    @property
    def local_rank(self) -> int:
        """This process's rank among those on its node."""
        return _place.local_rank

    @property
    def local_size(self) -> int:
        """The number of ranks on this node."""
        return _place.local_size

    @property
    def node(self) -> int:
        """This node's number in the gang, 0 … ``nodes`` - 1."""
        return _place.node

    @property
    def nodes(self) -> int:
        """Over how many nodes the ranks are spread."""
        return _place.nodes

    @property
    def role(self) -> str:
        """``rank``, or ``ps`` and ``evaluator`` for the processes that ``--ps`` adds."""
        return _place.role

    def barrier(self, timeout: float | str | None = None) -> None:
        """Return when every rank is here.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds to wait at most, or as options are written: ``"1m"`` (no limit).

        Raises
        ------
        RankError
            A rank has ended, or called something else.
        OptionError
            ``timeout`` is no duration.
        TimeoutError
            Not all came in time; names those that did not.
        """
        self._meet("barrier", 0, None, timeout)

    def broadcast(self, value: Any = None, src: int = 0, timeout: float | str | None = None) -> Any:
        """Return rank ``src``'s ``value`` on every rank (on ``src`` the object itself, elsewhere a copy).

        For small objects, at most 16 MiB pickled: settings, a path, a seed. Tensors go through ``torch.distributed``.

        Parameters
        ----------
        value : object
            What to send; looked at on rank ``src`` only.
        src : int
            The rank that sends (0).
        timeout : float or str, optional
            Seconds to wait at most, or as options are written: ``"1m"`` (no limit).

        Returns
        -------
        object
            The value that rank ``src`` gave.

        Raises
        ------
        RankError
            A rank has ended or called something else; or the value cannot be sent.
        OptionError
            ``timeout`` is no duration.
        TimeoutError
            Not all came in time; names those that did not.
        """
        if not 0 <= src < self.size:
            raise RankError(f"broadcast(src={src}): the ranks are 0 to {self.size - 1}")
        return self._meet("broadcast", src, value, timeout)

    def initialize_jax(self, **options: Any) -> None:
        """Call ``jax.distributed.initialize`` with this gang's coordinator. Outside of a gang it does nothing.

        Each rank takes the devices of its own lease.

        Parameters
        ----------
        **options
            Passed on; those that are given replace ours (``num_processes``, ``process_id``).
        """
        if self.size > 1:
            import jax

            jax.distributed.initialize(
                coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
                **{"num_processes": self.size, "process_id": self.rank, **options},
            )

    def _meet(self, op: str, src: int, value: Any, timeout: float | str | None) -> Any:
        timeout_s = None if timeout is None else _seconds(timeout)
        if _place.pid and _place.pid != os.getpid():
            raise RankError(f"{op}() was called in a process that the cell started", hint="call it in the cell itself")
        if _place.role != "rank":
            raise RankError(f"a {_place.role} process does not take part in {op}()", hint="only the ranks meet")
        return _place.meet(op, src, value, timeout_s)

    def __reduce__(self) -> str:
        return "ranks"  # by reference: there it says who *that* process is

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.size}, node {self.node} of {self.nodes}"


def _seconds(timeout: object) -> float:
    return float(timeout) if isinstance(timeout, int | float) else parse_seconds(str(timeout), option="timeout")


ranks = Ranks()
