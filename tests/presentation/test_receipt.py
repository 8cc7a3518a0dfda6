from __future__ import annotations

from html.parser import HTMLParser

from jupyter_gpu_release.presentation.receipt import bundle_of, make_receipt
from jupyter_gpu_release.protocol.runs import Attempt, ErrorInfo, FileInfo, GpuUse, Outcome, RunView, ValueInfo

RUN = "20261121-034512-9f3a12bc"


def view(outcome: Outcome | None, **facts: object) -> RunView:
    times = {"submitted_at": 100.0, "granted_at": 100.0, "gone_at": 112.3, "release_ms": 14.0}
    return RunView(run=RUN, user="u", outcome=outcome, **{"state": "succeeded", "simulated": True, **times, **facts})


def test_everything_of_a_good_run_in_one_line():
    outcome = Outcome(
        status="ok",
        results=[ValueInfo("model", "Net", 1_258_291), ValueInfo("history", "list", 100)],
        files=[FileInfo("run_dir/best.pt", 2048)],
    )
    receipt = make_receipt(view(outcome))
    assert receipt.text == (
        "✓ 1 simulated GPU · queued 0 ms · held 12.3 s · free 14 ms after the last statement · "
        f"back: model (Net, 1.2 MiB), history (list) · files: run_dir/best.pt (2 KiB) · run {RUN}"
    )


def test_where_there_are_queues_the_receipt_says_in_which_it_waited():
    receipt = make_receipt(view(Outcome(status="ok"), queue="research", priority="high"))
    assert " · queued 0 ms in research (priority high) · " in receipt.text
    assert (receipt.facts["queue"], receipt.facts["priority"]) == ("research", "high")
    waited = make_receipt(view(None, state="cancelled", granted_at=None, finished_at=160.0, queue="research")).text
    assert " · queued 1 min in research · " in waited


def test_programs_that_read_a_notebook_learn_which_environment_a_cell_ran_in():
    facts = [make_receipt(view(Outcome(status="ok"), environment_digest=digest)).facts for digest in ("e1", "")]
    assert [each.get("environment") for each in facts] == ["e1", None]


def test_real_gpus_with_type_and_memory():
    outcome = Outcome(status="ok", gpu_use=GpuUse(peak_utilization=1.0, mean_utilization=0.9, left_bytes=0))
    text = make_receipt(view(outcome, simulated=False, gpus=2, gpu_name="NVIDIA H100", ranks=2)).text
    assert "2 GPUs (NVIDIA H100), 2 ranks" in text
    assert "0 MiB left on the device" in text


def test_a_cpu_stage_says_that_it_took_no_gpu():
    text = make_receipt(view(Outcome(status="ok", untouched_reason="`device` is cpu"), gpus=0, ranks=3)).text
    assert text.startswith("✓ CPU stage, no GPU taken, 3 ranks · queued 0 ms · held 12.3 s · cores free 14 ms after")
    assert "⚠" not in text


def test_memory_that_stayed_is_a_warning():
    outcome = Outcome(status="ok", gpu_use=GpuUse(peak_utilization=1.0, left_bytes=1 << 30))
    receipt = make_receipt(view(outcome, simulated=False))
    assert receipt.warnings == ("1 GiB of GPU memory did NOT come back after the cell's processes ended",)
    assert "⚠ 1 GiB" in receipt.text


def test_untouched_gpu_is_a_warning_with_its_reason():
    outcome = Outcome(status="ok", gpu_use=GpuUse(peak_utilization=0.0), untouched_reason="`device` is cpu")
    receipt = make_receipt(view(outcome, simulated=False))
    assert receipt.warnings == ("the GPU was never touched (peak 0 %: `device` is cpu)",)


def test_failed_run_says_what_was_salvaged():
    outcome = Outcome(
        status="error",
        error=ErrorInfo("ValueError", "no"),
        results=[ValueInfo("model", "Net", 10)],
        notes=["x is late"],
    )
    receipt = make_receipt(view(outcome, state="failed"), notes=["api_key was held back", "x is late"])
    assert receipt.text.startswith("✗ failed: ValueError · 1 simulated GPU")
    assert "back: model (Net)" in receipt.text
    assert receipt.notes == ("x is late", "api_key was held back")


def test_under_a_traceback_the_receipt_stands_out():
    outcome = Outcome(status="error", error=ErrorInfo("ValueError", "no"), gpu_use=GpuUse(left_bytes=1 << 30))
    receipt = make_receipt(view(outcome, state="failed", simulated=False), notes=["`%gpu_attach` shows it again"])
    lines = receipt.below_traceback.splitlines()
    assert lines[-1] == "  · %gpu_attach shows it again"
    assert lines[0].startswith("✗ \x1b[1;31mfailed: ValueError\x1b[0m · 1 GPU")
    assert lines[1].startswith("  \x1b[1;31m⚠ 1 GiB of GPU memory did NOT come back")


