"""``Slurm``: its commands, called. Only flags that Slurm 20.11 to 25 have."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import ClusterError, OptionError
from ..protocol.config import SlurmPool
from .environment import for_cluster
from .slurm_answers import SINFO_FORMAT, SQUEUE_FORMAT, SlurmJob, read_drained, read_gpus, read_id, read_queue

#: a busy controller answers within a minute or not at all
_ANSWER_S = 40.0
#: options of ``sbatch`` that are ours, as jobs would be lost with others
_LONG = (
    "array",
    "nodes",
    "ntasks",
    "job-name",
    "output",
    "error",
    "wrap",
    "parsable",
    "time",
    "export",
    "clusters",
    "cluster-constraint",
    "quiet",
    "wait",
    "test-only",
    "requeue",
    "no-requeue",
    "comment",
)
#: variables that mean nothing on another host
_OF_THIS_HOST = ("HOSTNAME", "TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR")
_SHORT = re.compile(r"-[aNnJoeWtMQ]")


_MEND = "does `sinfo` answer? See `jupyter gpu docs operate/slurm`"
#: by command
_MENDS = {"sbatch": "change what the file of --slurm asks for, as Slurm says; if it does not answer: `sinfo`"}
#: of a node in Ray: its job
JOB_LABEL = "slurm-job"
#: each job's first process runs it, with the home and the cluster
JOB_MODULE = "jupyter_gpu_release.local_cluster.slurm_worker"


class Slurm:
    """Slurm as this user sees it. Calls block; each raises :class:`ClusterError` with Slurm's own words."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        #: without a job's own variables: this machine may be a node of one
        plain = for_cluster(environment)
        for name in ("CUDA_VISIBLE_DEVICES", "JUPYTER_GPU_CLUSTER"):
            plain.pop(name, None)
        self._environment = {**plain, "LC_ALL": "C"}
        #: jobs have it, and so cells on their nodes
        self._for_jobs = {name: value for name, value in plain.items() if name not in _OF_THIS_HOST}

    def submit(self, pool: SlurmPool, name: str, script: str, log: Path) -> str:
        """Submit one job of a pool; returns its id."""
        return read_id(self._call(["sbatch", "--parsable", *job_options(pool, name, log)], script, self._for_jobs))

    def check(self, pool: SlurmPool, name: str, log: Path) -> None:
        """Have Slurm say now whether it would take such a job; nothing is submitted."""
        self._call(["sbatch", "--test-only", *job_options(pool, name, log)], "#!/bin/sh\n")

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs; what is over already is fine."""
        if jobs:
            self._call(["scancel", "--quiet", *jobs])

    def jobs(self, name: str) -> list[SlurmJob]:
        """This user's jobs of that name which are not over."""
        mine = [f"--name={name}", f"--user={os.geteuid()}"]
        return read_queue(self._call(["squeue", "--noheader", f"--format={SQUEUE_FORMAT}", *mine]))

    def with_drained(self, jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
        """The same jobs; those whose node is drained know why."""
        nodes = ",".join(sorted({job.node for job in jobs if job.is_there and job.node}))
        asked = ["sinfo", "--noheader", "--Node", f"--nodes={nodes}", f"--format={SINFO_FORMAT}"]
        drained = read_drained(self._call(asked)) if nodes else {}
        return [replace(job, drained=drained.get(job.node, "")) for job in jobs]

    def gpus_of(self, job: str) -> list[str]:
        """The numbers of a job's GPUs on its one node."""
        return read_gpus(self._call(["scontrol", "show", "job", "-d", job]))

    def _call(self, command: Sequence[str], text: str = "", environment: Mapping[str, str] | None = None) -> str:
        name = command[0]
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ANSWER_S,
                env=environment or self._environment,
                cwd="/",
            )
        except FileNotFoundError as error:
            raise ClusterError(
                f"Slurm's command {name} is not on this machine",
                hint="start the cluster on a login node; `module load slurm` where it is a module",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"{name} has not answered for {_ANSWER_S:.0f} s", hint="is slurmctld up? `sinfo`"
            ) from error
        if done.returncode:
            raise ClusterError(f"{name}: {_words(done.stderr, name)}", hint=_MENDS.get(name, _MEND))
        return done.stdout


def _words(text: str, name: str) -> str:
    """Slurm's own words in one line, without its marks."""
    lines = [re.sub(rf"^{name}: (error: )?", "", line).strip() for line in text.splitlines()]
    return "; ".join(dict.fromkeys(filter(None, lines)))[:400] or "it failed without a word"


def job_options(pool: SlurmPool, name: str, log: Path) -> list[str]:
    """Options of ``sbatch`` for one node of a pool."""
    gres = pool.gres or (f"gpu:{pool.gpus_per_node}" if pool.gpus_per_node and not pool.simulated_gpus else "")
    named = {"partition": pool.partition, "account": pool.account, "qos": pool.qos, "mem": pool.memory, "gres": gres}
    return [
        f"--job-name={name}",
        f"--comment=jupyter_gpu_release pool {name}",
        "--nodes=1",
        "--ntasks=1",
        "--no-requeue",
        "--propagate=NONE",  # a login node's limits, as on CPU time, are not meant for what computes
        f"--cpus-per-task={pool.cpus_per_node}",
        f"--time={math.ceil(pool.walltime_s / 60)}",
        f"--output={log}",
        *[f"--{option}={value}" for option, value in named.items() if value],
        *pool.sbatch,
    ]


def job_name(cluster: str) -> str:
    """The name of a pool's jobs: by it they are found again, whoever has submitted them."""
    return f"jupyter-gpu-{cluster[:8]}"


def log_path(home: Path, job: str) -> Path:
    """The log of one node; ``%j`` for a job that has no id yet."""
    return home / "log" / f"slurm-{job}.log"


def job_script(home: Path, cluster: str) -> str:
    """The script of one node: all that it needs to know lies in the cluster's home, which it sees, too."""
    python, folder = shlex.quote(sys.executable), shlex.quote(str(home))
    return f"#!/bin/sh\nexec {python} -m {JOB_MODULE} {folder} {shlex.quote(cluster)}\n"


def _is_ours(option: str) -> bool:
    """Also an option that is shortened, as ``sbatch`` allows."""
    name = option.partition("=")[0][2:] if option.startswith("--") else ""
    if not name:
        return _SHORT.match(option) is not None
    return any(long.startswith(name) for long in _LONG)


def check_pool(pool: SlurmPool, where: str) -> None:
    """Raise :class:`OptionError` for what cannot be."""
    if pool.min_nodes > pool.max_nodes:
        raise OptionError(f"{where}: min_nodes {pool.min_nodes} is above max_nodes {pool.max_nodes}", hint="lower it")
    for option in pool.sbatch:
        if _is_ours(option):
            raise OptionError(f"{where}: sbatch: {option} is set by the pool itself", hint="take it out")
    try:
        walltime_s, head_grace_s, _ = pool.walltime_s, pool.head_grace_s, pool.idle_return_s
    except OptionError as error:
        raise OptionError(f"{where}: {error.message}", hint=error.hint) from error
    if walltime_s < 5 * 60:
        raise OptionError(f"{where}: walltime {pool.walltime} is below 5 minutes", hint="write it like 8h")
    if head_grace_s < 60:
        raise OptionError(f"{where}: head_grace {pool.head_grace} is below 1 minute", hint="write it like 30m")
