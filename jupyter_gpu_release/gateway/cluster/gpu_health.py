"""Judges GPUs by what their nodes' agents read, and nodes by the runs that died there. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...protocol.node import GpuInfo
from ...units import format_bytes

#: readings in a row that say the same, before it is believed
_SURE_LOOKS = 2
#: what a driver keeps of an idle GPU is less
_FOREIGN_BYTES = 1 << 30


class GpuHealth:
    """Believes what two readings in a row say, that a GPU is ill and that it is well again.

    The first reading of a GPU is believed at once where its driver says that it is ill: nobody has known it well.
    """

    def __init__(self, *, minds_memory: bool) -> None:
        """``minds_memory``: memory that others hold on a GPU takes it out, too."""
        self._minds_memory = minds_memory
        #: (node, index) → how many readings differed from what is believed
        self._differing: dict[tuple[str, str], int] = {}
        self._seen: set[tuple[str, str]] = set()

    def judge(
        self, node: str, host: str, gpus: Iterable[GpuInfo], leased: Collection[str], believed: dict[str, str]
    ) -> dict[str, str]:
        """List the GPUs of a node that get no runs, by index, and why; ``believed``: what this said the last time.

        A GPU of which there is no reading is believed to be as before: a driver that says nothing heals none.
        """
        readings = [gpu for gpu in gpus if gpu.trouble or not gpu.is_unread]
        read = {gpu.index for gpu in readings}
        judged = {index: why for index, why in believed.items() if index not in read}
        for gpu in readings:
            reason, before = self._reason(gpu, leased), believed.get(gpu.index, "")
            is_new = (node, gpu.index) not in self._seen
            self._seen.add((node, gpu.index))
            differs = bool(reason) != bool(before) and not (is_new and gpu.trouble)
            if self._is_believed((node, gpu.index), differs=differs):
                before = f"GPU {gpu.index} of {host} is set aside: {reason}" if reason else ""
            if before:
                judged[gpu.index] = before
        return judged

    def forget_node(self, node: str) -> None:
        """Forget a node that is gone: another one on its host has another id."""
        self._seen = {gpu for gpu in self._seen if gpu[0] != node}
        self._differing = {gpu: count for gpu, count in self._differing.items() if gpu[0] != node}

    def _is_believed(self, gpu: tuple[str, str], *, differs: bool) -> bool:
        """Count a reading; one that says what is believed anyway is believed at once."""
        count = self._differing.pop(gpu, 0) + 1
        if differs and count < _SURE_LOOKS:
            self._differing[gpu] = count
            return False
        return True

    def _reason(self, gpu: GpuInfo, leased: Collection[str]) -> str:
        if gpu.trouble or not self._minds_memory or gpu.index in leased or gpu.used_bytes < _FOREIGN_BYTES:
            return gpu.trouble
        return f"others than its runs hold {format_bytes(gpu.used_bytes)} of its memory"


#: runs of so many users, within so long
_USERS, _WITHIN_S = 3, 3600.0


class NodeDeaths:
    """Runs that died of the infrastructure, by host."""

    def __init__(self) -> None:
        self._died: dict[str, dict[str, float]] = {}

    def note(self, host: str, user: str, now_s: float) -> str:
        """Count one that died then; returns why the host is to get no more runs, in words, once there were too many."""
        users = self._died.setdefault(host, {})
        users[user] = max(now_s, users.get(user, now_s))
        last_s = max(users.values())
        recent = sorted(name for name, died_s in users.items() if last_s - died_s < _WITHIN_S)
        if len(recent) < _USERS:
            return ""
        del self._died[host]
        return f"runs of {', '.join(recent[:-1])} and {recent[-1]} died there within an hour, and not by their code"
