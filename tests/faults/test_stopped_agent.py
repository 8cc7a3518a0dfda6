"""A real agent that stands still for longer than the grace, while its cell goes on: there is never a second one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fault_bed import Cluster
from kernel_bed import Notebook

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded

#: ``alive``: the processes of earlier attempts that live when this one begins
_CELL = """%%gpu_train --gpus 2 --retries 1
import os, pathlib, time
begun = pathlib.Path("begun")
before = begun.read_text().split() if begun.exists() else []
alive = [pid for pid in before if pathlib.Path(f"/proc/{pid}").exists()]
with begun.open("a") as file:
    print(os.getpid(), file=file)
print("begun", flush=True)
while not os.path.exists("end"):
    pathlib.Path(f"works-{os.getpid()}").touch()
    time.sleep(0.01)
"""


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_an_agent_that_stood_still_ends_the_old_attempt_before_the_next_begins(
    own_home: HomePaths,
    monkeypatch: pytest.MonkeyPatch,
    open_notebook: Callable[[Cluster], Notebook],
    until: Callable[..., None],
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_NODE_GRACE", "4s")
    cluster = Cluster(start_embedded(home=own_home, asked=StartOptions(simulated=2), progress=print))
    notebook = open_notebook(cluster)
    cell = notebook.begin(_CELL)
    begun = notebook.folder / "begun"
    until(lambda: begun.exists() and begun.read_text(), "the first attempt")
    run, (old,) = cluster.last_run()["run"], begun.read_text().split()
    (agent,) = cluster.find("ray::NodeAgent")
    agent.suspend()
    try:
        until(lambda: cluster.last_run()["state"] == "queued", "the node to be given up")
        (notebook.folder / f"works-{old}").unlink()
        until((notebook.folder / f"works-{old}").exists, "the old attempt goes on")
    finally:
        agent.resume()
    until(lambda: len(begun.read_text().split()) == 2, "the second attempt")
    (notebook.folder / "end").touch()
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert notebook.value("alive") == []
    logs = sorted(path.name for path in (cluster.home / "store" / "runs" / run).glob("events*.log"))
    assert logs == ["events.1.log", "events.log"]
    assert [line for line in shown.lines() if line == "begun"] == ["begun"] * 2
    cluster.assert_nothing_is_held()
    cluster.close()
