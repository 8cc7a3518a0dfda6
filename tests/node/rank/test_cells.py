"""Cells through the real fork server, supervisor and rank: what is shown, and how a cell can end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from doc_blocks import block
from node_bed import Node, is_running

from jupyter_gpu_release.host import process_control

_ORPHAN_TO_BE = "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"


def test_text_keeps_its_order_with_subprocesses_and_streams(node: Node) -> None:
    run = node.run(
        "import os, sys, subprocess\n"
        "print('one'); os.system('echo two'); print('three')\n"
        "print('four', file=sys.stderr)\n"
        "subprocess.run(['echo', 'five']); print('six')\n"
        "!echo seven\n"
        "print('eight')"
    )
    shown = [(event.data["name"], line) for event in run.events for line in event.data["text"].split()]
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    assert [line for _name, line in shown] == words
    assert [name for name, line in shown if line == "four"] == ["stderr"]
    assert [event.n for event in run.events] == list(range(1, len(run.events) + 1))


def test_carriage_returns_and_descriptor_output_arrive_as_written(node: Node) -> None:
    run = node.run("import os\nprint('10%\\r20%', end='\\r')\nos.write(1, b'raw\\n')\nos.write(2, b'err\\n')")
    # what bypasses Python may come between two pieces of what was printed, as in a plain cell
    assert run.text().replace("raw\n", "") == "10%\r20%\r"
    assert "raw\n" in run.text()
    assert run.text("stderr") == "err\n"


def test_a_hundred_thousand_lines_arrive_complete_and_in_few_events(node: Node) -> None:
    run = node.run("for i in range(100_000):\n    print(i)")
    assert run.text() == "".join(f"{i}\n" for i in range(100_000))
    assert len(run.events) < 2000


_STRUCK = """
import signal, threading, time
import jupyter_gpu_release as gpu_release
gpu_release.publish(step=1)
print("before", flush=True)
heard = []
signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
time.sleep(0.1)  # all threads wait for something to do
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        signal.pthread_kill(thread.ident, signal.SIGCHLD)
time.sleep(0.1)
gpu_release.publish(step=2)
print("after", [thread.name for thread in threading.enumerate()])
"""


def test_a_signal_that_strikes_a_thread_of_ours_costs_nothing(node: Node) -> None:
    """As SIGCHLD does where two workers of a ``DataLoader`` end at the same time."""
    run = node.run(_STRUCK)
    assert run.outcome.status == "ok", run.outcome.error
    assert "after" in run.text()
    assert {"jgr-output", "jgr-publish"} <= set(run.text().replace("'", " ").split())
    assert [event.data["value"] for event in run.events if event.kind == "published"] == [1, 2]


def test_displays_updates_and_clear_output_are_events_in_order(node: Node) -> None:
    run = node.run(
        "from IPython.display import display, clear_output, HTML\n"
        "handle = display('a', display_id='mine')\n"
        "handle.update('b')\n"
        "clear_output(wait=True)\n"
        "HTML('<b>x</b>')"
    )
    kinds = [event.kind for event in run.events]
    assert kinds == ["display", "update_display", "clear_output", "display"]
    assert run.events[0].data["transient"] == {"display_id": "mine"}
    assert run.events[1].data["transient"] == {"display_id": "mine"}
    assert run.events[2].data == {"wait": True}
    assert run.events[3].data["data"]["text/html"] == "<b>x</b>"


@pytest.mark.parametrize(("source", "shown"), [("1 + 1", True), ("1 + 1;", False), ("x = 1", False)])
def test_the_last_value_is_shown_unless_a_semicolon_hides_it(node: Node, source: str, shown: bool) -> None:
    assert bool(node.run(source).events) is shown


def test_figures_are_shown_inline_when_the_cell_ends(node: Node) -> None:
    run = node.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nNone")
    pictures = [event for event in run.events if "image/png" in event.data.get("data", {})]
    assert len(pictures) == 1


def test_widgets_send_comm_messages_with_their_metadata(node: Node) -> None:
    run = node.run("from tqdm.notebook import tqdm\nfor _ in tqdm(range(3)):\n    pass")
    opened = [event.data for event in run.events if event.data.get("msg_type") == "comm_open"]
    assert opened
    assert all(data["metadata"].get("version") for data in opened)
    assert any("application/vnd.jupyter.widget-view+json" in e.data.get("data", {}) for e in run.events)


def test_errors_carry_the_cells_own_line_numbers_and_the_exception(node: Node) -> None:
    run = node.run("a = 1\nb = 0\na / b", count=7)
    error = run.outcome.error
    assert error is not None
    assert run.outcome.status == "error"
    assert error.ename == "ZeroDivisionError"
    text = "".join(error.traceback)
    assert "In[7]" in text
    assert "line 4" in text  # the magic is line 1
    assert run.events[-1].kind == "error"


def test_an_exception_group_is_the_cells_error_with_all_its_members_and_the_receipt_says_so(node: Node) -> None:
    run = node.run("raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])")
    error = run.outcome.error
    assert error is not None
    assert error.ename == "ExceptionGroup"
    assert all(member in "".join(error.traceback) for member in ("ValueError: a", "KeyError: 'b'"))
    assert any("is shown as the cell's error" in note for note in run.outcome.notes)


def test_top_level_await_and_a_running_loop(node: Node) -> None:
    run = node.run(
        "import asyncio\n"
        "async def double(x):\n    await asyncio.sleep(0)\n    return 2 * x\n"
        "task = asyncio.get_running_loop().create_task(double(4))\n"
        "print(await double(3))\n"
        "left_over = asyncio.create_task(double(1)); left_over.add_done_callback(lambda t: print('late', t.result()))"
    )
    assert run.outcome.status == "ok"
    assert run.text() == "6\nlate 2\n"


def test_inner_cell_magics_run_and_keep_line_numbers(node: Node) -> None:
    run = node.run("%%capture captured\nprint('inside')")
    assert run.text() == ""
    run = node.run("%%bash\necho from bash")
    assert run.text() == "from bash\n"


def test_input_gets_a_clear_error(node: Node) -> None:
    run = node.run("input('name?')")
    assert run.outcome.error is not None
    assert "ordinary cell" in run.outcome.error.evalue


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os\nos._exit(3)", "exit code 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_a_process_that_died_says_why_and_that_names_are_gone(node: Node, source: str, words: str) -> None:
    run = node.run("print('before', flush=True)\n" + source)
    assert run.outcome.status == "died"
    assert run.outcome.error is not None
    assert words in run.outcome.error.evalue
    assert "names are gone" in run.outcome.error.evalue
    assert run.text().startswith("before")


def test_a_greedy_cell_dies_alone_with_a_clear_message(node: Node) -> None:
    go = node.store / "go"
    bystander = node.start(
        f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\nprint('well')"
    )
    bystander.wait_for(is_running)
    outcome = node.run("x = bytearray(1 << 30)\nimport time; time.sleep(1000)", memory_bytes=256 << 20).outcome
    assert outcome.status == "memory"
    assert outcome.error is not None
    assert "--memory" in outcome.error.hint
    go.touch()
    assert bystander.wait().status == "ok"
    assert bystander.text() == "well\n"


def test_double_forked_grandchildren_do_not_outlive_the_release(node: Node) -> None:
    run = node.run(
        "import os, time\n"
        "said, says = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.write(1, f'{os.getpid()}\\n'.encode())\n"
        "        os.write(says, b'.')\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "os.read(said, 1)"
    )
    assert run.outcome.status == "ok"
    assert any("left behind" in note for note in run.outcome.notes)
    assert process_control.is_gone(int(run.text()))


def test_ranks_of_a_gang_get_their_own_gpu_and_address(node: Node) -> None:
    source = "import os\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['CUDA_VISIBLE_DEVICES'])"
    run = node.run(source, ranks=4, gpu_ids=["3", "2", "1", "0"])
    said = dict.fromkeys(range(4), "")
    for event in run.events:
        said[event.data.get("rank", 0)] += event.data["text"]
    assert said == {0: "0 4 3\n", 1: "1 4 2\n", 2: "2 4 1\n", 3: "3 4 0\n"}


def test_a_failing_rank_ends_the_others_and_is_named(node: Node) -> None:
    run = node.start(
        "import os, time\nif os.environ['RANK'] == '1':\n    1 / 0\ntime.sleep(1000)", ranks=2, gpu_ids=["0", "1"]
    )
    outcome = run.wait()
    assert outcome.status == "error"
    assert outcome.error is not None
    assert outcome.error.ename == "ZeroDivisionError"
    assert any("rank 1" in note for note in outcome.notes)


def test_fresh_runs_in_a_new_interpreter(node: Node) -> None:
    source = "import os; print(os.getppid())\nimport sys; print('pandas' in sys.modules)"
    usual, fresh = node.run(source), node.run(source, fresh=True)
    assert fresh.outcome.status == "ok"
    assert fresh.text() != usual.text()


@pytest.mark.parametrize("dead", ["weakref.proxy(A())", "Odd()"])
def test_objects_that_must_not_be_asked_for_their_class_cost_no_names(node: Node, dead: str) -> None:
    """As tqdm's bar leaves one behind that its notebook has closed."""
    run = node.run(
        "import weakref\nclass A: pass\nclass Odd:\n    @property\n    def __class__(self): raise ValueError\n"
        f"odd = {dead}\nimportant = 42",
        out=["important"],
    )
    assert (run.outcome.status, run.outcome.error) == ("ok", None)
    assert [value.name for value in run.outcome.results] == ["important"]


