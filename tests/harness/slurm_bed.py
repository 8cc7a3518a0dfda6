"""A real Slurm of two nodes on this machine, with munge, ports and files of its own: ``SlurmBed``.

It needs root, and Debian's ``slurmctld``, ``slurmd``, ``slurm-client`` and ``munge``. GPUs are plain files, or device
files without a driver where cgroups confine jobs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ports import free_port

NODES, GPUS = ("n1", "n2"), 2
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
_CONF = """ClusterName=bed
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={ctld}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/ctld.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
ProctrackType={proctrack}
TaskPlugin={task}
SelectType=select/cons_tres
SelectTypeParameters={consumable}
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=5
EnforcePartLimits=ANY
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs={cpus} RealMemory=4000 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs={cpus} RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=1-0 State=UP
PartitionName=short Nodes=n[1-2] MaxTime=10 State=UP
PartitionName=theirs Nodes=n[1-2] AllowAccounts=others State=UP
PartitionName=urgent Nodes=n[1-2] PriorityTier=10 State=UP
"""
#: as sites have it that confine jobs; the version of cgroups that this kernel has
_CGROUPS = """CgroupAutomount=no
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=yes
ConstrainRAMSpace=yes
ConstrainDevices=yes
"""
_UNCONFINED = {"proctrack": "proctrack/linuxproc", "task": "task/none", "consumable": "CR_Core", "cpus": 4}
_CONTROLLERS = [Path("/sys/fs/cgroup") / name for name in ("memory", "cpuset", "devices", "freezer")]
#: of NVIDIA's devices: nothing but a driver answers there
_MAJOR = 195


def has_cgroups() -> bool:
    """Tell if this machine has the controllers that Slurm confines jobs with, writable."""
    return all(os.access(folder / "cgroup.procs", os.W_OK) for folder in _CONTROLLERS)


def wait_until(is_so: Callable[[], object], what: str, limit_s: float = 240.0) -> None:
    """Wait for a condition, with a limit."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what} has not come about within {limit_s:g} s"
        time.sleep(0.1)


class SlurmBed:
    """The daemons; ``stop`` ends them. ``conf`` is what ``SLURM_CONF`` names; ``python``: see :meth:`_start_node`.

    ``confines``: jobs are in cgroups, as ``task/cgroup`` makes them.
    """

    def __init__(self, python: str = sys.executable, *, confines: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="jgr-slurm-"))
        self.conf = self.folder / "slurm.conf"
        self._environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._write(confines=confines)
        try:
            self._start_munge()
            self.start_controller()
            wait_until(lambda: self.ask("sinfo", "-h"), "the controller", 60)  # a slurmd before it would wait a minute
            for node in NODES:
                self._start_node(node, python)
            # a node that is not heard at once asks again after a minute
            wait_until(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") == "2\n", "two idle nodes")
        except BaseException:
            self.stop()
            raise

    def _write(self, *, confines: bool) -> None:
        ports = {name: free_port() for name in ("ctld", *NODES)}
        host = socket.gethostname().partition(".")[0]
        how = _UNCONFINED
        if confines:
            task = "task/affinity,task/cgroup"
            own = len(os.sched_getaffinity(0))
            how = {"proctrack": "proctrack/cgroup", "task": task, "consumable": "CR_Core_Memory", "cpus": own}
            self.conf.with_name("cgroup.conf").write_text(_CGROUPS)
        self.conf.write_text(_CONF.format(folder=self.folder, host=host, **ports, **how))
        for number in range(2 * GPUS):
            file = self.folder / f"gpu{number}"
            if confines:
                os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(_MAJOR, number))
            else:
                file.touch()
        self.conf.with_name("gres.conf").write_text(
            f"NodeName=n1 Name=gpu File={self.folder}/gpu[0-1]\nNodeName=n2 Name=gpu File={self.folder}/gpu[2-3]\n"
        )
        (self.folder / "state").mkdir()
        (self.folder / "munge").mkdir()
        self.folder.chmod(0o755)  # munged looks at the folders above its socket
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(256))
        key.chmod(0o400)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        files = [f"--{name}={folder}/{name.partition('-')[0]}" for name in ("key-file", "socket", "pid-file")]
        more = [f"--log-file={folder}/log", f"--seed-file={folder}/seed"]
        self._start("munged", "munged", "--force", "-F", *files, *more)
        wait_until((folder / "socket").exists, "munge's socket", 30)

    def _start_node(self, node: str, python: str) -> None:
        """Where this Python's mounts are: with that of ``unix_users.python_for_all`` other users' jobs can run it."""
        become = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"
        self._start(node, python, "-c", become, "slurmd", "-N", node, "-D", "-f", str(self.conf))

    def start_controller(self) -> None:
        """Start ``slurmctld``, or start it again; it goes on from what it has saved."""
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.conf))

    def stop_controller(self) -> None:
        """End ``slurmctld`` alone."""
        self._end(self._daemons.pop("slurmctld"))

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(command, env=self._environment, stdout=out, stderr=out, cwd="/")

    def ask(self, *command: str) -> str:
        """Ask a command of Slurm's; empty when it fails."""
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout if done.returncode == 0 else ""

    def jobs(self) -> list[str]:
        """Jobs that are not over, as ``id state``. What Slurm still tidies away (COMPLETING) is over."""
        told = self.ask("squeue", "-h", "-o", "%i %T").splitlines()
        return [job for job in told if not job.endswith("COMPLETING")]

    def stop(self) -> None:
        """End all jobs and daemons."""
        if self.ask("sinfo", "-h"):
            left = [job.split()[0] for job in self.jobs()]
            self.ask("scancel", "--state=RUNNING", "--full", *left)
            self.ask("scancel", *left)
            wait_until(lambda: not self.ask("squeue", "-h"), "the end of all jobs", 60)
        for name in reversed(list(self._daemons)):
            self._end(self._daemons.pop(name))
        for folder in (top / f"slurm_{node}" for top in _CONTROLLERS for node in NODES):
            _remove_cgroup(folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _end(daemon: subprocess.Popen[bytes]) -> None:
        daemon.terminate()
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _remove_cgroup(folder: Path) -> None:
    """Remove the empty groups that slurmd leaves."""
    for each in sorted(folder.rglob("*/"), reverse=True):
        each.rmdir()
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()
