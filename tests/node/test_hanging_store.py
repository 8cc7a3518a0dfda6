"""A node whose store stops answering while a cell runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hanging_fs import HangingStore, hanging_store
from node_bed import Node, Run

from jupyter_gpu_release.protocol.node import RunWaits
from jupyter_gpu_release.store.event_log import read_events
from jupyter_gpu_release.store.layout import RunPaths

Until = Callable[[Callable[[], object], str], None]
_CELL = """
import os, time
answer = 42
print("before")
while not os.path.exists({go!r}):
    time.sleep(0.005)
for number in range(200):
    print("line", number)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HangingStore]:
    with hanging_store(tmp_path) as made:
        yield made


@pytest.fixture
def node(store: HangingStore) -> Iterator[Node]:
    made = Node(store.path, ["json"])
    yield made
    store.answer()
    made.close()


def _says_why(run: Run) -> bool:
    waits = [message.waits_for for message in run.messages if isinstance(message, RunWaits)]
    return any("no answer" in wait.reason and run.order.folder in wait.path for wait in waits)


def _end_while_it_hangs(run: Run, store: HangingStore, go: Path) -> None:
    run.wait_for(lambda run: "before" in run.text())
    store.hang()
    go.touch()
    run.wait_for(lambda run: run.phase("released"), 30)
    store.answer()
    assert run.wait().status == "ok"


def test_gpus_are_free_and_output_is_shown_while_the_store_hangs(
    node: Node, store: HangingStore, tmp_path: Path, until: Until
) -> None:
    go = tmp_path / "go"
    runs = [node.start(_CELL.format(go=str(go)), workdir=str(tmp_path)) for _ in range(8)]  # more than a pool's threads
    for run in runs:
        run.wait_for(lambda run: "before" in run.text())
    store.hang()
    go.touch()
    for run in runs:
        run.wait_for(lambda run: run.phase("released") and "line 199" in run.text())
    for run in runs:
        run.wait_for(_says_why)
    store.answer()
    for run in runs:
        assert run.wait().status == "ok"
        log = RunPaths(Path(run.on_node.order.folder)).events
        until(lambda log=log: "line 199" in str(list(read_events(log))), "the log to be whole")  # type: ignore[misc]
        numbers = [event.n for event in read_events(log)]
        assert numbers == list(range(1, len(numbers) + 1))


def test_gpus_are_free_when_the_store_hangs_as_a_cell_publishes(
    node: Node, store: HangingStore, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    source = "import jupyter_gpu_release as gpu_release\ngpu_release.publish(first=bytes(5000))\n" + _CELL.format(
        go=str(go)
    )
    run = node.start(source + "gpu_release.publish(second=bytes(5000))\n", workdir=str(tmp_path))
    _end_while_it_hangs(run, store, go)
    assert any("published values" in note for note in run.outcome.notes)


def test_gpus_are_free_when_the_store_hangs_as_a_cell_leaves_a_file_of_it_open(
    node: Node, store: HangingStore, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    opens = f"import os\nfile = os.open({str(store.path / 'left')!r}, os.O_CREAT | os.O_WRONLY)\nos.write(file, b'x')\n"
    run = node.start(opens + _CELL.format(go=str(go)), workdir=str(tmp_path))
    _end_while_it_hangs(run, store, go)
    assert (store.path / "left").read_bytes() == b"x"


@pytest.mark.thorough  # it is told after 10 s
def test_a_cell_that_waits_for_a_store_that_hangs_and_cannot_be_killed_is_told(
    node: Node, store: HangingStore, tmp_path: Path
) -> None:
    (store.path / "data").write_bytes(b"x")
    reads = f"print('before')\nwhile True:\n    open({str(store.path / 'data')!r}).read()\n"
    run = node.start(reads, workdir=str(tmp_path), grace_s=0.5)
    run.wait_for(lambda run: "before" in run.text())
    store.hang()
    run.signal("interrupt")
    run.wait_for(lambda run: "cannot be killed" in run.text("stderr"))
    assert not run.phase("released")
    store.answer()
    assert run.wait().status == "interrupted"
