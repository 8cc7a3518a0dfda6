"""The cluster that a trace is played on: its description in YAML, and its GPUs as the replay counts them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import OptionError
from ..settings.setting import read_text
from ..settings.yaml_document import YamlDocument

_HINT = "write it like `nodes: [{count: 50, gpus: 8, gpu_type: v100, cpus: 64}]`"


class NodeKind(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Nodes that are alike."""

    gpus: int
    count: int = 1
    gpu_type: str = ""
    cpus: int = 0


class ClusterSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The content of ``--cluster FILE``."""

    nodes: tuple[NodeKind, ...]

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return sum(kind.count * kind.gpus for kind in self.nodes)

    def fitting(self, gpu_type: str) -> int:
        """GPUs of this type (empty: of any)."""
        return sum(kind.count * kind.gpus for kind in self.nodes if is_of_type(gpu_type, kind.gpu_type))


def is_of_type(asked: str, offered: str) -> bool:
    """Tell if GPUs that are called ``offered`` are what was asked for."""
    return not asked or asked.casefold() in offered.casefold()


def read_cluster(path: Path) -> ClusterSpec:
    """Read ``--cluster FILE``; raises :class:`OptionError` that names the place."""
    where = f"--cluster {path}"
    spec = YamlDocument(read_text(path, "--cluster", _HINT), where, _HINT).convert(ClusterSpec)
    if any(kind.gpus < 0 or kind.count < 0 for kind in spec.nodes) or not spec.gpus:
        raise OptionError(f"{where}: it has no GPUs, or less than none", hint=_HINT)
    return spec


@dataclass
class _Pool:
    gpu_type: str
    free: float


class FreeGpus:
    """GPUs that are free, by type. Jobs are gangs that may lie on any nodes, so only counts matter."""

    def __init__(self, cluster: ClusterSpec) -> None:
        totals: dict[str, int] = {}
        for kind in cluster.nodes:
            totals[kind.gpu_type] = totals.get(kind.gpu_type, 0) + kind.count * kind.gpus
        self._pools = [_Pool(gpu_type, gpus) for gpu_type, gpus in totals.items()]
        self._given: dict[int, list[tuple[_Pool, float]]] = {}
        self._fitting: dict[str, list[_Pool]] = {}
        #: of all types
        self.total: float = sum(totals.values())

    def pools(self) -> list[tuple[str, float]]:
        """Types, and free GPUs of each."""
        return [(pool.gpu_type, pool.free) for pool in self._pools]

    def count(self, gpu_type: str) -> float:
        """Free GPUs of a type (empty: of any)."""
        return sum(pool.free for pool in self._suiting(gpu_type))

    def _suiting(self, gpu_type: str) -> list[_Pool]:
        if gpu_type not in self._fitting:
            self._fitting[gpu_type] = [pool for pool in self._pools if is_of_type(gpu_type, pool.gpu_type)]
        return self._fitting[gpu_type]

    def take(self, job: int, gpus: float, gpu_type: str) -> bool:
        """Give a job its GPUs, where most are free; False (and nothing taken) when there are too few."""
        pools = self._suiting(gpu_type)
        if gpus > sum(pool.free for pool in pools):
            return False
        given, left = [], gpus
        for pool in sorted(pools, key=lambda pool: -pool.free) if len(pools) > 1 else pools:
            part = min(left, pool.free)
            pool.free = round(pool.free - part, 3)
            left -= part
            given.append((pool, part))
        self._given[job] = given
        self.total = round(self.total - gpus, 3)
        return True

    def give_back(self, job: int) -> None:
        """Free a job's GPUs."""
        for pool, gpus in self._given.pop(job):
            pool.free = round(pool.free + gpus, 3)
            self.total = round(self.total + gpus, 3)

    def held(self, job: int, gpu_type: str) -> float:
        """GPUs of this type that a job has."""
        suiting = self._suiting(gpu_type)
        return sum(gpus for pool, gpus in self._given[job] if pool in suiting)
