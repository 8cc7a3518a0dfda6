"""Runs that come back: in another kernel, after a restart, live or long over."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from background_bed import ASYNC, HELD, go, run_of
from kernel_bed import Notebook

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.admin import TokenRequest

Open = Callable[[], Notebook]
DETACH = "%%gpu_train --detach\n"


@pytest.mark.slow("two kernels after each other")
def test_a_detached_run_outlives_its_kernel_and_comes_back(open_notebook: Open) -> None:
    first = open_notebook()
    run = run_of(first.ok(DETACH + "print('before', flush=True)\n" + HELD + "print('after')\nmodel = [1, 2]"))
    first.manager.shutdown_kernel()
    second = open_notebook()
    listed = second.ok("%gpu_runs 3").displays()[-1]
    assert "(detached)" in listed
    assert f"%gpu_attach {run}" in listed
    cell = second.begin(f"%gpu_attach {run}")
    second.until(lambda shown: "before\n" in shown.text())
    go(second)
    shown = second.end(cell)
    assert shown.status == "ok", shown.traceback
    assert shown.text() == "before\nafter\n"
    assert f"run {run}" in shown.receipt
    assert second.value("model") == [1, 2]
    third = open_notebook()  # it is over by now
    again = third.ok("%gpu_attach last")
    assert again.text() == "before\nafter\n"
    assert third.value("model") == [1, 2]


_ACTIVE = """\
import os, time, jupyter_gpu_release
from IPython.display import HTML, Javascript, display
class Trap:
    def __reduce__(self):
        return os.makedirs, ({trap!r},)
display(HTML("<script>alert(1)</script>"))
display(Javascript("alert(1)"), display_id="theirs")
get_ipython().set_next_input("import os")
trap = Trap()
jupyter_gpu_release.publish(trap=trap, loss=0.25)
print("shown", flush=True)
raise ValueError(trap)
"""


def test_an_admin_sees_what_a_user_s_run_shows_and_executes_nothing(
    open_notebook: Open, cluster: Ready, tmp_path: Path
) -> None:
    """Neither while it attaches, nor when it looks at logs, frames or published values."""
    trap = tmp_path / "unpickled"
    with GatewayClient.for_target(target_of(cluster.connection)) as gateway:
        secret = gateway.create_token(TokenRequest("ann")).secret
    ann = Notebook(tmp_path, load=False)
    try:
        settings = {"JUPYTER_GPU_URL": cluster.connection.url, "JUPYTER_GPU_TOKEN": secret}
        ann.ok(f"import os; os.environ.update({settings!r})\n%load_ext jupyter_gpu_release")
        failed = ann.run("%%gpu_train --skip trap\n" + _ACTIVE.format(trap=str(trap)))
        assert failed.reply["ename"] == "ValueError"
        shutil.rmtree(trap, ignore_errors=True)  # of ann's own kernel, which may load it
        run = re.findall(r"run (2\d{7}-\d{6}-\w{8})", failed.traceback + failed.text())[-1]
    finally:
        ann.close()
    admin = open_notebook()
    admin.ok("import jupyter_gpu_release")
    for magic in ("gpu_attach", "gpu_logs"):
        shown = admin.run(f"%{magic} {run}")
        assert "shown\n" in shown.text()
        bundles = [m["content"]["data"] for m in shown.messages if m["msg_type"] == "display_data"]
        theirs = [data for data in bundles if "alert" in str(data) or "IPython.core" in str(data)]
        assert len(theirs) == 2
        assert all(set(data) == {"text/plain"} for data in theirs)
        assert not shown.reply.get("payload")
    admin.run(f"%gpu_debug {run}")
    assert admin.value(f"jupyter_gpu_release.published('loss', run={run!r})") == 0.25
    assert "belongs to ann" in admin.run(f"jupyter_gpu_release.published('trap', run={run!r})").traceback
    assert "belongs to ann" in admin.run(f"jupyter_gpu_release.load({run!r})").traceback
    assert not trap.exists()


def test_a_killed_kernels_run_is_taken_over(open_notebook: Open, until: Any) -> None:
    first, second = open_notebook(), open_notebook()
    run = run_of(first.ok(ASYNC + "print('pid', __import__('os').getpid(), flush=True)\n" + HELD + "kept = 7"))
    first.kill()
    cell = second.begin(f"%gpu_attach {run}")
    second.until(lambda shown: "pid" in shown.text())
    go(second)
    shown = second.end(cell)
    assert shown.status == "ok", shown.traceback
    assert second.value("kept") == 7


def test_a_run_is_let_go_while_it_runs(open_notebook: Open, until: Any) -> None:
    first, second = open_notebook(), open_notebook()
    run = run_of(first.ok(ASYNC + HELD + "kept = 1"))
    said = first.ok("%gpu_detach last").text()
    assert f"run {run} goes on without this kernel" in said
    first.manager.shutdown_kernel()
    until(lambda: "running (detached)" in second.ok("%gpu_runs 1").displays()[-1], "the run")
    go(second)
    second.ok(f"%gpu_attach {run}")
    assert second.value("kept") == 1


def test_a_run_that_is_done_cannot_be_let_go(open_notebook: Open) -> None:
    notebook = open_notebook()
    run = run_of(notebook.ok(ASYNC + "kept = 1"))
    notebook.ok("%gpu_wait")
    assert f"run {run} is over" in notebook.run(f"%gpu_detach {run}").traceback
    assert "no run of this notebook is in the background" in notebook.run("%gpu_detach last").traceback


def test_an_interrupt_leaves_the_run_going_on(open_notebook: Open) -> None:
    first, notebook = open_notebook(), open_notebook()
    run = run_of(first.ok(DETACH + "print('begun', flush=True)\n" + HELD + "kept = 1"))
    cell = notebook.begin(f"%gpu_attach {run}")
    notebook.until(lambda shown: "begun" in shown.text())
    notebook.interrupt()
    shown = notebook.end(cell)
    assert shown.reply["ename"] == "KeyboardInterrupt"
    assert f"run {run} goes on" in shown.traceback
    go(notebook)
    assert notebook.ok(f"%gpu_attach {run}").text() == "begun\n"
    assert notebook.value("kept") == 1


def test_a_failed_run_brings_what_it_made_and_its_error(open_notebook: Open) -> None:
    first, second = open_notebook(), open_notebook()
    first.run("%%gpu_train --name broken\nprint('here')\nbest = {'epoch': 3}\n{}['missing']")
    shown = second.run("%gpu_attach last")
    assert shown.reply["ename"] == "KeyError"
    assert "missing" in shown.traceback
    assert shown.text() == "here\n"
    assert second.value("best") == {"epoch": 3}


def test_what_an_old_run_drew_at_random_is_not_drawn_again(open_notebook: Open) -> None:
    notebook = open_notebook()
    notebook.ok("import random\n%gpu_train random.seed(1); drawn = random.random()")
    notebook.ok("later = [random.random() for n in range(3)]\n%gpu_attach last\nlatest = random.random()")
    assert notebook.value("latest not in later")


def test_progress_plays_back_as_one_line_and_displays_as_they_ended(open_notebook: Open) -> None:
    first, second = open_notebook(), open_notebook()
    first.ok("""%%gpu_train
