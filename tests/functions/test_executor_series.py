"""Many calls of one function: they follow each other in a few processes, and nobody else's run gets one of those."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from embedded_bed import agents_of
from functions_bed import StartScript

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.functions.executor import FunctionKeys
from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.options.run_options import RunOptions
from jupyter_gpu_release.protocol.runs import ResourceAsk

Until = Callable[[Callable[[], object], str], None]

_CALLS = """
def where(n):
    while not os.path.exists("launched"):
        time.sleep(0.02)
    time.sleep({seconds})
    if n == 6:
        raise KeyError(n)
    return os.getpid(), os.environ["JUPYTER_GPU_IDS"], n

def other():
    return os.getpid()

runs = [launch(where, n) for n in range(14)]
stranger = launch(other)
open("launched", "w").close()  # until now all wait: however slowly they were launched, they follow each other
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
    assert all(process_control.is_gone(pid) for pid in {*pids, stranger})


def test_the_gateway_dies_between_calls(start: StartScript, gateway: GatewayClient, until: Until) -> None:
    script = start(_CALLS.format(seconds=0.3))
    script.line()  # the first call is done: processes stay from now on
    os.kill(gateway.health().pid, signal.SIGKILL)
    (answers, failed, stranger), _ = script.end(120)
    assert failed == "KeyError"
    assert len(answers) == 13
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")
    assert all(process_control.is_gone(pid) for pid in {stranger, *(pid for pid, *_ in answers)})


#: the first seven follow each other; the rest goes on only when the test has done what it does in between
_HELD = """time.sleep({seconds})
    while n > 6 and not os.path.exists("go"):
        time.sleep(0.02)
"""
#: each call leaves a line in a file before it works
_ONCE = """
def once(n):
    with open("began", "a") as file:
        file.write(f"{{n}}\\n")
    {works}
    return n

runs = [launch(once, n) for n in range({count})]
"""
_ENDS = """
print(*[f"{run.id}: {run.exception()}" for run in runs if run.exception()], sep="\\n", file=sys.stderr)
print(json.dumps([type(run.exception()).__name__ if run.exception() else run.result() for run in runs]))
"""


def _began(folder: Path) -> list[int]:
    path = folder / "began"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_no_call_is_made_twice_when_the_gateway_dies(
    start: StartScript, gateway: GatewayClient, until: Until, tmp_path: Path
) -> None:
    """Its node goes on with what was promised; the next gateway finds that out."""
    script = start(_ONCE.format(works=_HELD.format(seconds=0.2), count=24) + _ENDS)
    until(lambda: len(_began(tmp_path)) > 7, "calls follow each other")
    os.kill(gateway.health().pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    ends, why = script.end()
    assert ends == list(range(24)), why
    assert sorted(_began(tmp_path)) == ends
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")


def test_no_call_is_made_twice_when_the_node_agent_dies(
    start: StartScript, gateway: GatewayClient, cluster: Ready, until: Until, tmp_path: Path
) -> None:
    """What had begun is lost, whoever knew of it; what was only promised waits again."""
    script = start(_ONCE.format(works=_HELD.format(seconds=0.3), count=24) + _ENDS)
    until(lambda: len(_began(tmp_path)) > 7, "calls follow each other")
    [agent] = agents_of(cluster.connection)
    agent.kill()
    agent.wait(60)  # what it knows of has not ended
    (tmp_path / "go").touch()
    ends, _ = script.end(120)
    began = _began(tmp_path)
    assert len(began) == len(set(began))
    lost = [n for n, end in enumerate(ends) if end == "RunLostError"]
    assert 0 < len(lost) <= 8
    assert [end for end in ends if end != "RunLostError"] == [n for n in range(24) if n not in lost]
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")


def test_a_promised_call_can_be_cancelled(start: StartScript, tmp_path: Path) -> None:
    """The next four are promised while four work: what is cancelled does not begin, those behind them do."""
    script = start(
        _ONCE.format(works="while not os.path.exists('go'): time.sleep(0.02)", count=12)
        + "while not os.path.exists('began') or len(open('began').read().split()) < 4:\n    time.sleep(0.01)\n"
        # the folder of a run that waits is made when it is promised
        "folders = [os.path.join(os.environ['JUPYTER_GPU_HOME'], 'store', 'runs', run.id) for run in runs[4:8]]\n"
        "while not all(map(os.path.isdir, folders)):\n    time.sleep(0.01)\n"
        "for run in runs[4:8]:\n    run.cancel()\n"
        "for run in runs[4:8]:\n    run.exception()\n"
        "open('go', 'w').close()\n" + _ENDS
    )
    ends, _ = script.end(120)
    assert ends == [0, 1, 2, 3, *["RunCancelledError"] * 4, 8, 9, 10, 11]
    assert sorted(_began(tmp_path)) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_a_call_that_came_between_is_not_overtaken(start: StartScript) -> None:
    """The policy's order holds, though calls behind it could follow in processes that are there."""
    facts, _ = start(
        _ONCE.format(works="time.sleep(0.2)", count=8)
        + "between = launch(lambda: os.getpid())\n"
        + "later = [launch(once, n) for n in range(8)]\n"
        + "between.result()\n"
        + "for run in later:\n    run.result()\n"
        + "print(json.dumps([between.view.granted_at, [run.view.granted_at for run in later]]))"
    ).end(120)
    granted_at, later = facts
    assert granted_at <= min(later)


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
    series, options = FunctionKeys(), replace(RunOptions(ask=ResourceAsk(gpus=1)), **changes)
    word = series.word(function, options, stream=False)
    assert bool(word) is shares
    assert word == series.word(function, options, stream=False)
    if shares:
        assert word != series.word(function, options, stream=True)
        assert word != series.word(lambda x: x, options, stream=False)
        assert word != FunctionKeys().word(function, options, stream=False)  # of another process
