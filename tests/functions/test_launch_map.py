"""``launch_map``: many calls in a few processes, from a plain script."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from functions_bed import StartScript
from soak import thorough

from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.host import process_control

Until = Callable[[Callable[[], object], str], None]
_HEAD = "from jupyter_gpu_release import launch_map\n"


@pytest.mark.slow("scripts as users start them, several processes")
def test_results_come_in_order_from_a_few_processes(start: StartScript, gateway: GatewayClient, until: Until) -> None:
    """Whoever is free takes the next item; what is large comes through the store; all GPUs are free at the end."""
    text = """
import numpy
shared = numpy.arange(300_000.0)
os.mkdir("done")
def work(n, factor):
    while n == 0 and len(os.listdir("done")) < 10:  # all but this one, and the one that this process has got already
        time.sleep(0.01)
    open(f"done/{n}", "w").close()
    return os.getpid(), n * factor, shared[:n * 20_000]
mapped = launch_map(work, range(12), factor=10, gpus=1, processes=2)
pids, values, arrays = zip(*mapped.results())
print(json.dumps([len(set(pids)), pids.count(pids[0]), list(values), [len(a) for a in arrays], len(mapped),
                  float(sum(a.sum() for a in arrays)), mapped.done(), len(mapped.workers), repr(mapped)]))
"""
    (processes, of_first, values, lengths, count, total, is_done, workers, shown), _ = start(_HEAD + text).end()
    assert values == [10 * n for n in range(12)]
    assert lengths == [20_000 * n for n in range(12)]
    assert total == sum(sum(range(20_000 * n)) for n in range(12))
    assert (processes, workers, count, is_done) == (2, 2, 12, True)
    assert of_first == 2
    assert shown == "<map of work: 12 of 12 done>"
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")


def test_one_items_failure_is_its_own(start: StartScript) -> None:
    """Exceptions, exits and results that cannot be sent; the error names the item."""
    text = """
import asyncio, threading, traceback
def work(n):
    if n == 1:
        raise KeyError("one")
    if n == 2:
        sys.exit(3)
    if n == 3:
        return threading.Lock()
    return n
async def later(n):
    await asyncio.sleep(0)
    return n + 100
mapped = launch_map(work, [0, 1, 2, 3, 4], processes=1)
found = mapped.results(return_exceptions=True)
try:
    mapped.results()
except KeyError as error:
    text = "".join(traceback.format_exception(error))
async def main():
    return await launch_map(later, [1, 2], processes=1)
print(json.dumps([[v if isinstance(v, int) else type(v).__name__ for v in found], text,
                  sorted(f.index for f in mapped.as_completed() if f.exception() is None),
                  mapped[1].status, asyncio.run(main()), str(found[3])]))
"""
    (found, text, fine, status, awaited, unsendable), _ = start(_HEAD + text).end()
    assert found[:2] == [0, "KeyError"]
    assert found[3:] == ["CannotSendError", 4]
    assert found[2] != 2
    assert "item 1 of work: 1" in text
    assert 'raise KeyError("one")' in text
    assert fine == [0, 4]
    assert (status, awaited) == ("failed", [101, 102])
    assert "lock" in unsendable


@pytest.mark.parametrize("processes", [1, *thorough(2)])
def test_a_worker_that_dies_loses_the_item_under_way_and_no_other(
    start: StartScript, gateway: GatewayClient, until: Until, tmp_path: Path, processes: int
) -> None:
    """Killed for real. The item is not begun again; those behind it go on, in another process if need be."""
    text = f"""
def work(n):
    with open("began", "a") as file:
        file.write(f"{{n}} {{os.getpid()}}\\n")
    while n == 3 and not os.path.exists("never"):
        time.sleep(0.02)
    return n
