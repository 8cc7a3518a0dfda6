"""A node that is killed, with the agent and all ranks: how much a loop that is saved every second does again."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import psutil

from jupyter_gpu_release.local_cluster.processes import cluster_processes

from ..bed import Bed, Kernel
from ..report import Report
from .loop import MIB, Loop, until

_SIZE, _EVERY, _SAVES = 100 * MIB, "1s", 2
_AGENT = "ray::NodeAgent"


def add_rows(report: Report, cluster: Bed, notebook: Kernel, count: int) -> None:
    """Kill so many times, at random moments after the second save; the seconds of work that are lost are in ms."""
    moments, repeated, lost, back = random.Random(18), [], [], []
    for _ in range(count):
        with Loop(cluster, notebook, _SIZE, _EVERY) as loop:
            until(lambda loop=loop: len(_saves(loop)) >= _SAVES, "its saves")
            time.sleep(moments.uniform(0.0, 1.5))
            killed_s = _kill(cluster, loop)
            until(lambda loop=loop, killed_s=killed_s: loop.rounds()[-1][1] > killed_s, "a round after it went on")
            before = [each for each in loop.rounds() if each[1] <= killed_s]
            again, again_s, _ = loop.rounds()[len(before)]
            twice = [began_s for number, began_s, _ in before if number >= again]
            repeated.append(len(twice))
            lost.append((killed_s - twice[0]) * 1000 if twice else 0.0)
            back.append((again_s - killed_s) * 1000)
    report.add("killed_rounds_repeated", repeated, unit="")
    report.add("killed_work_lost", lost)
    report.add("killed_until_back", back)
    report.notes.append(f"killed_work_lost: at most {_EVERY} + one save + one round, in a loop that is saved so often")


def _saves(loop: Loop) -> list[str]:
    return [path.name for path in loop.folder.glob("save-*.graph")]


def _kill(cluster: Bed, loop: Loop) -> float:
    """SIGKILL the agent and everything below it, and the rank, which is below the fork server; returns when."""
    (agent,) = [
        process
        for process in map(psutil.Process, cluster_processes(cluster.connection()["cluster"]))
        if _AGENT in " ".join(process.cmdline())
    ]
    rank = psutil.Process(loop.rounds()[-1][2])
    victims = [agent, *agent.children(recursive=True), rank.parent() or rank, rank]
    for victim in dict.fromkeys(victims):
        with suppress(psutil.NoSuchProcess):  # it ends with one of them
            victim.kill()
    killed_s = time.time()
    psutil.wait_procs(victims, timeout=60)
    return killed_s
