"""Memory that a run uses of its part of a GPU, by its own processes, and what is to be done about too much of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ...settings.built_in import BUILT_IN
from ...units import format_bytes

OVER_S: float = BUILT_IN["part_over_s"].default
#: libraries have their part less this, and what CUDA takes besides differs by GPU and libraries
_CONTEXT_BYTES: int = BUILT_IN["cuda_context_bytes"].default
#: memory that is not a process's: the context alone of one takes several times this
NOISE_BYTES = 64 << 20
#: words of :meth:`PartUse.look`
WARN, INTERRUPT = "warn", "interrupt"


class PartUse:
    """``limit_bytes``: memory of the part (0: not known); ``processes``: those of the run that live."""

    def __init__(self, limit_bytes: int, processes: Callable[[], Collection[int]]) -> None:
        self._limit_bytes = limit_bytes
        self._processes = processes
        self.used_bytes = self.peak_bytes = 0
        #: processes of the run that were seen on the GPU
        self._seen: set[int] = set()
        #: for how long it was over its part, less the time since: who frees some for a moment is no better
        self._over_s, self._looked_s = 0.0, 0.0
        self._is_warned = self._is_told = self._is_hidden = False

    def look(self, by_pid: Mapping[int, int], now_s: float, grown_bytes: int = 0) -> str:
        """Take what each process uses of the GPU; says ``warn``, then ``interrupt``, once each when it is too much.

        ``grown_bytes``: by which all of the GPU holds more than when the run began.
        """
        living = self._processes() if by_pid else ()
        own = by_pid.keys() & set(living)
        self._seen |= own
        is_used = bool(by_pid) or grown_bytes > NOISE_BYTES
        self._is_hidden |= is_used and not own and not any(Path(f"/proc/{pid}").exists() for pid in by_pid)
        self.used_bytes = sum(by_pid[pid] for pid in own)
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        since_s, self._looked_s = now_s - self._looked_s, now_s
        if not self._limit_bytes or self.used_bytes <= self._limit_bytes + _CONTEXT_BYTES:
            self._over_s = max(0.0, self._over_s - since_s)
            return ""
        if not self._is_warned:
            self._is_warned = True
            return WARN
        self._over_s += since_s
        if self._over_s < OVER_S or self._is_told:
            return ""
        self._is_told = True
        return INTERRUPT

    def left_bytes(self, by_pid: Mapping[int, int]) -> int:
        """Memory that processes of the run still hold after their end."""
        return sum(by_pid.get(pid, 0) for pid in self._seen)

    def warning(self) -> str:
        """A line for the cell."""
        used, part = format_bytes(self.peak_bytes), format_bytes(self._limit_bytes)
        return f"the cell uses {used} of the GPU, and its part has {part}: it is interrupted in {OVER_S:g} s"

    def notes(self) -> list[str]:
        """Sentences for the receipt."""
        part = format_bytes(self._limit_bytes)
        if self._is_told:
            used = format_bytes(self.peak_bytes)
            return [
                f"interrupted: it used {used} of the GPU for {OVER_S:g} s, and its part has {part}: --gpus 1 has all"
            ]
        hidden = "the memory of its part is not enforced: the driver does not name the processes of this container"
        return [hidden] if self._is_hidden else []
