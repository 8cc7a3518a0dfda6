"""Functions launched from plain scripts, on a real cluster."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from functions_bed import StartScript

from jupyter_gpu_release.client.rest import GatewayClient

_VALUES = """
import asyncio, concurrent.futures, multiprocessing
import numpy as np
import beside

FACTOR = 10
api_token = "s3cret"

class Box:
    def __init__(self, value):
        self.value = value

def make(step):
    offset = step * 100
    def inner(x, *, more=0):
        print("in", x)
        return Box(beside.double(x) * FACTOR + offset + more)
    return inner

def fails(x):
    return 1 / x

async def waits(x):
    await asyncio.sleep(0)
    return x + 1

def random():
    return float(np.random.rand())

@gpu(gpus=1)
def outer(x):
    return [os.environ.get("CUDA_VISIBLE_DEVICES") is not None, inner_gpu(x), x]

@gpu(gpus=4)
def inner_gpu(x):
    return os.getpid() == int(os.environ["OUTER"]) if "OUTER" in os.environ else [os.getpid(), x]

def peeks():
    return "api_token" in globals() and api_token

def large(size):
    return {"array": np.arange(size), "lock": None}

def times(x):
    return Box(beside.double(x) * FACTOR)

def spawns(values):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(times, values)

facts = {}
spawned = launch(spawns, [1, 2])
runs = [launch(make(1), 1), launch(make(2), 2, more=5, name="second"), launch(make(3), 3)]
done = list(concurrent.futures.as_completed(runs, timeout=150))
facts["values"] = [run.result().value for run in runs]
facts["class"] = all(type(run.result()) is Box and run.result() is run.result() for run in runs)
facts["done"] = sorted(run.id for run in done) == sorted(run.id for run in runs)
facts["names"] = [run.name for run in runs]
facts["spawned"] = [type(box) is Box and box.value for box in spawned.result()]
facts["logs"] = runs[1].logs()

async def gather():
    return await asyncio.gather(launch(waits, 1), launch(waits, 2))
facts["awaited"] = asyncio.run(gather())

async def wait_for_all():
    waited = [launch(waits, 3), launch(waits, 4)]
    done, pending = await asyncio.wait(waited, timeout=100)
    return [sorted(run.result() for run in done), len(pending), done == set(waited)]
facts["waited"] = asyncio.run(wait_for_all())
failed = launch(fails, 0)
try:
    failed.result()
except ZeroDivisionError as error:
    facts["error"] = [str(error), str(error.__cause__), failed.exception() is not None]
facts["seeds"] = len({run.result() for run in [launch(random), launch(random)]})
facts["decorated"] = outer(7)[::2] + [outer.local(1)[2], outer.launch(2).result()[2], outer.__name__]
os.environ["DB_PASSWORD"] = "s3cret"
run = launch(peeks)
facts["held back"] = run.result()
facts["sent"] = launch(peeks, send="api_token").result()
facts["exported"] = launch(os.environ.get, "DB_PASSWORD", export="DB_PASSWORD").result()
big = launch(large, 1 << 20)
array = big.result()["array"]
facts["mapped"] = [int(array[-1]), gpu_release.load(big.id)["result"]["array"].shape]
facts["used"] = launch(lambda a: int(a.sum() % 1000), array).result()
facts["ranks"] = launch(lambda: int(os.environ["RANK"]), gpus=2, ranks=2, gather=True).result()
launch(lambda: print("shown live"), stream=True).result()
chained = concurrent.futures.Future()
def then(run):
    after, beside_it = launch(pow, run.result(), 2), launch(len, "abc")
    chained.set_result([after.result(100), beside_it.result(100)])
launch(waits, 4).add_done_callback(then)
facts["chained"] = chained.result(150)
print(json.dumps(facts))
"""


@pytest.mark.slow("scripts as users start them")
def test_values_go_there_and_come_back(start: StartScript, tmp_path: Path):
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    found, err = start(_VALUES).end()
    assert found["values"] == [120, 245, 360]
    assert found["class"] is True
    assert found["done"] is True
    assert found["names"] == ["inner", "second", "inner"]
    assert found["spawned"] == [20, 40]
    assert found["logs"] == "in 2\n"
    assert found["awaited"] == [2, 3]
    assert found["waited"] == [[4, 5], 0, True]
    text, cause, raised = found["error"]
    assert text == "division by zero"
    assert raised
    assert "return 1 / x" in cause
    assert "__gpu_function__" not in cause  # the traceback begins in the function
    assert found["seeds"] == 2
    assert found["decorated"] == [True, 7, 1, 2, "outer"]
    assert found["held back"] is False
    assert "`api_token` looks like a secret and is held back: send='api_token' sends it" in err
    said = "environment variable DB_PASSWORD looks like a secret and is held back: export='DB_PASSWORD' sends it"
    assert said in err
    assert [found["sent"], found["exported"]] == ["s3cret"] * 2
    assert found["ranks"] == [0, 1]
    assert found["chained"] == [25, 3]  # a callback may launch and wait
    assert found["mapped"] == [(1 << 20) - 1, [1 << 20]]
    assert found["used"] == sum(range(1 << 20)) % 1000


_BAD = """
import threading

def returns(x):
    return [x, threading.Lock()]

def uses_lock():
    return LOCK

def strikes():
    raise KeyboardInterrupt("by itself")

LOCK = threading.Lock()
found = []
def attempt(action):
    before = time.monotonic()
    try:
        action()
        found.append("nothing was raised")
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")

