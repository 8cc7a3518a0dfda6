"""Processes that a cell spawns find the cell's functions, classes and what these read."""

from __future__ import annotations

from multiprocessing import current_process
from multiprocessing.connection import Client

import pytest
from node_bed import Node

from jupyter_gpu_release.node.rank.spawned import _NameServer
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

_CELL = """
import multiprocessing, threading
import numpy as np
class Point:
    def __init__(self, x):
        self.x = x
base, large, unsendable = 0, np.full(3, 7), threading.Lock()
def begin(value):
    global base
    base = value
def move(point):
    return Point(point.x + base + int(np.sum(large)))
def stuck(_point):
    return unsendable.locked()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_of_spawned_processes_finds_the_cells_names(node: Node, method: str) -> None:
    run = node.run(
        f"{_CELL}with multiprocessing.get_context({method!r}).Pool(1, begin, (100,)) as pool:\n"
        "    moved = pool.map(move, [Point(1), Point(2)])\n"
        "    print([(type(point) is Point, point.x) for point in moved])\n"
        "    pool.map(stuck, moved)"
    )
    assert run.text() == "[(True, 122), (True, 123)]\n"
    assert run.outcome.error is not None
    assert run.outcome.error.ename == "CannotSendError"
    assert "`stuck` cannot be sent to a spawned process" in run.outcome.error.evalue
    assert "`unsendable`" in run.outcome.error.evalue


def test_a_question_that_fails_is_not_the_last_one_that_is_answered() -> None:
    asked = list[int]()

    def realm() -> NamespaceInfo:
        asked.append(1)
        if len(asked) == 1:
            raise MemoryError
        return NamespaceInfo({}, at_home=True)

    server = _NameServer(realm)
    server.preparation_data("worker")

    def ask() -> object:
        with Client(server._address, "AF_UNIX", authkey=current_process().authkey) as line:
            line.send(("name", []))
            return line.recv()

    with pytest.raises(EOFError):
        ask()
    assert ask() == ("none", None)
