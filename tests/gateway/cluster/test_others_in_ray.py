"""Other programs use the same Ray cluster: their GPUs are seen, and not promised to anybody."""

from __future__ import annotations

from collections.abc import Callable

from feeds import Reading
from ray_bed import GPUS, GatewayBed, request

from jupyter_gpu_release.client.session import GatewaySession


def test_gpus_of_another_program_are_waited_for(
    gateway: GatewayBed, open_session: Callable[..., GatewaySession], until: Callable[..., None]
) -> None:
    def external() -> int:
        with gateway.rest() as client:
            return client.status().gpus.external

    session = open_session()
    gateway.bed.ask("group", "another-program")
    try:
        until(lambda: external() == 1, "the GPU of another program")
        rest, whole = (request("hold", "session", gpus=gpus) for gpus in (GPUS - 1, GPUS))
        reading, waiting = Reading(session.submit(rest)), Reading(session.submit(whole))
        reading.state("running")
        waiting.reason(f"needs {GPUS} GPUs, 0 of {GPUS} are free")
        gateway.let_go(rest.run)
        reading.end()
        waiting.reason(f"needs {GPUS} GPUs, {GPUS - 1} of {GPUS} are free")
    finally:
        gateway.bed.ask("ungroup", "another-program")
    waiting.state("running")
    gateway.let_go(whole.run)
    assert waiting.end().state == "succeeded"
