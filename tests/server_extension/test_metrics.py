"""Figures on ``/metrics``: each by its name and its labels, and none of what is not known."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from jupyter_gpu_release.host.gpus import Gpu, GpuProcess
from jupyter_gpu_release.protocol.rest import GatewayFacts, GpuCounts, RunRow, StatusDocument
from jupyter_gpu_release.server_extension.metrics import GpuMetrics
from jupyter_gpu_release.server_extension.monitoring.attribution import GpuHolding, Owner
from jupyter_gpu_release.server_extension.monitoring.sampling import Sample


def _figures(metrics: GpuMetrics) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(metrics)
    return {
        f"{each.name.removeprefix('jupyter_gpu_')} {' '.join(each.labels.values())}".strip(): each.value
        for family in registry.collect()
        for each in family.samples
    }


def test_the_cluster_in_figures() -> None:
    metrics = GpuMetrics()
    assert _figures(metrics) == {"gateway_up": 0, "queue_length": 0}
    waiting = [RunRow("r1", "ann", "queued")]
    counts = GpuCounts(total=10, held=4, free=3, external=2, warm=1)
    metrics.status = StatusDocument(1, True, GatewayFacts("u", "0"), counts, [], waiting, [], queue_total=7)
    assert _figures(metrics) == {
        "gateway_up": 1,
        "queue_length": 7,
        "cluster_gpus held": 4,
        "cluster_gpus free": 3,
        "cluster_gpus external": 2,
        "cluster_gpus warm": 1,
    }


def test_the_gpus_of_this_machine_in_figures() -> None:
    well = Gpu(0, memory_bytes=80, used_bytes=30, utilization=0.5, temperature_c=60.0, power_w=300.0)
    mute, lost = Gpu(1, memory_bytes=40, used_bytes=0), Gpu(2, memory_bytes=80, problem="fell off the bus")
    held = [
        GpuHolding(0, "", GpuProcess(1, 10), Owner.KERNEL, "k"),
        GpuHolding(0, "", GpuProcess(2, 5), Owner.KERNEL, "l"),
        GpuHolding(0, "", GpuProcess(3, None), Owner.CLUSTER),
    ]
    metrics = GpuMetrics()
    metrics.sample = Sample(1.0, (well, mute, lost), held=tuple(held))
    assert _figures(metrics) == {
        "gateway_up": 0,
        "queue_length": 0,
        "memory_bytes 0 total": 80,
        "memory_bytes 0 used": 30,
        "utilization_ratio 0": 0.5,
        "temperature_celsius 0": 60,
        "power_watts 0": 300,
        "problem 0": 0,
        "memory_bytes 1 total": 40,
        "memory_bytes 1 used": 0,
        "problem 1": 0,
        "problem 2": 1,
        "held_bytes kernel": 15,
        "held_bytes cluster": 0,
    }
