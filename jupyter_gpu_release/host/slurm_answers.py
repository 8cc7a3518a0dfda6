"""Slurm's answers, read: the plain formats of ``squeue`` and ``sinfo``, and ``scontrol show job``.

Slurm 20.11 to 25 write them so.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..errors import ClusterError

#: id, state, time left, expected start, node, reason (last: it may hold anything)
SQUEUE_FORMAT = "%i|%T|%L|%S|%N|%r"
#: node, state, reason
SINFO_FORMAT = "%N|%T|%E"
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_THERE = ("RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING")
_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_INDICES = re.compile(r"GRES=gpu\S*?\(IDX:([0-9,-]+)\)")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job. ``starts``: when Slurm expects it to start, as it writes it; empty: it does not say."""

    job: str
    state: str
    left_s: float = math.inf
    starts: str = ""
    reason: str = ""
    #: the host that it is on, as Slurm calls it
    node: str = ""
    #: why its node is drained, in the admin's words
    drained: str = ""

    @property
    def is_waiting(self) -> bool:
        """Tell if it has no node yet."""
        return self.state in _WAITING

    @property
    def is_there(self) -> bool:
        """Tell if it has a node, and keeps it."""
        return self.state in _THERE

    @property
    def words(self) -> str:
        """Its state for a person."""
        if not self.is_waiting:
            return f"Slurm job {self.job}, its node starts"
        reason = f" ({self.reason})" if self.reason not in ("", "None") else ""
        expected = f", expected {self.starts[11:16]} by Slurm" if self.starts else ""
        return f"Slurm job {self.job}, pending{reason}{expected}"


def read_id(text: str) -> str:
    """The job's id, from ``sbatch --parsable``: others may write further lines."""
    found = re.findall(r"^(\d+)(?:;\S*)?$", text, re.MULTILINE)
    if not found:
        words = " ".join(text.split())[:200] or "it said nothing"
        raise ClusterError(f"sbatch named no job: {words}", hint="is sbatch a command of your site's own here?")
    return str(found[-1])


def read_queue(text: str) -> list[SlurmJob]:
    """Jobs in the order of their ids, from ``squeue --noheader --format=SQUEUE_FORMAT``."""
    rows = [[part.strip() for part in line.split("|", 5)] for line in text.splitlines() if line.count("|") >= 5]
    jobs = [
        SlurmJob(job, state, read_left(left), _start(start), reason, node)
        for job, state, left, start, node, reason in rows
    ]
    return sorted(jobs, key=lambda job: int(re.sub(r"\D.*", "", job.job) or 0))


def read_drained(text: str) -> dict[str, str]:
    """Nodes that are drained, or will be once their jobs have ended, and why: from ``sinfo --format=SINFO_FORMAT``."""
    rows = [[part.strip() for part in line.split("|", 2)] for line in text.splitlines() if line.count("|") >= 2]
    return {node: reason or "none" for node, state, reason in rows if state.startswith("drain")}


def _start(text: str) -> str:
    return text if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text) else ""


def read_left(text: str) -> float:
    """``1-02:03:04``, ``3:04``; ``INVALID`` is written of a job that is over its limit and still runs; what is no time
    (``UNLIMITED``, ``NOT_SET``) is no end.
    """
    found = _LEFT.fullmatch(text.strip())
    if found is None:
        return 0.0 if text.strip() == "INVALID" else math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def read_gpus(text: str) -> list[str]:
    """The numbers of a job's GPUs on its one node, from ``scontrol show job -d``."""
    found = _INDICES.search(text)
    return [str(number) for part in found[1].split(",") for number in _span(part)] if found else []


def _span(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)
