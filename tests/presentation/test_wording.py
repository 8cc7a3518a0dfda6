from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert, structs, to_builtins

from jupyter_gpu_release.presentation.run_display import describe_run
from jupyter_gpu_release.presentation.wording import (
    cancel_words,
    describe_building,
    describe_environment,
    describe_lost,
    describe_pause,
    describe_wait,
    error_words,
    format_clock,
    format_drained,
    gpu_state,
    held_by,
    kept_words,
    name_of,
    run_origin,
    run_title,
    stored_words,
    usage_words,
)
from jupyter_gpu_release.protocol.environments import LACKS, Origin, Plan, PlannedPackage
from jupyter_gpu_release.protocol.rest import GpuRow, RunError, RunRow, StatusDocument, Usage
from jupyter_gpu_release.protocol.runs import Attempt, ErrorInfo, GpuUse, KeptLease, Outcome, PersistWait, RunView
from jupyter_gpu_release.scheduling.warm_leases import is_worth_keeping


@pytest.mark.parametrize(
    ("outcome", "worth"),
    [
        (Outcome("ok"), True),
        (Outcome("error", ErrorInfo("ValueError", "no")), True),
        (Outcome("interrupted", ErrorInfo("KeyboardInterrupt", "")), True),
        (Outcome("timeout", ErrorInfo("KeyboardInterrupt", "")), True),
        (Outcome("timeout", ErrorInfo("KeyboardInterrupt", "was killed", code="failed")), False),
        (Outcome("died", ErrorInfo("CellProcessDied", "SIGSEGV", code="failed")), False),
        (Outcome("memory", ErrorInfo("MemoryLimitError", "", code="failed")), False),
        (Outcome("lost"), False),
        (Outcome("error", ErrorInfo("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB")), False),
        (Outcome("error", ErrorInfo("RuntimeError", "CUDA error: device-side assert triggered")), False),
        (Outcome("error", ErrorInfo("RuntimeError", "no CUDA error: a sentence of the user's own")), True),
        (Outcome("ok", gpu_use=GpuUse(left_bytes=1 << 20)), False),
        (Outcome("ok", gpu_use=GpuUse(left_bytes=0)), True),
    ],
)
def test_after_which_ends_gpus_are_kept(outcome: Outcome, worth: bool) -> None:
    assert is_worth_keeping(outcome) is worth


def test_in_words() -> None:
    at = format_clock(1000.0)
    assert kept_words(KeptLease(1000.0, 30.0)) == f"kept for 30 s (until {at})"
    assert kept_words(KeptLease(1000.0, 600.0, capped=True)) == f"kept for 10 min, the longest here (until {at})"
    assert kept_words(KeptLease(1000.0, 300.0, auto=True)) == f"kept until somebody waits, at most 5 min (until {at})"


@pytest.mark.parametrize(
    ("left_s", "words"),
    [(24.4, "warm, 24 s left"), (95, "warm, 1 min left"), (0.3, "warm, ending"), (-2, "warm, ending")],
)
def test_the_countdown_of_a_gpu(left_s: float, words: str) -> None:
    assert gpu_state(GpuRow("0", "", "", 0, 0, None, "warm", warm_until=100.0), 100.0 - left_s) == words
    assert gpu_state(GpuRow("0", "", "", 0, 0, None, "running"), 100.0) == "running"


@pytest.mark.parametrize(
    ("name", "code", "title"),
    [
        ("fit", "x = 1", "fit"),
        ("", "%%time\n#@title A small net\nloss = train(model)", "A small net"),
        ("", "import torch\n\nresults = []\nmodel.train()\n  loss = train_one(model)\nloss", "loss = train_one(model)"),
        ("", '"""Two\nlines."""\ndef train(x):\n    model.fit(x)', "model.fit(x)"),
        ("", "%%time\nresults = []\n# a step\nprint(1)", "print(1)"),
        ("", "name, lr = 'a', 1e-3\nfile = 'a b.csv'  # data\nepochs = 3\nfor n in range(3):", "name, lr = 'a', 1e-3"),
        ("", "file = 'a b.csv'  # data\nlr = -1e-3\nseen = {}\nfor n in range(3):", "for n in range(3):"),
        ("", "import torch\nlr = 1e-3", "lr = 1e-3"),
        ("", "import torch", "import torch"),
        ("", "", ""),
        ("", "x" * 200, "x" * 79 + "…"),
    ],
)
def test_a_run_is_called_by_its_name_its_comment_or_what_trains(name: str, code: str, title: str) -> None:
    assert run_title(name, code) == title


