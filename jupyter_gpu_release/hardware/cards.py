"""What NVML says of this machine's cards at one moment. None always means: the driver does not tell."""

from __future__ import annotations

import msgspec


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that holds memory on a card, under the id that the driver knows it by (maybe the host's)."""

    pid: int
    used_bytes: int | None
    #: share from 0 to 1 of the time in which it kept the card busy
    utilization: float | None = None
    #: MIG instance, where the card is divided
    instance: int | None = None


class Slice(msgspec.Struct, frozen=True):
    """A MIG instance."""

    index: int
    instance: int | None
    uuid: str
    memory_bytes: int
    used_bytes: int


class Card(msgspec.Struct, frozen=True):
    """One card. ``problem``: why its figures are missing (lost, reset needed); then it has no processes."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    utilization: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    slices: tuple[Slice, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    problem: str = ""
    #: it fell off the bus: nothing can run on it until the machine restarts
    lost: bool = False


class Reading(msgspec.Struct, frozen=True):
    """All cards. ``problem``: why there are none (no driver, driver reloaded); empty where all is well."""

    cards: tuple[Card, ...] = ()
    problem: str = ""