def test_other_ends():
    for status, head in (
        ("interrupted", "■ cancelled: interrupted"),
        ("timeout", "■ failed: stopped at its --timeout"),
        ("died", "✗ failed: the cell's process died"),
        ("memory", "✗ failed: ended for its memory"),
        ("lost", "✗ lost"),
    ):
        receipt = make_receipt(view(Outcome(status=status), state="failed"))
        assert receipt.text.startswith(head)
        assert ("its names are gone" in receipt.text) == (status == "lost")


def test_cancelled_in_the_queue_took_nothing():
    ended = view(None, state="cancelled", granted_at=None, gone_at=None, release_ms=None, finished_at=103.0)
    assert make_receipt(ended).text == (f"■ cancelled while queued · no GPU was taken · queued 3 s · run {RUN}")


def test_modules_have_a_name_only():
    outcome = Outcome(status="ok", results=[ValueInfo("plt", ""), ValueInfo("a", "int")])
    assert "back: plt, a (int) · run" in make_receipt(view(outcome)).text


def test_long_lists_are_cut():
    outcome = Outcome(status="ok", results=[ValueInfo(f"v{i}", "int", 1) for i in range(11)])
    assert "v7 (int) and 3 more" in make_receipt(view(outcome)).text


def test_what_was_bound_replaces_what_was_announced():
    outcome = Outcome(status="ok", results=[ValueInfo("a", "int", 1), ValueInfo("b", "int", 1)])
    assert "back: a (int) · " in make_receipt(view(outcome), came_back=[ValueInfo("a", "int", 1)]).text
    assert "back:" not in make_receipt(view(outcome), came_back=[]).text


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_balanced_escaped_and_without_scripts():
    outcome = Outcome(status="ok", results=[ValueInfo("x", "<script>alert(1)</script>", 1)], notes=["a < b & c"])
    tags = _Tags()
    tags.feed(make_receipt(view(outcome)).html)
    assert tags.open == []
    assert tags.seen == {"div", "span", "br"}
    assert "<script>alert(1)</script>" in tags.text
    assert "a < b & c" in tags.text


def test_facts_are_for_programs():
    outcome = Outcome(status="ok", results=[ValueInfo("a", "int", 28)])
    facts = make_receipt(view(outcome)).metadata()["jupyter_gpu_release"]
    assert facts["run"] == RUN
    assert (facts["queued_s"], facts["held_s"], facts["release_ms"]) == (0.0, 12.3, 14.0)
    assert facts["results"] == [{"name": "a", "type": "int", "bytes": 28}]


def test_names_and_commands_are_code_on_a_page_and_nothing_else_is_markup() -> None:
    page = make_receipt(view(Outcome(status="ok", notes=["`<x>` stays: `%gpu_release` gives it back"]))).html
    assert "<code>&lt;x&gt;</code> stays: <code>%gpu_release</code> gives" in page
    assert "`" not in page


def test_in_plain_text_no_backtick_stands_for_code() -> None:
    receipt = make_receipt(view(Outcome(status="ok", notes=["`x` stays: `%gpu_release` gives it back"])))
    for text in (receipt.text, receipt.bundle()["text/plain"], receipt.bundle()["text/latex"]):
        assert "  · x stays: %gpu_release gives it back" in text
    assert bundle_of("until `jupyter gpu stop`", "")["text/plain"] == "until jupyter gpu stop"


def test_a_run_that_was_preempted_or_was_lost_says_how_often_and_what_that_cost() -> None:
    past = [
        Attempt(100.0, 160.0, 101.0, user="bob", place="epoch 37", was_saved=True, gpu_name="H100"),
        Attempt(
            1360.0,
            1400.0,
            1361.0,
            gpu_name="A100",
            status="lost",
            reason="the node gpu3 is gone",
            place="epoch 40",
            lost_s=9.0,
        ),
        Attempt(1401.0, 1402.0, status="lost", reason="the node gpu4 is gone"),
    ]
    seen = view(Outcome(status="ok"), submitted_at=98.0, granted_at=1410.0, gone_at=1470.0, attempts=past)
    receipt = make_receipt(seen)
    assert "queued 2 s · held 2 min 41 s" in receipt.text
    assert receipt.notes == (
        "preempted for bob at epoch 37, waited 20 min, went on with A100",
        "the node gpu3 is gone: again from epoch 40, waited 1 s, 9 s of work done again",
        "the node gpu4 is gone: again from the beginning, waited 8 s",
    )
    assert receipt.metadata()["jupyter_gpu_release"]["attempts"] == 4