def test_a_launched_function_is_called_by_its_call_unless_somebody_named_it() -> None:
    assert run_title("trial", "def trial(rate): ...", "trial(0.1)") == "trial(0.1)"
    assert run_title("baseline", "def trial(rate): ...", "trial(0.1)") == "baseline"
    assert run_title("trial", "", "") == "trial"


def test_where_a_run_comes_from() -> None:
    assert run_origin("script", "/home/ada/fit.py", 0) == "script fit.py"
    assert run_origin("papermill", "/home/ada/digits.ipynb", 0) == "papermill digits.ipynb"
    assert run_origin("", "/home/ada/digits.ipynb", 3) == "digits.ipynb [3]"
    assert run_origin("papermill", "/home/ada/digits.ipynb", 3) == "papermill digits.ipynb [3]"
    assert run_origin("script", "/home/ada/fit.py", 1) == "script fit.py"
    assert run_origin("terminal", "", 2) == "terminal [2]"


def test_a_run_that_goes_on_says_why_it_waits_again_and_what_it_does_meanwhile() -> None:
    aside = Attempt(1.0, 2.0, user="bob", place="epoch 37", was_saved=True)
    view = RunView("r", "ann", "queued", position=1, reason="next in the queue", attempts=[aside])
    assert describe_run(view).startswith("preempted for bob at epoch 37 · queued for 1 GPU · place 1 · next in")
    own = structs.replace(aside, user="ann")
    assert describe_pause(own, "ann") == "preempted for another run of yours at epoch 37"
    assert describe_pause(structs.replace(aside, user=""), "ann") == "preempted at epoch 37"
    late = structs.replace(aside, lost_s=3.0)
    assert describe_pause(late, "ann") == "it did not stop in time: again from epoch 37"
    saving = RunView("r", "ann", "persisting", attempts=[aside])
    assert describe_run(saving) == "persisting · 1 GPU free again · being saved …"
    yielding = RunView("r", "ann", "yielding", hosts=["gpu1"], reason="bob's run goes first")
    assert describe_run(yielding) == "being preempted on gpu1 · 1 GPU · bob's run goes first"


def _status(*users: str, drained: int = 0) -> StatusDocument:
    gpus = [GpuRow(str(n), "", "", 0, 0, None, "drained" if n < drained else "free") for n in range(4)]
    row = {"run": "r", "state": "running", "gpus": 2, "held_s": 60.0}
    runs = [{**row, "user": user, "held_s": 60.0 * n} for n, user in enumerate(users, start=1)]
    runs += [{**row, "user": "eve", "state": "queued"}, {**row, "user": "eve", "gpus": 0}]
    document = {"gateway": {"url": "", "version": ""}, "gpus": {"total": 4, "held": 0, "free": 0, "external": 0}}
    document |= {"schema_version": 1, "simulated": False, "user": "ann", "queue": [], "runs": runs}
    document |= {"nodes": [{"id": "n", "host": "h", "gpus": to_builtins(gpus)}]}
    return convert(document, StatusDocument, strict=False)


def test_the_status_says_what_is_drained_and_who_holds_most() -> None:
    assert (format_drained(_status()), format_drained(_status(drained=3))) == ("", ", 3 drained")
    assert held_by(_status("bob", "ann", "ann")) == ["you hold 4 GPUs for 3 min", "bob holds 2 GPUs for 1 min"]
    assert held_by(_status()) == []


