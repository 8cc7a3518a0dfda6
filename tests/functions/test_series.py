"""Many calls of one function: they follow each other in a few processes, and nobody else's run gets one of those."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from functions_bed import StartScript

from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.core.choices import RunOptions
from jupyter_gpu_release.core.resources import ResourceAsk
from jupyter_gpu_release.functions.series import Series
from jupyter_gpu_release.node import process

Until = Callable[[Callable[[], object], str], None]

_CALLS = """
def where(n):
    time.sleep({seconds})
    if n == 6:
        raise KeyError(n)
    return os.getpid(), os.environ["JUPYTER_GPU_IDS"], n

def other():
    return os.getpid()

runs = [launch(where, n) for n in range(14)]
stranger = launch(other)
print(runs[0].result()[0], flush=True)
answers = [run.exception() or run.result() for run in runs]
failed = answers.pop(6)
print(json.dumps([answers, type(failed).__name__, stranger.result()]))
"""


def test_calls_of_one_function_share_processes_and_others_do_not(
    start: StartScript, gateway: GatewayClient, until: Until
) -> None:
    (answers, failed, stranger), _ = start(_CALLS.format(seconds=0.1)).end()
    assert failed == "KeyError"
    assert [n for _, _, n in answers] == [n for n in range(14) if n != 6]
    pids = {pid for pid, *_ in answers}
    assert len(pids) < len(answers)
    assert len({(pid, gpu) for pid, gpu, _ in answers}) == len(pids)  # each has the GPU that it began with
    assert stranger not in pids
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")
    assert all(process.is_gone(pid) for pid in {*pids, stranger})


def test_the_gateway_dies_between_calls(start: StartScript, gateway: GatewayClient, until: Until) -> None:
    script = start(_CALLS.format(seconds=0.3))
    script.line()  # the first call is done: processes stay from now on
    os.kill(gateway.health().pid, signal.SIGKILL)
    (answers, failed, stranger), _ = script.end(120)
    assert failed == "KeyError"
    assert len(answers) == 13
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")
    assert all(process.is_gone(pid) for pid in {stranger, *(pid for pid, *_ in answers)})


def _train(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("function", "changes", "shares"),
    [
        (_train, {}, True),
        (_train, {"ask": ResourceAsk(gpus=2, ranks=2)}, False),
        (_train, {"ask": ResourceAsk(gpus=0, cpus=1)}, False),
        (_train, {"fresh": True}, False),
        (_train, {"detach": True}, False),
        (_train, {"keep_s": 5.0}, False),
        (len, {}, False),
    ],
)
def test_who_may_share_a_process(function: Any, changes: dict[str, Any], shares: bool) -> None:
    series, options = Series(), replace(RunOptions(ask=ResourceAsk(gpus=1)), **changes)
    word = series.word(function, options, stream=False)
    assert bool(word) is shares
    assert word == series.word(function, options, stream=False)
    if shares:
        assert word != series.word(function, options, stream=True)
        assert word != series.word(lambda x: x, options, stream=False)
        assert word != Series().word(function, options, stream=False)  # of another process
