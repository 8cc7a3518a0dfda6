"""Cells that are interrupted, by the user or at their timeout: through the real fork server, without Ray."""

from __future__ import annotations

import pytest
from node_bed import Node, is_running


@pytest.mark.parametrize(
    "source",
    ["import time\nwhile True:\n    time.sleep(0.01)", "import asyncio\nawait asyncio.sleep(100)"],
    ids=["loop", "await"],
)
def test_an_interrupt_reaches_the_cell(node: Node, source: str) -> None:
    run = node.start("print('go', flush=True)\n" + source)
    run.wait_for(lambda r: "go" in r.text())
    run.signal("interrupt")
    outcome = run.wait()
    assert outcome.status == "interrupted"
    assert outcome.error is not None
    assert outcome.error.ename == "KeyboardInterrupt"


def test_a_keyboard_interrupt_of_its_own_is_an_error(node: Node) -> None:
    outcome = node.run("raise KeyboardInterrupt").outcome
    assert outcome.error is not None
    assert (outcome.status, outcome.error.ename) == ("error", "KeyboardInterrupt")


def test_an_interrupt_reaches_a_subprocess_as_in_a_local_notebook(node: Node) -> None:
    run = node.start("!echo started; sleep 1000\nprint('next line')")
    run.wait_for(lambda r: "started" in r.text())
    run.signal("interrupt")
    assert run.wait().status == "ok"  # IPython goes on after an interrupted `!command`
    assert run.text().split() == ["started", "^C", "next", "line"]


def test_a_cell_that_ignores_interrupts_is_killed_after_the_grace(node: Node) -> None:
    run = node.start(
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\ntime.sleep(100)", grace_s=0.3
    )
    run.wait_for(lambda r: "deaf" in r.text())
    run.signal("interrupt")
    outcome = run.wait()
    assert outcome.status == "interrupted"
    assert outcome.error is not None
    assert "killed" in outcome.error.evalue


def test_a_kill_after_an_interrupt_waits_for_no_grace(node: Node) -> None:
    run = node.start(
        "import time\nwhile True:\n    try:\n        print('x', flush=True); time.sleep(100)\n"
        "    except KeyboardInterrupt:\n        print('no')",
        grace_s=100,
    )
    run.wait_for(lambda r: "x" in r.text())
    run.signal("interrupt")
    run.wait_for(lambda r: "no" in r.text())
    run.signal("kill")
    assert run.wait().status == "interrupted"


def test_an_interrupt_that_is_told_twice_strikes_once(node: Node) -> None:
    """As when the connection broke over it, or the gateway was started anew: the cell is saving what it has."""
    go = node.store / "go-on-saving"
    run = node.start(
        "import os, time\ntry:\n    print('x', flush=True); time.sleep(100)\nexcept KeyboardInterrupt:\n"
        f"    print('saving', flush=True)\n    while not os.path.exists({str(go)!r}):\n        time.sleep(0.01)\n"
        "    kept = 1"
    )
    run.wait_for(lambda r: "x" in r.text())
    run.signal("interrupt")
    run.wait_for(lambda r: "saving" in r.text())
    run.signal("interrupt")
    assert node.run("pass").outcome.status == "ok", "time in which it is heard"
    go.touch()
    assert run.wait().status == "ok", run.outcome.error
    assert [value.name for value in run.outcome.results] == ["kept"]


_STRIKES_LAST = """
import asyncio, sys
gate, struck = get_ipython().gate, []
close = gate.close

def strike_before():
    if sys._getframe(1).f_code.co_name == "run" and not struck:
        struck.append(True)
        raise KeyboardInterrupt
    close()

gate.close = strike_before
task = asyncio.ensure_future(asyncio.sleep(0))
kept = 1
"""


def test_an_interrupt_right_before_interrupts_are_kept_out_costs_no_names(node: Node) -> None:
    """After the last task that the cell has left."""
    outcome = node.run(_STRIKES_LAST).outcome
    assert outcome.error is not None
    assert outcome.error.ename == "KeyboardInterrupt"
    assert "kept" in [value.name for value in outcome.results]


def test_an_interrupt_in_the_very_beginning_is_an_interrupt(node: Node) -> None:
    """Short sleeps: Python itself misses a signal that comes just before a call into the system, until that returns."""
    for _ in range(5):
        run = node.start("import time\nwhile True:\n    time.sleep(0.01)")
        run.wait_for(is_running)
        run.signal("interrupt")
        assert run.wait().error == run.outcome.error
        assert run.outcome.error is not None
        assert (run.outcome.status, run.outcome.error.ename) == ("interrupted", "KeyboardInterrupt")
        assert "killed" not in run.outcome.error.evalue


def test_an_interrupt_in_a_callback_that_drops_it_strikes_again(node: Node) -> None:
    """Python ignores exceptions in those; each import statement ends with one."""
    run = node.start(
        "import time, weakref\nclass Thing: pass\n"
        "thing = Thing()\nwatch = weakref.ref(thing, lambda _: (print('in it', flush=True), time.sleep(2)))\n"
        "del thing\nprint('after it')\ntime.sleep(100)"
    )
    run.wait_for(lambda run: "in it" in run.text())
    run.signal("interrupt")
    assert run.wait() == run.outcome
    assert run.outcome.error is not None
    assert (run.outcome.status, run.outcome.error.ename) == ("interrupted", "KeyboardInterrupt")
    assert "killed" not in run.outcome.error.evalue


def test_no_thread_of_ours_takes_an_interrupt_from_the_cell(node: Node) -> None:
    """One that does leaves the cell asleep, or has it raised where IPython swallows it."""
    source = (
        "import os, pathlib, re\nme = str(os.getpid())\n"
        "for task in pathlib.Path('/proc/self/task').iterdir():\n"
        "    blocked = int(re.search(r'SigBlk:\\s*(\\w+)', (task / 'status').read_text())[1], 16)\n"
        "    print('main' if task.name == me else 'other', bool(blocked & 1 << 1))"
    )
    assert set(node.run(source).text().split("\n")) - {""} == {"main False", "other True"}


def test_the_timeout_interrupts_and_salvages_nothing_less(node: Node) -> None:
    outcome = node.run("import time\nkept = 5\ntime.sleep(100)", timeout_s=0.3).outcome
    assert outcome.status == "timeout"
    assert outcome.values is not None


def test_an_interrupt_while_the_traceback_is_drawn_does_not_take_its_place(node: Node) -> None:
    run = node.run(
        "import os, signal\nclass Slow(Exception):\n    def _render_traceback_(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        return ['how it failed']\nraise Slow('why')"
    )
    assert run.outcome.error is not None
    assert (run.outcome.status, run.outcome.error.ename) == ("error", "Slow")
    assert run.outcome.error.traceback == ["how it failed"]
    assert "KeyboardInterrupt" not in run.text("stderr")


def test_an_interrupt_after_the_last_statement_does_not_strike_what_collects_the_results(node: Node) -> None:
    """A thread of the cell's that takes signals (a progress bar's) has Python run the handler on the main thread."""
    run = node.start(
        "import os, signal, threading, time\n"
        "class Kept:\n"
        "    def __reduce__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.2)\n"
        "        return int, (5,)\n"
        "threading.Thread(target=time.sleep, args=(20,), daemon=True).start()\n"
        "kept, other = Kept(), 3"
    )
    outcome = run.wait()
    assert (outcome.status, outcome.error) == ("ok", None)
    assert {"kept", "other"} <= {value.name for value in outcome.results}
