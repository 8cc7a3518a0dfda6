"""The place where ``load``, ``publish`` and ``published`` are used: a notebook's kernel, a GPU cell, a plain script.

The kernel's extension and the rank say so here; nobody did: it is a script. Of the process, since users' code calls
``gpu_release.load(…)`` with nothing that could carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any


def _not_published(_values: Mapping[str, Any]) -> None:
    """Outside of a GPU cell nobody listens."""


def _not_reported(_step: int, _value: float) -> None:
    """Outside of a run no sweep listens."""


def _not_resumable(_every_s: float | None, _caller: FrameType) -> None:
    """Outside of a restartable cell a loop is a loop."""


def _not_saved(_state: Any, _every_s: float | None) -> None:
    """Outside of a restartable run nobody preempts code."""


@dataclass(frozen=True)
class ExecutionContext:
    """Answers of the place where code runs. Called on the thread of the user's call, each when it is needed.

    ``find_target``, ``launcher`` and ``loaded`` may wait for the gateway; the others answer at once.
    """

    #: the :class:`.NamespaceInfo` in which results are rebuilt
    realm: Callable[[], Any]
    #: the gateway's ``Target``, or None; where no gateway can be had at all: None instead of the function
    find_target: Callable[[], Any] | None
    #: root of the store, where it is known without a gateway
    store: Callable[[], str] = lambda: ""
    #: the kernel's session with the gateway: what it loads is not collected while it is there
    session: Callable[[], str] = lambda: ""
    #: (run, values) were loaded: what links runs to those whose results they use
    loaded: Callable[[str, Mapping[str, Any]], None] = lambda _run, _values: None
    publish: Callable[[Mapping[str, Any]], None] = _not_published
    #: (name, run or None) → the latest value, or None for "not known here"
    published: Callable[[str, str | None], tuple[Any] | None] = lambda _name, _run: None
    #: sends functions to the cluster (:class:`.FunctionExecutor`); None: as a plain script does
    launcher: Callable[[], Any] | None = None
    #: hands a worker of ``launch_map`` its items (:class:`.ItemExchange`)
    items: Callable[[], Any] | None = None
    #: (step, value) of each ``report``
    report: Callable[[int, float], None] = _not_reported
    #: (seconds between saves, the frame that called) of each ``resumable``
    resumable: Callable[[float | None, FrameType], None] = _not_resumable
    #: (state, seconds between saves) of each ``checkpoint``
    checkpoint: Callable[[Any, float | None], None] = _not_saved
    #: the state of the checkpoint from which the run goes on, once; else None
    restore: Callable[[], Any] = lambda: None
    #: where the driver of a sweep sends its trials (:class:`.GatewayAccess`); None: it is none
    gateway: Callable[[], Any] = lambda: None
    #: this is a process of a run: it holds what it asked for
    in_run: bool = False


_current: ExecutionContext | None = None


def set_context(context: ExecutionContext | None) -> None:
    """Say where this process's code runs from now on (None: nowhere special)."""
    global _current
    _current = context


def current_context() -> ExecutionContext | None:
    """The context that was set, or None in a plain script."""
    return _current
