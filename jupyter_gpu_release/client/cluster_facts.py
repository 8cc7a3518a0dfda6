"""Facts of the cluster for what somebody is typing: never waited for long; a thread asks again when they are old."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import GpuReleaseError
from ..host.interruptible import InterruptibleEvent
from ..protocol.states import RunState

if TYPE_CHECKING:
    from .discovery import Target

#: it is read again when it is older
FRESH_S = 2.0
#: an older one is not shown any more
KEPT_S = 30.0

_ANSWER_S = 3.0
_RUNS = 50
_DAY_S = 86_400.0


@dataclass(frozen=True)
class ClusterGpus:
    """GPUs of the nodes that are up: their number, types as ``--gpu-type`` takes them, memory in GiB, hosts."""

    total: int = 0
    types: dict[str, int] = field(default_factory=dict)
    memory_gib: tuple[int, ...] = ()
    nodes: int = 0


@dataclass(frozen=True)
class KnownQueue:
    """A queue that the user may use."""

    name: str
    #: in a few words
    about: str


@dataclass(frozen=True)
class KnownRun:
    """One of the user's own runs."""

    run: str
    state: str
    #: what it was, in a few words
    about: str
    is_over: bool
    failed: bool


T = TypeVar("T")


class Cached(Generic[T]):
    """A value that a thread reads anew when it is asked for and old."""

    def __init__(self, read: Callable[[], T], nothing: T) -> None:
        self._read = read
        self._nothing = nothing
        self._value, self._read_at = nothing, float("-inf")
        self._reading: InterruptibleEvent | None = None
        self._lock = threading.Lock()

    def get(self, patience_s: float) -> T:
        """The value; an older one, or nothing, where none is known within ``patience_s``."""
        with self._lock:
            if time.monotonic() - self._read_at < FRESH_S:
                return self._value
            done = self._reading
            if done is None:
                done = self._reading = InterruptibleEvent()
                threading.Thread(target=self._refresh, args=(done,), name="gpu-facts", daemon=True).start()
        done.wait(patience_s)
        with self._lock:
            return self._value if time.monotonic() - self._read_at < KEPT_S else self._nothing

    def _refresh(self, done: InterruptibleEvent) -> None:
        value = self._nothing
        try:
            value = self._read()
        except (GpuReleaseError, OSError, ValueError, TypeError, LookupError, AttributeError):
            pass  # no cluster, or something else than one: nothing is known of it
        finally:
            with self._lock:
                self._value, self._read_at, self._reading = value, time.monotonic(), None
            done.set()


class ClusterFacts:
    """The cluster's GPUs and queues, and the user's newest runs. Called on the thread of who types.

    ``find``, on another thread: the gateway, None without one; it may raise errors of ours.
    """

    def __init__(self, find: Callable[[], Target | None]) -> None:
        runs = f"/v1/runs?mine=true&brief=true&limit={_RUNS}"
        self._gpus = Cached[ClusterGpus](lambda: _gpus_of(_ask(find, "/v1/status")), ClusterGpus())
        self._queues = Cached[tuple[KnownQueue, ...]](lambda: _queues_of(_ask(find, "/v1/queues")), ())
        self._runs = Cached[tuple[KnownRun, ...]](lambda: _runs_of(_ask(find, runs)), ())

    def gpus(self, patience_s: float) -> ClusterGpus:
        """The GPUs; those of a moment ago, or none, where nothing newer is known within ``patience_s``."""
        return self._gpus.get(patience_s)

    def queues(self, patience_s: float) -> tuple[KnownQueue, ...]:
        """The queues that the user may use; as :meth:`gpus`."""
        return self._queues.get(patience_s)

    def runs(self, patience_s: float) -> tuple[KnownRun, ...]:
        """The user's newest runs, the newest first; as :meth:`gpus`."""
        return self._runs.get(patience_s)

    def look_ahead(self) -> None:
        """Ask for GPUs and queues without waiting: a value of one of the options is typed next."""
        self._gpus.get(0.0)
        self._queues.get(0.0)


def _ask(find: Callable[[], Target | None], path: str) -> Any:
    """One answer as plain JSON. By urllib: httpx takes 70 ms to import, longer than somebody who types may wait."""
    import urllib.request
    from http.client import HTTPException

    from .discovery import is_alive

    target = find()
    if target is None or not is_alive(target):
        return {}
    request = urllib.request.Request(f"{target.url}{path}")
    request.add_unredirected_header("Authorization", f"Bearer {target.token}")  # never for another host
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=target.tls())]
    if target.is_loopback:
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=_ANSWER_S) as answer:
            return json.load(answer)
    except HTTPException as error:
        raise OSError(f"{target.url} answered with something else than HTTP: {error}") from error


def _gpus_of(status: dict[str, Any]) -> ClusterGpus:
    nodes = [node for node in status.get("nodes", ()) if node.get("up", True)]
    gpus = [gpu for node in nodes for gpu in node["gpus"] if gpu["state"] != "drained"]
    types: dict[str, int] = {}
    for gpu in () if status.get("simulated") else gpus:
        if gpu["name"]:
            short = short_type(gpu["name"])
            types[short] = types.get(short, 0) + 1
    memory = sorted({gpu["memory_bytes"] >> 30 for gpu in gpus} - {0})
    return ClusterGpus(len(gpus), types, tuple(memory), len(nodes))


_MIG_TYPE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)")


def short_type(name: str) -> str:
    """``NVIDIA A100-SXM4-40GB → a100``: what one writes behind ``--gpu-type``; of a MIG instance its own type."""
    if instance := _MIG_TYPE.search(name):
        return instance[1]
    found = re.search(r"\b([A-Z]+)[ -]?([0-9]+[A-Za-z]*)", name)
    return "".join(letter for letter in ("".join(found.groups()) if found else name).lower() if letter.isalnum())


def _queues_of(document: dict[str, Any]) -> tuple[KnownQueue, ...]:
    default = document.get("default_queue", "")
    return tuple(
        KnownQueue(
            row["name"],
            f"{row['used']:g} of {row['fair_share']:g} GPUs used, {row['waiting_runs']} waiting"
            + (" (your default)" if row["name"] == default else ""),
        )
        for row in document.get("queues", ())
        if row["usable"]
    )


def _runs_of(document: dict[str, Any]) -> tuple[KnownRun, ...]:
    return tuple(_known(row) for row in document.get("runs", ()))


def _known(row: dict[str, Any]) -> KnownRun:
    from ..presentation.wording import run_word  # not while the extension is being loaded

    state, gpus, at_s = row["state"], row["gpus"], row["submitted_at"]
    is_recent = time.time() - at_s < _DAY_S
    title = row.get("title", "")
    is_call = title.startswith(f"{row['name']}(")
    what = title if is_call else row["name"] or title or row["notebook"].rpartition("/")[2]
    when = time.strftime("%H:%M" if is_recent else "%d %b", time.localtime(at_s))
    word = run_word(state, (row.get("cause") or {}).get("code", ""))
    about = " · ".join(filter(None, (what, word, f"{gpus} GPU{'' if gpus == 1 else 's'}", when)))
    is_over = any(each.word == state and each.is_terminal for each in RunState)
    return KnownRun(row["run"], state, about, is_over, state in (RunState.FAILED.word, RunState.LOST.word))
