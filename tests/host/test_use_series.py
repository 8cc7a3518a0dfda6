"""Use over time: as long as a run may last, a series is of bounded length, and its means are those of all values."""

from __future__ import annotations

import random

from jupyter_gpu_release.host.use_series import UseSeries
from jupyter_gpu_release.protocol.node import GpuInfo


def test_a_series_is_bounded_and_its_means_are_true() -> None:
    choice = random.Random(7)
    series = UseSeries(1000.0, 0.5, most=60)
    seen: list[tuple[float, float]] = []
    for step in range(20_000):
        at_s, use = 1000.0 + 0.5 * step, choice.random()
        if 600 < step < 12_000:  # the driver said nothing
            continue
        seen.append((at_s, use))
        used = GpuInfo("0", utilization=use, used_bytes=int(use * (1 << 50)), memory_bytes=1 << 50)
        gpus = [used, GpuInfo("1", utilization=use)]
        series.add_gpus(at_s, gpus)
    assert 30 <= len(series.utilization) <= 60
    assert series.memory == series.utilization
    for place, percent in enumerate(series.utilization):
        begin = 1000.0 + place * series.span_s
        within = [use for at_s, use in seen if begin <= at_s < begin + series.span_s]
        assert percent == (round(100 * sum(within) / len(within)) if within else None)
    before = series.utilization
    for _ in range(1000):
        series.add_gpus(0.0, [GpuInfo("0", utilization=1.0)])  # a clock that was set back
    assert series.utilization[1:] == before[1:]
    short = UseSeries(0.0, 1.0, most=2)
    short.add_gpus(2.0, [GpuInfo("0", utilization=1.0)])
    assert (short.span_s, short.utilization) == (2.0, [None, 100])
