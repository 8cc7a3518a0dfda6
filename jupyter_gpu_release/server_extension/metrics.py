"""Figures on Jupyter's ``/metrics`` (the default registry of prometheus_client), all named ``jupyter_gpu_…``.

What is counted is counted as it happens; what is merely shown is worked out when somebody scrapes.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..host.gpus import Gpu
from ..protocol.rest import StatusDocument
from .monitoring.attribution import Owner
from .monitoring.sampling import Sample

GATEWAY_LATENCY = Histogram(
    "jupyter_gpu_gateway_latency_seconds",
    "Time of an answer of the gateway",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
HOLDERS = Gauge("jupyter_gpu_kernels_holding", "Kernels of this server that hold device memory", ["state"])
SECONDS = Counter(
    "jupyter_gpu_seconds",
    "GPU seconds of this server's kernels: held, used (held times use), freed (of GPUs that the policy took back)",
    ["kind"],
)
CULLS = Counter("jupyter_gpu_culls", "What the policy did, or would have done", ["action", "rule", "dry_run", "done"])
SAMPLE_SECONDS = Histogram(
    "jupyter_gpu_sample_seconds",
    "Time of one look at GPUs and processes",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
)
PASS_SECONDS = Histogram(
    "jupyter_gpu_policy_pass_seconds", "Time of one pass of the policy", buckets=(0.001, 0.0025, 0.005, 0.01, 0.05, 0.1)
)


class GpuMetrics(Collector):
    """Shows the last sample and the gateway's last status: what is not known now has no figure."""

    def __init__(self) -> None:
        self.status: StatusDocument | None = None
        self.sample = Sample(0.0)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The figures of this moment (called by the registry)."""
        yield from _cluster(self.status)
        yield from _gpus(self.sample.gpus)
        yield _held(self.sample)


def _cluster(status: StatusDocument | None) -> Iterator[GaugeMetricFamily]:
    known = status is not None
    yield GaugeMetricFamily("jupyter_gpu_gateway_up", "1 while the gateway answers", value=int(known))
    waiting = status.waiting if status is not None else 0
    yield GaugeMetricFamily("jupyter_gpu_queue_length", "Runs that wait for GPUs", value=waiting)
    gpus = GaugeMetricFamily("jupyter_gpu_cluster_gpus", "GPUs of the cluster by state", labels=["state"])
    if status is not None:
        for state in ("held", "free", "external", "warm"):
            gpus.add_metric([state], getattr(status.gpus, state))
    yield gpus


def _gpus(gpus: Iterable[Gpu]) -> Iterator[GaugeMetricFamily]:
    memory = GaugeMetricFamily("jupyter_gpu_memory_bytes", "Device memory of a GPU", labels=["gpu", "kind"])
    use = GaugeMetricFamily("jupyter_gpu_utilization_ratio", "Use of a GPU from 0 to 1", labels=["gpu"])
    heat = GaugeMetricFamily("jupyter_gpu_temperature_celsius", "Temperature of a GPU", labels=["gpu"])
    power = GaugeMetricFamily("jupyter_gpu_power_watts", "Power that a GPU draws", labels=["gpu"])
    trouble = GaugeMetricFamily("jupyter_gpu_problem", "1 for a GPU that the driver cannot read", labels=["gpu"])
    for gpu in gpus:
        name = [str(gpu.index)]
        trouble.add_metric(name, 1 if gpu.problem else 0)
        if gpu.problem:
            continue
        memory.add_metric([*name, "total"], gpu.memory_bytes)
        memory.add_metric([*name, "used"], gpu.used_bytes)
        for family, value in ((use, gpu.utilization), (heat, gpu.temperature_c), (power, gpu.power_w)):
            if value is not None:
                family.add_metric(name, value)
    yield from (memory, use, heat, power, trouble)


def _held(sample: Sample) -> GaugeMetricFamily:
    family = GaugeMetricFamily("jupyter_gpu_held_bytes", "Device memory by whose processes hold it", labels=["owner"])
    held: Tally[Owner] = Tally()
    for entry in sample.held:
        held[entry.owner] += entry.process.used_bytes or 0
    for owner, total in held.items():
        family.add_metric([owner.value], total)
    return family


SHOWN = GpuMetrics()
REGISTRY.register(SHOWN)