def test_what_becomes_of_a_run_whose_gateway_is_away() -> None:
    assert describe_lost(None, is_accepted=False) == "the run is submitted when it is back"
    assert describe_lost(None) == "the run keeps its place in the queue"
    assert describe_lost(1.0) == "the run goes on if the cluster does"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "writing 1 GiB to /s/v"),
        (
            {"reason": "full", "free_bytes": 8 << 20},
            "1 GiB of results cannot be written to /s/v (full, 8 MiB free); kept in the node's memory, next try at ",
        ),
        (
            {"reason": "disk full", "kept": "disk"},
            "1 GiB of results cannot be written to /s/v (disk full); kept on the node's own disk, next try at ",
        ),
        (
            {"reason": "a is away", "kept": "gone"},
            "1 GiB of results for /s/v are kept by a node that is away (a is away)",
        ),
    ],
)
def test_what_results_wait_for(facts: dict[str, Any], words: str) -> None:
    said = describe_wait(PersistWait("/s/v", 1 << 30, next_try_at=1000.0, **facts))
    assert said == words + (format_clock(1000.0) if words.endswith("at ") else "")


def test_what_a_cancellation_does() -> None:
    def said(state: str, after: str = "", granted_at: float | None = 1.0) -> str:
        row = RunRow("r1", "ann", state, granted_at=granted_at)
        return cancel_words(row, structs.replace(row, reason=after))

    assert said("succeeded") == "r1 is over already: succeeded."
    assert said("persisting") == "r1: its results are being given up."
    assert said("persisting", "the results are lost") == "r1: the results are lost."
    assert said("queued", granted_at=None) == "r1 is taken out of the queue: it had not begun."
    assert said("running").startswith("r1 is being ended: its cell is interrupted")


def test_an_account_in_words() -> None:
    usage = Usage(held_s=7200.0, used_s=3600.0, saved_s=18_000.0, others_s=1800.0)
    assert usage_words(usage) == "2 h held, 1 h used, 5 h saved (others used 0.5 h)"
    assert "others" not in usage_words(structs.replace(usage, others_s=0.0))
    assert (stored_words(0), stored_words(None), stored_words(1 << 30)) == ("", "", "your runs take 1 GiB of the store")


def test_a_run_is_listed_by_its_name_else_its_title_else_its_notebook() -> None:
    run = RunRow("r1", "ann", notebook="/home/ann/a.ipynb", title="fit(x)", name="best")
    assert name_of(run) == "best"
    assert name_of(structs.replace(run, name="")) == "fit(x)"
    assert name_of(structs.replace(run, name="", title="")) == "a.ipynb"


def test_only_our_own_errors_mark_code() -> None:
    assert error_words(RunError("OptionError", "see `x`", code="option")) == "OptionError: see x"
    assert error_words(RunError("ValueError", "no `x`")) == "ValueError: no `x`"
    assert error_words(RunError("KeyboardInterrupt", "")) == "KeyboardInterrupt"


def test_an_environment_in_words() -> None:
    lacking = [PlannedPackage(f"p{n}", "1", LACKS) for n in range(6)]
    plan = Plan("3.11", "linux", lacking)
    assert describe_environment(plan, 0.0) == ""
    said = describe_environment(plan, 1.9)
    assert said == "packages that the cluster lacks: p0 1, p1 1, p2 1, p3 1, p4 1, p5 1 · ready in 1.9 s"
    edited = PlannedPackage("mine", "2", "another version", True, Origin.EDITABLE, files=3)
    said = describe_environment(structs.replace(plan, packages=[edited, *lacking]), 1.9)
    assert said.startswith("packages that the cluster lacks or has otherwise: mine (editable, 3 files), p0 1")
    assert "p4 1 and 1 more · ready" in said
    few = structs.replace(plan, packages=lacking[:4])
    assert describe_building(few, None).endswith("building its environment: 4 packages (p0 1, p1 1, p2 1, p3 1)")
    assert describe_building(plan, 2).endswith("building its environment: 2 of 6 packages (p0 1, p1 1, p2 1, p3 1 …)")
