"""One small trip of values inside the fork server, so that no rank is the first to import or touch anything.

Runs nothing that starts OpenMP, autograd or a thread: it only moves bytes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pickle
import types
from collections.abc import Sequence

from ...adapters.adapter import Adapter
from ...adapters.registry import loaded_adapters
from ...protocol.cell import CellPayload
from ...protocol.runs import Outcome
from ...protocol.wire import decode, encode
from ...serialization import codec
from ...serialization.process_state import library_settings, random_states
from ...serialization.rebuild import NamespaceInfo
from ..ipc.frames import Command, Go, RankOrder
from ..supervisor.written_files import WrittenPaths
from ..values.namespace import RankValues

_SOURCE = """
import collections
count = 0
def step(x, y=1):
    global count
    count += 1
    return x
class Thing:
    total = 0
    def run(self):
        return step(self)
thing = Thing()
history = [1.0]
device = "cpu"
"""


def warm_up() -> None:
    """Send, load, change, collect and throw away values of the kinds that are usual here."""
    for name in ("restartable_cell", "gang_save"):  # else each such cell would, on its GPU
        importlib.import_module(f".resuming.{name}", __package__)
    with contextlib.suppress(Exception):  # a library in an odd state must not keep the fork server from starting
        _speak()
        _travel()


def _speak() -> None:
    """Messages of each kind: their decoders are built once, here."""
    order = RankOrder(run="", payload=encode(CellPayload(source="")), folder="")
    others = (Go([]), WrittenPaths([], 0.0, b"", b""), Outcome(status="ok"), Command("interrupt"), 0, 0.0)
    for message in (order, CellPayload(source=""), *others):
        decode(encode(message), type(message))


def _travel() -> None:
    stream, buffers = _sent(tuple(loaded_adapters()))
    payload = CellPayload(source="", ambient=_notebooks_state(), reevaluate={"device": "str('cpu')"})
    space = types.ModuleType("__main__").__dict__
    values = RankValues(space, payload, stream, buffers, has_gpu=False)
    values.load()
    space["result"] = space.get("tensor")
    space["history"].append(2.0)
    space["lock_free"] = {"a": 1}
    values.collect()


@functools.cache
def _sent(adapters: Sequence[Adapter]) -> tuple[bytes, list[bytes]]:
    """A notebook's graph. Ranks find it as the fork server has made it: what they make, they throw away."""
    home = types.ModuleType("__main__").__dict__
    exec(compile(_SOURCE, "<warmup>", "exec"), home)
    for adapter in adapters:
        home |= adapter.samples()
    names = [name for name in home if not name.startswith("__")]
    dump = codec.dump({name: home[name] for name in names}, NamespaceInfo(home, at_home=True))
    return dump.stream, [bytes(buffer) for buffer in dump.buffers]


@functools.cache
def _notebooks_state() -> bytes:
    """State of a notebook, made once, in the fork server: a rank that looked at all settings touches 1,000 pages."""
    return pickle.dumps(
        {"rng": random_states.capture_rng(), "settings": library_settings.capture_settings()}, protocol=5
    )