from tqdm import tqdm
from IPython.display import display, HTML, clear_output
import time
for epoch in tqdm(range(300), desc="epochs", mininterval=0):
    time.sleep(0.0005)
handle = display(HTML("<i>0</i>"), display_id=True)
for n in range(50):
    handle.update(HTML(f"<i>{n}</i>"))
del handle
print("end")
""")
    for line in ("%gpu_attach last", "%gpu_logs last"):
        shown = second.ok(line)
        bars = [part for part in shown.text("stderr").replace("\r", "\n").split("\n") if "epochs" in part]
        assert len(bars) == 1, bars
        assert "300/300" in bars[0]
        assert shown.text() == "end\n"
        pages = [page for page in shown.displays("text/html") if page.startswith("<i>")]
        assert pages == ["<i>0</i>", "<i>49</i>"]


def test_a_queued_run_is_waited_for(open_notebook: Open) -> None:
    first, second = open_notebook(), open_notebook()
    first.ok("%%gpu_train --detach --gpus 4\n" + HELD)
    run = run_of(first.ok("%%gpu_train --detach --gpus 4\nqueued = 'done'"))
    cell = second.begin(f"%gpu_attach {run}")
    second.until(lambda shown: any("queued for 4 simulated GPUs" in text for text in shown.displays()))
    go(second)
    assert second.end(cell).status == "ok"
    assert second.value("queued") == "done"


def test_attaching_to_a_run_of_this_kernel_binds_its_names_once(open_notebook: Open) -> None:
    notebook = open_notebook()
    run = run_of(notebook.ok(ASYNC + "print('mine', flush=True)\n" + HELD + "kept = [1]"))
    cell = notebook.begin(f"%gpu_attach {run}")
    notebook.until(lambda shown: shown.text().count("mine") == 2 or cell in str(shown.messages))
    go(notebook)
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert notebook.value("kept") == [1]


def test_what_is_not_there(open_notebook: Open) -> None:
    notebook = open_notebook()
    assert notebook.run("%gpu_attach 20000101-000000-00000000").reply["ename"] == "NoSuchRunError"
    assert "as listed by %gpu_runs" in notebook.run("%gpu_attach nonsense").traceback