def test_a_module_that_the_cell_broke_costs_no_names(node: Node) -> None:
    run = node.run("import gc\ngc.get_objects = None\nimportant = 42", out=["important"])
    assert (run.outcome.status, run.outcome.error) == ("ok", None)
    assert [value.name for value in run.outcome.results] == ["important"]
    assert any("values were not looked after: TypeError" in note for note in run.outcome.notes)


def test_environment_and_secrets_of_the_node_stay_out(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "PYTEST_VERSION" in os.environ  # of no cell's concern, as whatever the agent was started with
    run = node.run(
        "import os\nprint(os.environ['MINE'], sorted(k for k in os.environ if k.startswith('RAY_') or"
        " 'TOKEN' in k or k == 'PYTEST_VERSION'))",
        env={"MINE": "yes"},
    )
    assert run.text() == "yes []\n"


def test_written_files_are_listed_and_buffers_flushed(node: Node) -> None:
    run = node.run(
        "import os\nopen('left.txt', 'w').write('x' * 10)\nf = open('open.txt', 'w'); f.write('later')\n"
        "open(os.environ['GPU_RUN_DIR'] + '/model.bin', 'wb').write(b'12345')"
    )
    sizes = {file.path: file.bytes for file in run.outcome.files}
    assert sizes == {"left.txt": 10, "open.txt": 5, "run_dir/model.bin": 5}


def test_a_log_for_tensorboard_is_written_as_the_guide_says(node: Node) -> None:
    pytest.importorskip("tensorboardX")
    run = node.run(block("use/trackers.md", "## TensorBoard", "%%gpu_train").text.partition("\n")[2])
    assert run.outcome.error is None
    (log,) = run.outcome.files
    assert log.path.startswith("runs/first/events.")
    assert log.bytes > 100 * len("loss")


def test_a_cell_of_a_notebook_whose_folder_was_deleted_has_no_folder_either(node: Node, tmp_path: Path) -> None:
    """As in a plain cell, and whatever the cell does about it is its own business."""
    run = node.run("open('left.txt', 'w')", workdir="", workdir_deleted=True)
    assert run.outcome.error is not None
    assert run.outcome.error.ename == "FileNotFoundError"
    assert not run.outcome.files
    went = f"import os\nos.chdir({str(tmp_path)!r})\nopen('left.txt', 'w').write('x')"
    run = node.run(went, workdir="", workdir_deleted=True)
    assert [file.path for file in run.outcome.files] == ["left.txt"]
    assert any("folder was deleted" in note for note in run.outcome.notes)


def test_a_cell_may_delete_its_folder(node: Node, tmp_path: Path) -> None:
    run = node.run(f"import os\nos.chdir({str(tmp_path)!r})\nos.rmdir({str(tmp_path)!r})\nx = 1")
    assert (run.outcome.error, [value.name for value in run.outcome.results]) == (None, ["x"])


@pytest.mark.parametrize("name", ["../../stolen.py", "/tmp/jgr-stolen.py", "way/../../../stolen.py"])
def test_a_module_that_would_lie_outside_of_the_runs_folder_is_written_nowhere(node: Node, name: str) -> None:
    run = node.run("began = True", workdir="/no/such/folder", modules={name: b"stolen = 1"})
    assert run.outcome.error is not None
    assert "leads out of the run folder" in str(run.outcome.error)
    assert "began" not in [value.name for value in run.outcome.results]
    assert [*node.store.rglob("*stolen*"), *Path("/tmp").glob("jgr-stolen*")] == []


def test_the_agents_end_ends_every_process_of_its_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Node(tmp_path_factory.mktemp("other"), ["json"])
    run = other.start(_ORPHAN_TO_BE + "print(os.getpid(), child.pid, flush=True)\ntime.sleep(1000)")
    run.wait_for(lambda r: r.text().endswith("\n"))
    pids = [int(word) for word in run.text().split()]
    other.loop.call_soon_threadsafe(other.servers.kill_all)
    assert all(process_control.wait_until_gone(pid, 60) for pid in pids)
    assert run.wait().status == "lost"
    other.close()


def test_the_supervisors_death_leaves_no_orphan(node: Node) -> None:
    run = node.start(_ORPHAN_TO_BE + "print(os.getpid(), child.pid, os.getppid(), flush=True)\ntime.sleep(1000)")
    run.wait_for(lambda r: r.text().endswith("\n"))
    rank, child, supervisor = (int(word) for word in run.text().split())
    os.kill(supervisor, 9)
    assert run.wait().status == "lost"
    assert process_control.wait_until_gone(rank, 60)
    assert process_control.wait_until_gone(child, 60)
    assert node.run("print('still here')").text() == "still here\n"


def test_errors_of_this_package_end_at_the_cells_line(node: Node) -> None:
    run = node.run("import jupyter_gpu_release\njupyter_gpu_release.load('no run')")
    assert run.outcome.error is not None
    text = "".join(run.outcome.error.traceback)
    assert "line 3" in text
    assert "is not the id of a run" in text
    assert "loading.py" not in text


def test_a_handler_of_a_signal_that_stays_with_the_cell_is_said(node: Node) -> None:
    assert node.run("import signal\nbefore = signal.signal(signal.SIGALRM, signal.SIG_IGN)").outcome.notes == []
    outcome = node.run("import signal\nbefore = signal.signal(signal.SIGALRM, lambda *_: None)").outcome
    (note,) = outcome.notes
    assert note.startswith("handler of SIGALRM: not in the notebook, nor in further cells")


def test_what_ipython_is_told_to_call_later_stays_with_the_cell_and_is_said(node: Node) -> None:
    run = node.run(
        "ip = get_ipython()\ndef shown(*_): pass\nclass Timer:\n    def stop(self, result): pass\n"
        "ip.events.register('pre_run_cell', shown); ip.events.register('post_run_cell', Timer().stop)\n"
        "ip.set_custom_exc((KeyError,), lambda shell, kind, value, traceback, tb_offset=None: None)\nprint('after')"
    )
    assert run.text() == "after\n"
    (note,) = run.outcome.notes
    assert note == (
        "IPython pre_run_cell callback `shown`, IPython post_run_cell callback `Timer.stop`, "
        "IPython handler of KeyError: set in the cell only, since it does not travel"
    )
    assert node.run("get_ipython().events.register('pre_execute', print)").outcome.notes == []


_THREADS = """
import queue, threading, time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
def slow():
    time.sleep(30)
class Worker(threading.Thread):
    def run(self):
        time.sleep(30)
"""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("threading.Thread(target=slow).start()", "slow"),
        ("threading.Thread(target=slow, daemon=True).start()", "slow"),
        ("threading.Timer(30, slow).start()", "slow"),
        ("threading.Timer(30, [].append, args=[1]).start()", "list.append"),
        ("_ = ThreadPoolExecutor().submit(slow)", "slow"),
        ("_ = ThreadPoolExecutor().submit(time.sleep, 30)", "sleep"),
        ("Worker(daemon=True).start()", "Worker.run"),
        ("pool = ThreadPool(1); _ = pool.apply_async(slow); time.sleep(0.2)", "slow"),
    ],
)
def test_a_thread_that_still_works_when_the_cell_ends_is_said(node: Node, source: str, name: str) -> None:
    outcome = node.run(f"{_THREADS}{source}").outcome
    (note,) = [each for each in outcome.notes if "thread" in each and "not returned" not in each]
    assert note == f"1 thread(s) still ran after the cell ({name}), and were ended: wait for them in the cell"


