"""Whole cells in a real kernel, played by a gateway that follows a script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import ErrorInfo, FileInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_outputs import Kernel
    from script_gateway import FakeGateway, FakeRun


def test_a_good_cell(kernel: Kernel, gateway: FakeGateway, graph_of: Any):
    @gateway.script("good")
    def play(run: FakeRun) -> None:
        run.start()
        run.say("hello\n")
        run.end(**graph_of(answer=42), files=[FileInfo("run_dir/a.txt", 3)])

    outputs = kernel.run("%%gpu_train --gpus 2 --name good\nanswer = 6 * 7")
    assert outputs.reply["status"] == "ok"
    assert outputs.text() == "hello\n"
    receipt = outputs.plain()[-1]
    assert receipt.startswith("✓ 2 simulated GPUs · queued")
    assert "free 9 ms after the last statement · back: answer (int) · files: run_dir/a.txt (3 B)" in receipt
    assert kernel.value("answer") == "42"
    payload, request = gateway.runs[0].payload, gateway.runs[0].request
    assert (payload.source, payload.line_offset) == ("answer = 6 * 7\n", 1)
    assert request.ask.gpus == 2
    assert payload.workdir.endswith("notebooks")
    facts = [m["content"]["metadata"].get("jupyter_gpu_release") for m in outputs if "metadata" in m["content"]]
    assert {"run": request.run, "status": "ok", "gpus": 2}.items() <= facts[-1].items()


def test_output_keeps_its_order_and_kinds(kernel: Kernel, gateway: FakeGateway, hush: Callable[[Kernel], None]):
    hush(kernel)

    @gateway.script("show")
    def play(run: FakeRun) -> None:
        run.start()
        shown = {"data": {"text/plain": "1"}, "metadata": {}, "transient": {"display_id": "d"}}
        run.emit(
            ("stream", {"name": "stdout", "text": "a\n"}),
            ("display", shown),
            ("stream", {"name": "stderr", "text": "b\n"}),
            ("update_display", {**shown, "data": {"text/plain": "2"}}),
            ("stream", {"name": "stdout", "text": "c\n"}),
        )
        run.end()

    outputs = kernel.run("%%gpu_train --name show\npass")
    assert outputs.kinds == [
        "display_data",
        "stream",
        "display_data",
        "stream",
        "update_display_data",
        "stream",
        "update_display_data",
        "display_data",
    ]
    heading, shown, receipt = outputs.plain()
    assert heading == "ran on box · 1 simulated GPU · GPU 0"
    assert shown == "2"
    assert receipt.startswith("✓")


def test_clear_output_takes_the_line_but_not_the_receipt(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("clear")
    def play(run: FakeRun) -> None:
        run.start()
        run.say("old")
        run.emit(("clear_output", {"wait": False}), ("display", {"data": {"text/plain": "new"}}))
        run.end()

    outputs = kernel.run("%%gpu_train --name clear\npass")
    assert outputs.plain()[0] == "new"
    assert outputs.plain()[1].startswith("✓")
    assert len(outputs.plain()) == 2


def test_waiting_is_said_in_one_line(kernel: Kernel, gateway: FakeGateway, until: Any):
    @gateway.script("wait")
    def play(run: FakeRun) -> None:
        run.signals.get(timeout=60)
        run.accept()
        run.update("queued", position=3, reason="0 of 2 free")
        run.signals.get(timeout=60)
        run.start()
        run.signals.get(timeout=60)
        run.end()

    kernel.run("%gpu_train 1")  # connected: no other line is shown
    message = kernel.start("%%gpu_train --gpus 2 --name wait\npass")
    shown: list[dict[str, Any]] = []
    for words in (
        "queued for 2 simulated GPUs",  # not answered yet; what was asked for is known
        "queued for 2 simulated GPUs · place 3 · 0 of 2 free",
        "running on box · 2 simulated GPUs · GPU 0",
    ):
        while not shown or shown[-1]["content"]["data"]["text/plain"] != words:
            said = kernel.client.get_iopub_msg(timeout=30)
            shown += [said] if "data" in said["content"] else []
        until(lambda: len(gateway.runs) == 2, "the gateway has the run")
        gateway.runs[-1].signals.put("go on")
    assert [said["msg_type"] for said in shown] == ["display_data", "update_display_data", "update_display_data"]
    rest = kernel.finish(message)
    assert rest.kinds == ["update_display_data"]
    assert rest[0]["content"]["data"]["text/plain"].startswith("✓")


@pytest.mark.parametrize("status", ["ok", "error"])
def test_however_long_results_are_written_one_line_says_so(kernel: Kernel, gateway: FakeGateway, status: str):
    error = None if status == "ok" else ErrorInfo("ValueError", "no", ["ValueError: no"])

    @gateway.script("writing")
    def play(run: FakeRun) -> None:
        run.start()
        run.say("hello\n")
        run.end(status, state="persisting", values=Graph(file="values.graph"), error=error)
        run.wait_for_signal()
        for _ in range(20):  # the line is looked at with each
            run.update("persisting")
        run.end(status, error=error)

    kernel.run("%gpu_train 1")  # connected: no line but the run's is shown
    message = kernel.start("%%gpu_train --name writing\nfit()")
    shown: list[str] = []
    while not shown or "free again · writing" not in shown[-1]:
        said = kernel.client.get_iopub_msg(timeout=20)
        if said["msg_type"] == "display_data":
            shown.append(said["content"]["data"]["text/plain"])
    gateway.runs[-1].signals.put("go on")
    outputs = kernel.finish(message)
    assert "display_data" not in outputs.kinds
    assert len(shown) == 2
    last = outputs.plain() or [m["content"]["data"]["text/plain"] for m in outputs if "data" in m["content"]]
    assert last[-1].startswith("✓") if status == "ok" else last[-1] == "the results are written"


def test_widgets_messages_pass_whole(kernel: Kernel, gateway: FakeGateway):
    content = {
        "comm_id": "c1",
        "target_name": "jupyter.widget",
        "data": {"state": {"value": 1}, "buffer_paths": [["b"]]},
    }

    @gateway.script("comm")
    def play(run: FakeRun) -> None:
        run.start()
        body = {"msg_type": "comm_open", "content": content, "metadata": {"version": "2.1.0"}, "buffers": [b"\x00\x01"]}
        run.emit(("comm", body))
        run.end()

    outputs = kernel.run("%%gpu_train --name comm\npass")
    opened = next(message for message in outputs if message["msg_type"] == "comm_open")
    assert opened["content"] == content
    assert opened["metadata"]["version"] == "2.1.0"
    assert [bytes(buffer) for buffer in opened["buffers"]] == [b"\x00\x01"]


def test_options_may_hold_the_notebooks_variables(kernel: Kernel, gateway: FakeGateway):
    kernel.run("n, label = 3, 'mine'")
    outputs = kernel.run("%%gpu_train --gpus {n} --name $label\nprint(f'{n}')")
    assert outputs.reply["status"] == "ok", outputs.traceback
    run = gateway.runs[0]
    assert (run.request.ask.gpus, run.request.name, run.payload.source) == (3, "mine", "print(f'{n}')\n")


def test_line_magic(kernel: Kernel, gateway: FakeGateway):
    assert kernel.run("a = 1\n%gpu_train --gpus 1 print({a}, 'b  c')").reply["status"] == "ok"
    assert gateway.runs[0].payload.source == "print({a}, 'b  c')"
    assert gateway.runs[0].payload.line_offset == 1


def test_defaults_of_the_notebook(kernel: Kernel, gateway: FakeGateway):
    assert kernel.run("%gpu_config gpus=2 memory=8GiB").reply["status"] == "ok"
    kernel.run("%%gpu_train\n1")
    kernel.run("%%gpu_train --gpus 1\n1")
    kernel.run("%gpu_config reset")
    kernel.run("%%gpu_train\n1")
    asks = [(run.request.ask.gpus, run.request.ask.memory_bytes) for run in gateway.runs]
    assert asks == [(2, 8 << 30), (1, 8 << 30), (1, None)]


def test_environment_workdir_and_facts_travel(kernel: Kernel, gateway: FakeGateway, tmp_path: Path):
    kernel.run("import os; os.environ['SEEN'] = 'yes'")
    before = kernel.run("1").reply["execution_count"]
    kernel.run(f"%%gpu_train --env A=1 --export SEEN --workdir {tmp_path} --timeout 2h --wait 5m --fresh\n1")
    run = gateway.runs[0]
    assert run.payload.env == {"A": "1", "SEEN": "yes"}
    assert (run.payload.workdir, run.payload.workdir_asked) == (str(tmp_path), True)
    assert (run.request.timeout_s, run.request.wait_s, run.request.fresh) == (7200, 300, True)
    assert run.payload.count == before + 1


def test_a_cell_of_a_notebook_whose_folder_was_deleted_is_sent_without_one(
    kernel: Kernel, gateway: FakeGateway, tmp_path: Path
) -> None:
    before = Path(str(kernel.run("import os; print(os.getcwd())").text()).strip())
    kernel.run(f"os.makedirs({str(tmp_path / 'gone')!r}); os.chdir({str(tmp_path / 'gone')!r}); os.rmdir(os.getcwd())")
    try:
        kernel.run("%%gpu_train\n1")
        payload = gateway.runs[0].payload
        assert (payload.workdir, payload.workdir_deleted) == ("", True)
    finally:
        kernel.run(f"os.chdir({str(before)!r})")


def test_what_is_printed_between_two_messages_of_a_widget_stays_between_them(
    kernel: Kernel, gateway: FakeGateway
) -> None:
    """`with out:` is these two: a client that collects the output goes by their order."""

    @gateway.script("widget")
    def play(run: FakeRun) -> None:
        run.start()
        begin, end = (
            ("comm", {"msg_type": "comm_msg", "content": {"comm_id": "c", "data": {"state": {"msg_id": each}}}})
            for each in ("begin", "")
        )
        run.emit(begin, ("stream", {"name": "stdout", "text": "inside\n"}), end)
        run.end()

    kinds = kernel.run("%%gpu_train --name widget\npass").kinds
    assert [kind for kind in kinds if kind in ("comm_msg", "stream")] == ["comm_msg", "stream", "comm_msg"]


def test_a_hundred_thousand_lines_in_order(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("many")
    def play(run: FakeRun) -> None:
        run.start()
        for start in range(0, 100_000, 500):
            run.say("".join(f"line {n}\n" for n in range(start, start + 500)))
        run.end()

    outputs = kernel.run("%%gpu_train --name many\npass")
    assert outputs.text() == "".join(f"line {n}\n" for n in range(100_000))


def test_settings_can_be_seen_and_changed_in_the_notebook(kernel: Kernel, gateway: FakeGateway):
    kernel.run("%gpu_config gpus=2")
    assert "GpuRelease.auto_start" in kernel.run("%config GpuRelease").text()
    kernel.run("%config GpuRelease.defaults = {'gpus': 3}\n%gpu_config reset")
    kernel.run("%%gpu_train\n1")
    assert gateway.runs[0].request.ask.gpus == 3
    kernel.run("%unload_ext jupyter_gpu_release")
    assert kernel.run("%config GpuRelease").reply["status"] == "error"
