"""Processes that a cell spawns find the cell's functions, classes and what these read."""

from __future__ import annotations

import os
import socket
import threading
from multiprocessing import current_process
from multiprocessing.connection import Client

import pytest
from node_bed import Node
from unix_users import ANN, as_user, needs_root

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


@needs_root
@pytest.mark.timeout(30)
def test_another_user_who_is_silent_keeps_nobody_from_an_answer() -> None:
    server = _NameServer(lambda: NamespaceInfo({}, at_home=True))
    server.preparation_data("worker")
    said, says = os.pipe()

    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(server._address)
            os.write(says, b"!")
            while line.recv(4096):  # silent until it is turned away
                pass

    stranger = threading.Thread(target=as_user, args=(ANN, connect))
    stranger.start()
    assert os.read(said, 1) == b"!"
    assert _ask(server) == ("none", None)
    stranger.join()


def _ask(server: _NameServer) -> object:
    with Client(server._address, "AF_UNIX", authkey=current_process().authkey) as line:
        line.send(("name", []))
        return line.recv()


def test_a_question_that_fails_is_not_the_last_one_that_is_answered() -> None:
    asked = list[int]()

    def realm() -> NamespaceInfo:
        asked.append(1)
        if len(asked) == 1:
            raise MemoryError
        return NamespaceInfo({}, at_home=True)

    server = _NameServer(realm)
    server.preparation_data("worker")

    with pytest.raises(EOFError):
        _ask(server)
    assert _ask(server) == ("none", None)