def test_threads_that_are_done_or_wait_for_work_are_not_said(node: Node) -> None:
    done = (
        "from tqdm import tqdm\nfrom joblib import Parallel, delayed\nimport asyncio\n"
        "for _ in tqdm(range(2)): pass\n"
        "quick = threading.Thread(target=len, args=['']); quick.start(); quick.join()\n"
        "print(list(ThreadPoolExecutor().map(len, ['a'])), await asyncio.to_thread(len, 'ab'))\n"
        "print(ThreadPool(2).map(len, ['a']), Parallel(2, 'threading')(delayed(len)(each) for each in ['', '']))\n"
        "del quick, tqdm"
    )
    run = node.run(f"{_THREADS}{done}")
    assert run.outcome.status == "ok", run.text("stderr")
    assert not [each for each in run.outcome.notes if "thread" in each]


def test_a_handler_of_interrupts_and_a_dump_of_the_stack_are_as_in_a_plain_cell(node: Node) -> None:
    run = node.run(
        "import faulthandler, signal\nheard = []\n"
        "usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "signal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "signal.raise_signal(signal.SIGINT)\nfaulthandler.enable()\nfaulthandler.dump_traceback()\n"
        "print(usual, heard, faulthandler.is_enabled())"
    )
    assert run.outcome.status == "ok"
    assert run.outcome.notes == []
    assert run.text() == "True [1] True\n"
    assert "Current thread" in run.text("stderr")
