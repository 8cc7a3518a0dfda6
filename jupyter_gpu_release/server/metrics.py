"""Figures on Jupyter's ``/metrics`` (the default registry of prometheus_client), all named ``jupyter_gpu_…``."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from ..core.documents import StatusDocument
from ..hardware.cards import Card

CLUSTER_GPUS = Gauge("jupyter_gpu_cluster_gpus", "GPUs of the cluster by state", ["state"])
QUEUE = Gauge("jupyter_gpu_queue_length", "Runs that wait for GPUs")
GATEWAY_UP = Gauge("jupyter_gpu_gateway_up", "1 while the gateway answers")
GATEWAY_LATENCY = Histogram(
    "jupyter_gpu_gateway_latency_seconds", "Time of an answer of the gateway",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)  # fmt: skip
MEMORY = Gauge("jupyter_gpu_memory_bytes", "Device memory of a card", ["gpu", "kind"])
UTILIZATION = Gauge("jupyter_gpu_utilization_ratio", "Use of a card from 0 to 1", ["gpu"])
TEMPERATURE = Gauge("jupyter_gpu_temperature_celsius", "Temperature of a card", ["gpu"])
POWER = Gauge("jupyter_gpu_power_watts", "Power that a card draws", ["gpu"])
CARD_PROBLEM = Gauge("jupyter_gpu_card_problem", "1 for a card that the driver cannot read", ["gpu"])
HELD_BYTES = Gauge("jupyter_gpu_held_bytes", "Device memory by whose processes hold it", ["owner"])
HOLDERS = Gauge("jupyter_gpu_kernels_holding", "Kernels of this server that hold device memory", ["state"])
SECONDS = Counter(
    "jupyter_gpu_seconds", "GPU seconds of this server's kernels: held, used (held times use), saved by the policy",
    ["kind"],
)  # fmt: skip
CULLS = Counter("jupyter_gpu_culls", "What the policy did, or would have done", ["action", "rule", "dry_run", "done"])
SAMPLE_SECONDS = Histogram(
    "jupyter_gpu_sample_seconds", "Time of one look at cards and processes",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
)  # fmt: skip
PASS_SECONDS = Histogram(
    "jupyter_gpu_policy_pass_seconds", "Time of one pass of the policy", buckets=(0.001, 0.0025, 0.005, 0.01, 0.05, 0.1)
)


def show_cluster(status: StatusDocument | None) -> None:
    """The gateway's figures; without a gateway they vanish rather than stay as they were."""
    GATEWAY_UP.set(0 if status is None else 1)
    CLUSTER_GPUS.clear()
    QUEUE.set(0 if status is None else len(status.queue))
    if status is not None:
        for state in ("held", "free", "external"):
            CLUSTER_GPUS.labels(state).set(getattr(status.gpus, state))


def show_cards(cards: Iterable[Card]) -> None:
    """The cards' figures; what the driver does not tell has no sample."""
    for gauge in (MEMORY, UTILIZATION, TEMPERATURE, POWER, CARD_PROBLEM):
        gauge.clear()
    for card in cards:
        name = str(card.index)
        CARD_PROBLEM.labels(name).set(1 if card.problem else 0)
        if card.problem:
            continue
        MEMORY.labels(name, "total").set(card.memory_bytes)
        MEMORY.labels(name, "used").set(card.used_bytes)
        for gauge, value in ((UTILIZATION, card.utilization), (TEMPERATURE, card.temperature_c), (POWER, card.power_w)):
            if value is not None:
                gauge.labels(name).set(value)
