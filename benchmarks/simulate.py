"""Waits in virtual time: our order against first in, first out on published traces; what notebook sessions hold."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from jupyter_gpu_release.local_cluster.preflight import read_queues
from jupyter_gpu_release.simulation.baselines import BASELINES
from jupyter_gpu_release.simulation.cluster import ClusterSpec, FreeGpus, NodeKind
from jupyter_gpu_release.simulation.configured import Configured
from jupyter_gpu_release.simulation.metrics import figures
from jupyter_gpu_release.simulation.replay import replay
from jupyter_gpu_release.simulation.trace import Job, by_age, read_trace

from .fairness import against
from .notebook_sessions import Session, generate, play, read_stats
from .report import Report

_TRACES = Path(__file__).parents[1] / "examples" / "traces"
#: metric, file, GPUs, GPUs from which on a job is a gang
_PLAYS = (("philly_400", "philly_2017_oct_2wk.csv", 400, 8), ("msitp04_600", "msitp_2021_cluster04.csv", 600, 16))
_QUICK_JOBS, _QUICK_SESSIONS = 3000, 10
#: sessions that share GPUs of which there are too few
_SHARING = 60
_MANY, _UTILIZATION = 100_000, 0.7


def run(*, quick: bool) -> Report:
    """Replay both traces, many synthetic jobs, and the notebook sessions."""
    report = Report("simulate")
    for name, file, gpus, gang in _PLAYS:
        _play(report, name, file, gpus, gang, quick=quick)
    _step_aside(report, *_PLAYS[0], quick=quick)
    _many(report, _QUICK_JOBS if quick else _MANY)
    _sessions(report, quick=quick)
    report.notes.append("ratios to fifo: jobs submitted in the second half, the whole trace replayed; one pool of GPUs")
    return report


def _play(report: Report, name: str, file: str, gpus: int, gang: int, *, quick: bool) -> None:
    jobs = read_trace(_TRACES / file).jobs
    jobs = jobs[:_QUICK_JOBS] if quick else jobs
    cluster = ClusterSpec((NodeKind(8, gpus // 8),))
    found = {policy: replay(jobs, cluster, make) for policy, make in BASELINES.items()}
    began_s = time.process_time()
    policies: list[Configured] = []

    def make_ours(free: FreeGpus) -> Configured:
        policies.append(Configured(free))
        return policies[0]

    ours = replay(jobs, cluster, make_ours)
    report.add(f"{name}_replay", [time.process_time() - began_s], "s")
    fairness = against(ours, found["fifo"], gang)
    report.add(f"{name}_vs_fifo", [fairness.mean], "×")
    report.add(f"{name}_longest_vs_fifo", [fairness.longest], "×")
    report.add(f"{name}_gangs_vs_fifo", [fairness.gangs], "×")
    report.add(f"{name}_p99_vs_fifo", [fairness.worst_p99], "×")
    # half of the last 1,000 runs took at most so many times what was expected of them at their start, or as much less
    report.add(f"{name}_estimate_off_by", [policies[0].run_times.median_factor()], "×")
    for policy, replayed in found.items():
        report.add(f"{name}_{policy}_mean_wait", [float(str(figures(replayed)["mean_wait_s"]))], "s")


def _step_aside(report: Report, name: str, file: str, gpus: int, gang: int, *, quick: bool) -> None:
    """Replay a trace with a queue for each virtual cluster, and half of the jobs restartable."""
    jobs = read_trace(_TRACES / file).jobs
    jobs = jobs[:_QUICK_JOBS] if quick else jobs
    cluster = ClusterSpec((NodeKind(8, gpus // 8),))
    make_ours = partial(Configured, file=read_queues(_TRACES / "philly_queues.yaml"), restartable=0.5)
    ours, fifo = replay(jobs, cluster, make_ours), replay(jobs, cluster, BASELINES["fifo"])
    report.add(f"{name}_restartable_vs_fifo", [against(ours, fifo, gang).mean], "×")
    report.add(f"{name}_restartable_work_lost", [100 * ours.work_lost()], "%")
    report.add(f"{name}_restartable_stepped_aside", [sum(len(of) - 1 for of in ours.attempts.values())], "")


def _many(report: Report, count: int) -> None:
    """Replay many jobs that use 70 % of 400 GPUs."""
    rng = random.Random(1)
    sizes = rng.choices((1, 2, 4, 8), (80, 8, 8, 4), k=count)
    rows = [(size, rng.lognormvariate(6, 1.5), f"user{rng.randrange(30)}") for size in sizes]
    work = sum(size * duration_s for size, duration_s, _ in rows)
    span_s = work / (400 * _UTILIZATION)
    jobs = by_age(Job(0, rng.uniform(0, span_s), duration_s, size, user) for size, duration_s, user in rows)
    began_s = time.process_time()
    replay(jobs, ClusterSpec((NodeKind(8, 50),)), Configured)
    report.add("jobs_100k_replay", [time.process_time() - began_s], "s")


def _sessions(report: Report, *, quick: bool) -> None:
    """Play sessions of one GPU on a quarter of a GPU each."""
    count = _QUICK_SESSIONS if quick else 341
    sessions = generate(read_stats(_TRACES / "adobe_nb_stats.json"), count, gpus=1)
    gpus = max(1, count // 4)
    ours, reserved = play(sessions, 0.0, gpus), play(sessions, float("inf"), gpus)
    _halves(report, sessions[:_SHARING])
    report.add("notebook_held_over_used", [ours.held_gpu_s / ours.used_gpu_s], "×")
    report.add("notebook_added_wait", [sum(ours.waits_s) / len(ours.waits_s)], "s")
    report.add("notebook_reserved_over_used", [reserved.held_gpu_s / reserved.used_gpu_s], "×")
    report.add("notebook_reserved_added_wait", [sum(reserved.waits_s) / len(reserved.waits_s)], "s")


def _halves(report: Report, sessions: Sequence[Session]) -> None:
    """Let every other session ask for half of a GPU, where an eighth of a GPU is there for each."""
    gpus = max(1, len(sessions) // 8)
    halves = [replace(session, gpus=0.5) if number % 2 else session for number, session in enumerate(sessions)]
    for name, some in (("halves_wait", halves), ("whole_gpus_wait", sessions)):
        waits_s = play(some, 0.0, gpus, Configured).waits_s
        report.add(name, [sum(waits_s) / len(waits_s)], "s")