attempt(lambda: launch(returns, threading.Lock()))
attempt(lambda: launch(uses_lock))
attempt(lambda: launch(returns, [launch(len, "x")]))
attempt(lambda: launch(returns, 1, gpus=99))
attempt(lambda: launch(returns, 1, gpus=0, cpus=10_000))
attempt(lambda: launch(returns, 1, gpus=0, memory="900TiB"))
attempt(lambda: launch(returns, 1).result())
attempt(lambda: launch(lambda: __import__("os").abort()).result())
attempt(lambda: launch(lambda: __import__("os")._exit(3)).result())
attempt(lambda: launch(strikes).result())
attempt(lambda: launch(time.sleep, 60, timeout=0.2).result())
attempt(lambda: launch(lambda: launch(len, "x")).result())
print(json.dumps(found))
"""


def test_what_goes_wrong_is_said_in_words(start: StartScript):
    found, _ = start(_BAD).end()
    words = [
        "CannotSendError: cannot send `x`: cannot pickle '_thread.lock' object",
        "CannotSendError: cannot send `LOCK`: cannot pickle '_thread.lock' object",
        "CannotSendError: cannot send `x[0]`: it is a future and not its result\n  → send its result",
        "ImpossibleAskError: asks for 99 GPUs, the cluster has 4",
        "ImpossibleAskError: asks for 10000 CPUs on one node; no node of the cluster offers that (most CPUs: ",
        "ImpossibleAskError: asks for 900 TiB of memory on one node; no node of the cluster offers that",
        "CannotSendError: what returns() returned cannot leave its process: `result[1]`: cannot pickle '_thread.lock'",
        "RunFailedError: the function's process aborted (SIGABRT, raised in native code)",
        "RunFailedError: the function's process ended by itself with exit code 3 (os._exit?)",
        "KeyboardInterrupt: by itself",
        "RunFailedError: stopped after ",
        "OptionError: launch() inside of a GPU cell or a launched function",
    ]
    for text, expected in zip(found, words, strict=True):
        assert text.startswith(expected), text
        assert "names are gone" not in text


def test_an_interrupt_ends_the_waiting_and_cancel_ends_the_run(start: StartScript):
    script = start("""
run = launch(time.sleep, 600)
while run.status != "running":
    time.sleep(0.02)
facts = {"done": run.done(), "running": run.running()}
try:
    run.result(timeout=0.05)
except TimeoutError as error:
    facts["timeout"] = str(error)
try:
    print("waits", flush=True)
    run.result()
except KeyboardInterrupt:
    facts["after"] = [run.done(), run.status]
facts["cancel"] = run.cancel()
try:
    run.result()
except Exception as error:
    facts["end"] = [type(error).__name__, run.status, run.cancelled(), run.cancel()]
waiting = [launch(time.sleep, 600, gpus=4), launch(time.sleep, 600, gpus=4)]
waiting[1].cancel()
facts["queued"] = type(waiting[1].exception()).__name__
waiting[0].cancel()
waiting[0].exception()
print(json.dumps(facts))
""")
    assert script.line() == "waits"
    script.process.send_signal(signal.SIGINT)
    found, _ = script.end()
    assert (found["done"], found["running"]) == (False, True)
    assert "sleep is running after 0.05 s" in found["timeout"]
    assert found["after"] == [False, "running"]
    assert found["cancel"] is True
    assert found["end"] == ["RunCancelledError", "cancelled", True, False]
    assert found["queued"] == "RunCancelledError"


def test_a_script_that_ends_ends_its_runs_but_those_detached(start: StartScript, gateway: GatewayClient, until: Any):
    found, _ = start("""
attached = launch(time.sleep, 600)
detached = launch(time.sleep, 600, detach=True, gpus=0)
while attached.status != "running" or detached.status != "running":
    time.sleep(0.02)
print(json.dumps([attached.id, detached.id]))
""").end()
    attached, detached = found
    until(lambda: gateway.run(attached).state == "cancelled", "the attached run to end with its script")
    assert gateway.run(detached).state == "running"
    gateway.cancel(detached)
    until(lambda: gateway.run(detached).state == "cancelled", "the detached run to end")


_RESTARTABLE = """
import random

def train(rounds, folder):
    random.seed(3)
    state = gpu_release.restore() or {"history": []}
    history = state["history"]
    for n in range(len(history), rounds):
        history.append((n, random.random(), os.getpid()))
        print("round", n, flush=True)
        while n == 1 and not os.path.exists(folder + "/go"):
            time.sleep(0.01)
        if n > 1 and folder != "/" and len({pid for _, _, pid in history}) == 1:
            time.sleep(0.02)  # the notice is on its way
        gpu_release.checkpoint({"history": history})
    return history

run = launch(train, 1000, os.getcwd(), restartable=True)
print(run.id, flush=True)
print(json.dumps([run.result(), run.logs(), train(3, "/")]))
"""


@pytest.mark.thorough
def test_a_restartable_function_steps_aside_and_its_future_has_the_whole_result(
    start: StartScript, gateway: GatewayClient, until: Any, tmp_path: Path
) -> None:
    script = start(_RESTARTABLE.replace("n == 1", "n == 1 and folder != '/'"))
    run = script.line()
    until(
        lambda: any("round 1" in str(event.data) for event in gateway.events(run, 0).events), "it is in its 2nd round"
    )
    gateway.preempt(run)
    (tmp_path / "go").touch()
    (history, logs, here), _ = script.end()
    assert [n for n, _, _ in history] == list(range(1000))
    assert len({pid for _, _, pid in history}) == 2
    assert [number for _, number, _ in history[:3]] == [number for _, number, _ in here]
    assert re.search("^again from checkpoint [0-9]+$", logs, re.MULTILINE)
    assert [line for line in logs.splitlines() if line.startswith("round")] == [f"round {n}" for n in range(1000)]
