"""Cells whose faults are rare, again and again: each ends as it should, also when an interrupt strikes it somewhere."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from node_bed import Node, Run, is_running
from soak import sized

pytestmark = [pytest.mark.soak, pytest.mark.timeout(sized(300, 7200)), pytest.mark.thorough]

_TIMER = """
import signal, time
signal.signal(signal.SIGALRM, lambda *_: print('.', end='', flush=True))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
until = time.monotonic() + 0.1
while time.monotonic() < until:
    print('x', end='', flush=True)
signal.setitimer(signal.ITIMER_REAL, 0)
"""
_REAPER = """
import signal, subprocess
signal.signal(signal.SIGCHLD, lambda *_: print('c', flush=True))
for child in [subprocess.Popen(['true']) for _ in range(8)]:
    child.wait()
large = bytearray(3 << 20)
"""
_THREADS = """
import threading
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    list(pool.map(print, range(50)))
"""
_SPEAKERS = """
import threading
def speak():
    while True:
        print('t')
threading.Thread(target=speak, daemon=True).start()
"""
_FORKS = """
import os
for _ in range(5):
    if not os.fork():
        print('child', flush=True)
        os._exit(0)
    os.wait()
"""
_POOL = """
import multiprocessing
with multiprocessing.get_context('fork').Pool(2) as pool:
    pool.map(abs, range(20))
"""
_LOADER = """
import torch
from torch.utils.data import DataLoader
for _ in DataLoader(torch.arange(32), batch_size=8, num_workers=2):
    pass
"""
_SUBPROCESSES = """
import asyncio
async def start():
    return await (await asyncio.create_subprocess_exec('true')).wait()
assert await asyncio.gather(*(start() for _ in range(5))) == [0] * 5
"""
_FINALIZERS = """
import weakref
class Noisy:
    def __init__(self): self.me = self
    def __del__(self): print('d', end='')
for _ in range(500):
    Noisy()
seen = weakref.finalize(Noisy(), print, 'w')
"""
_PUBLISHES = """
import jupyter_gpu_release as gpu_release
for step in range(50):
    gpu_release.publish(step=step, history=[step])
"""
_CELLS = {
    "timer": _TIMER,
    "reaper": _REAPER,
    "threads": _THREADS,
    "speakers": _SPEAKERS,
    "forks": _FORKS,
    "pool": _POOL,
    "loader": _LOADER,
    "subprocesses": _SUBPROCESSES,
    "finalizers": _FINALIZERS,
    "publishes": _PUBLISHES,
}
#: an interrupt may leave their workers with a lock of their own: then they end with the grace, as in a plain kernel
_OF_PROCESSES = {"pool", "loader"}


def _all(node: Node, source: str, rounds: int, after: object) -> list[Run]:
    def play(_number: int) -> Run:
        run = node.start(f"{source}\nvalue = 7", grace_s=5.0)
        if callable(after):
            after(run)
        run.wait(120)
        return run

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(play, range(rounds)))


@pytest.mark.parametrize("name", _CELLS)
def test_a_cell_ends_well_each_time(node: Node, name: str) -> None:
    for run in _all(node, _CELLS[name], sized(4, 400), None):
        assert run.outcome.status == "ok", (run.outcome.error, run.text("stderr"))
        assert "value" in [value.name for value in run.outcome.results]


@pytest.mark.parametrize("name", sorted(set(_CELLS) - _OF_PROCESSES))
def test_a_cell_that_is_interrupted_somewhere_is_interrupted_or_well(node: Node, name: str) -> None:
    def interrupt(run: Run) -> None:
        run.wait_for(is_running)
        time.sleep(random.random() * random.choice([0.01, 0.05, 0.2]))
        run.signal("interrupt")

    for run in _all(node, _CELLS[name], sized(4, 400), interrupt):
        assert run.outcome.status in ("ok", "interrupted"), (run.outcome.error, run.text("stderr"))