mapped = launch_map(work, range(8), processes={processes})
found = mapped.results(return_exceptions=True)
print(json.dumps([v if isinstance(v, int) else [type(v).__name__, *v.__notes__] for v in found]))
"""
    script = start(_HEAD + text)

    def began() -> dict[int, int]:
        path = tmp_path / "began"
        lines = path.read_text().splitlines() if path.exists() else []
        return {int(n): int(pid) for n, pid in (line.split() for line in lines)}

    until(lambda: 3 in began(), "the item that does not end")
    os.kill(began()[3], signal.SIGKILL)
    found, _ = script.end()
    lost = found.pop(3)
    assert found == [n for n in range(8) if n != 3]
    assert lost[0] in ("RunLostError", "RunFailedError")
    assert lost[1] == "item 3 of work: 3"
    lines = (tmp_path / "began").read_text().splitlines()
    assert len(lines) == 8, "no item was begun twice"
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")


def test_cancel_and_ctrl_c_end_all_of_it(start: StartScript, gateway: GatewayClient, until: Until) -> None:
    text = """
def work(n):
    print("at work", flush=True)
    while True:
        time.sleep(0.02)
mapped = launch_map(work, range(6), processes=2)
out = mapped[5].cancel()
main = threading.current_thread()
def waits():
    frame, names = sys._current_frames()[main.ident], set()
    while frame:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return {"results", "wait"} <= names
def press():
    while not (any(f.running() for f in mapped) and waits()):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press).start()
try:
    mapped.results()
except KeyboardInterrupt:
    pass
found = mapped.results(return_exceptions=True)
names = [type(v).__name__ for v in found]
print(json.dumps([out, names, [f.status for f in mapped], mapped.cancel(), mapped[0].cancel()]))
"""
    (out, found, states, again, one), _ = start(_HEAD + "import signal, sys, threading\n" + text).end()
    assert out is True
    assert found == ["RunCancelledError"] * 6
    assert states == ["cancelled"] * 6
    assert (again, one) == (False, False)
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")


def test_what_is_wrong_is_said_before_anything_is_queued(start: StartScript, gateway: GatewayClient) -> None:
    text = """
import threading
def work(n, factor=1):
    return n
def said(*args, **kwargs):
    try:
        launch_map(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
lock = threading.Lock()
empty = launch_map(work, [])
none = [empty.results(), empty.done(), len(empty), repr(empty)]
print(json.dumps([said(work, [1, lock]), said(work, [1], unknown=2), said(work, [1], processes=0),
                  said(work, [1], ranks=2), said(work, [1], detach=True), said(3, [1]), none,
                  said(work, [1], restartable=True)]))
"""
    before = {row.run for row in gateway.runs().runs}
    (lock, unknown, processes, ranks, detach, no_function, empty, restartable), _ = start(_HEAD + text).end()
    assert {row.run for row in gateway.runs().runs} == before
    assert lock.startswith("CannotSendError")
    assert "items[1]" in lock
    assert unknown.startswith("WrongCallError")
    assert "processes=0" in processes
    assert "ranks" in ranks
    assert "detach" in detach
    assert "not restartable" in restartable
    assert no_function.startswith("CannotSendError")
    assert empty == [[], True, 0, "<map of work: 0 of 0 done>"]


def test_the_processes_are_gone_with_the_last_item(start: StartScript, until: Until) -> None:
    pids, _ = start(
        _HEAD + "print(json.dumps(launch_map(lambda n: os.getpid(), range(10), processes=2).results()))"
    ).end()
    until(lambda: all(process_control.is_gone(pid) for pid in pids), "they are gone")


@pytest.mark.thorough
def test_the_gateway_dies_meanwhile(start: StartScript, gateway: GatewayClient, until: Until, tmp_path: Path) -> None:
    text = """
def work(n):
    with open("began", "a") as file:
        file.write(f"{n}\\n")
    while n > 1 and not os.path.exists("go"):
        time.sleep(0.02)
    return n
print(json.dumps(launch_map(work, range(8), processes=2).results()))
"""
    script = start(_HEAD + text)
    until(lambda: (tmp_path / "began").exists() and len((tmp_path / "began").read_text().split()) == 4, "two wait")
    os.kill(gateway.health().pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    found, _ = script.end()
    assert found == list(range(8))
    assert sorted(map(int, (tmp_path / "began").read_text().split())) == found, "none is called twice"
