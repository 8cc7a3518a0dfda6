"""Notebooks, head and two nodes on hosts of their own: links that are cut, slow or lossy, a host that is lost.

The clocks of one node and of one kernel are an hour ahead of all others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from far_bed import FarBed
from kernel_bed import RemoteNotebook, Shown
from network_hosts import Network
from relay import RelayProcess
from soak import sized

from jupyter_gpu_release.store.event_log import read_events
from jupyter_gpu_release.store.layout import RunPaths

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]  # a cluster of its own, over several hosts
Until = Callable[..., None]
_HOUR_S = 3600


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarBed]:
    with Network("laptop", "head", "node-a", "node-b") as network:
        bed = FarBed(network, tmp_path_factory.mktemp("far"))
        try:
            bed.start()
            yield bed
        finally:
            bed.stop()


@pytest.fixture(scope="module")
def notebook(bed: FarBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteNotebook]:
    notebook = RemoteNotebook(bed.network["laptop"], tmp_path_factory.mktemp("near"), bed.kernel_environment())
    yield notebook
    notebook.close()


def _numbers(shown: Shown) -> list[int]:
    return _numbers_in("\n".join(shown.lines()))


def _numbers_in(text: str) -> list[int]:
    return [int(line) for line in text.splitlines() if line.isdecimal()]


#: in a folder that all hosts see: a file for each GPU while a run holds it, which fails when there is one
_HELD = "f'held-{socket.gethostname()}-{os.environ[\"CUDA_VISIBLE_DEVICES\"]}'"
_HOLD_IN_TURN = f"""
import jupyter_gpu_release as gpu_release

def hold(folder):
    import os, pathlib, socket, time
    held = pathlib.Path(folder, {_HELD})
    held.touch(exist_ok=False)
    time.sleep(1)
    held.unlink()
    return "held"

futures = [gpu_release.launch(hold, folder) for _ in range(16)]
"""
#: the grace of a node is 8 s here
_CUT_S = 5.0
_COUNT = """
import os, pathlib, socket, time
print("on", socket.gethostname(), flush=True)
last, go = 0, pathlib.Path({go!r})
held = go.with_name(HELD)
held.touch(exist_ok=False)
pathlib.Path({go!r} + ".run").write_text(os.environ["GPU_RUN_DIR"])
while not go.exists():
    print(last, flush=True)
    pathlib.Path({go!r} + ".step").write_text(str(last))
    time.sleep(0.05)
    last += 1
held.unlink()
print(last)
""".replace("HELD", _HELD.replace("{", "{{").replace("}", "}}"))


class Counting:
    """A cell that counts aloud until it may end, and writes each number down as well."""

    def __init__(self, notebook: RemoteNotebook, folder: Path, options: str = "") -> None:
        self._notebook, self.go = notebook, folder / "go"
        self.message = notebook.begin(f"%%gpu_train {options}\n{_COUNT.format(go=str(self.go))}")
        shown = notebook.until(lambda shown: "3" in shown.lines())
        self.host = next(line[3:] for line in shown.lines() if line.startswith("on "))

    def step(self) -> int:
        """The last number, as the cell's own host knows it."""
        return int(self.go.with_suffix(".step").read_text() or 0)

    @property
    def log(self) -> Path:
        """The recorded output, on the store."""
        return RunPaths(Path(self.go.with_suffix(".run").read_text()).parent).events

    def end(self) -> Shown:
        """Let it end: each number was shown once, in order."""
        self.go.touch()
        shown = self._notebook.end(self.message)
        assert shown.status == "ok", shown.traceback
        assert _numbers(shown) == list(range(self._notebook.value("last") + 1)), "each line once, in order"
        return shown


def test_cells_values_files_and_a_gang_over_two_hosts(notebook: RemoteNotebook) -> None:
    notebook.ok("import numpy; sent = numpy.arange(400_000.0)")
    notebook.ok(
        "%%gpu_train\nimport socket, pathlib, jupyter_gpu_release as gpu_release\nwhere = socket.gethostname()\n"
        "back = sent * 2\n(pathlib.Path(gpu_release.run_dir) / 'note').write_text('from ' + where)"
    )
    where = notebook.value("where")
    assert where in ("node-a", "node-b")
    assert notebook.value("float(back.sum() / sent.sum())") == 2.0
    notebook.ok(
        "%%gpu_train --gpus 4 --ranks 4 --nodes 2 --gather hosts\n"
        "import socket\nfrom jupyter_gpu_release import ranks\n"
        "hosts = socket.gethostname()\nleader = ranks.broadcast(hosts)\nranks.barrier()"
    )
    assert sorted(notebook.value("hosts")) == ["node-a", "node-a", "node-b", "node-b"]
    assert notebook.value("leader") == notebook.value("hosts[0]")


def test_a_node_whose_clock_is_an_hour_ahead(notebook: RemoteNotebook, bed: FarBed, tmp_path: Path) -> None:
    """While one cell has both GPUs of one node another is on the other; neither was there for an hour."""
    go = tmp_path / "go"
    notebook.ok(
        "%%gpu_train --async --gpus 2\nimport pathlib, socket, time\nfirst = socket.gethostname()\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)"
    )
    shown = [notebook.ok("%%gpu_train --gpus 2 --timeout 5m --wait 5m\nimport socket; second = socket.gethostname()")]
    go.touch()
    shown.append(notebook.ok("%gpu_wait"))
    assert {notebook.value("first"), notebook.value("second")} == {"node-a", "node-b"}
    for one in shown:
        assert not re.search(r"\d h|6\d min", one.receipt), one.receipt
    findings = [one for one in bed.doctor() if one["check"] == "clocks"]
    assert [one["level"] for one in findings if "node-b" in one["finding"]] == ["broken"], findings


def test_a_firewall_between_two_nodes_and_names_that_nobody_knows_are_found(bed: FarBed) -> None:
    """The head reaches both, so all looks well until a gang spans them."""
    before = [one for one in bed.doctor() if one["check"] == "network"]
    assert [(one["level"], one["finding"].startswith("3 nodes reach")) for one in before] == [("ok", True)], before
    first, second = bed.network["node-a"], bed.network["node-b"]
    drop = ("blackhole", f"{first.address}/32")  # answers to node-a
    second.run("ip", "route", "add", *drop)
    try:
        findings = bed.doctor()
    finally:
        second.run("ip", "route", "del", *drop)
    (silent,) = [one for one in findings if one["check"] == "network" and "no answer" in one["finding"]]
    assert (silent["level"], silent["where"]) == ("broken", "node-b")
    for what in ("Ray's node manager", "Ray's object manager", "its node agent", "from node-a"):
        assert what in silent["finding"]
    assert "firewall" in silent["mend"]
    names = [one for one in findings if one["check"] == "dns"]
    assert {one["where"] for one in names} == {"head", "node-a", "node-b"}, names
    assert all(one["mend"] for one in findings if one["level"] != "ok")


@pytest.mark.parametrize("cut", ["node", "head"])
def test_a_link_that_is_cut_for_a_moment_costs_nothing(
    notebook: RemoteNotebook, bed: FarBed, until: Until, tmp_path: Path, cut: str
) -> None:
    """Of the node, or of the head with Ray's and our own centre, for five seconds. The cell goes on; its output comes
    when the link is back. Others are granted GPUs before, meanwhile and afterwards, and never one that is held.
    """
    cell = Counting(notebook, tmp_path)
    lost = bed.network[cell.host if cut == "node" else "head"]
    (tmp_path / "beside").mkdir()
    beside = RemoteNotebook(bed.network["laptop"], tmp_path / "beside", bed.kernel_environment())
    try:
        beside.ok(f"folder = {str(tmp_path)!r}{_HOLD_IN_TURN}")
        until(lambda: len(list(tmp_path.glob("held-*"))) > 1, "another run beside the cell")
        bed.network.cut(lost)
        cut_s, before = time.monotonic(), cell.step()
        steps = 60  # at least 3 s of the cell's
        until(lambda: cell.step() > before + steps, "the cell's steps while the link is cut")
        time.sleep(max(0.0, cut_s + _CUT_S - time.monotonic()))
        seen = len(_numbers(notebook.until(lambda shown: True)))
        bed.network.join(lost)
        beside.ok("ended = [future.result(timeout=120) for future in futures]")
        assert beside.value("ended") == ["held"] * beside.value("len(futures)")
    finally:
        beside.close()
    cell.end()
    assert seen < before + steps, "the link was not cut"
    recorded = [event.data["text"] for event in read_events(cell.log) if event.kind == "stream"]
    assert _numbers_in("".join(recorded)) == list(range(notebook.value("last") + 1)), "each line is recorded once"


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_kernel_whose_link_is_cut_for_long_stops_waiting_and_its_run_goes_on(
    notebook: RemoteNotebook, bed: FarBed, until: Until, tmp_path: Path
) -> None:
    """At full size for five minutes. The cell fails and names its run; attaching later shows each of its lines."""
    laptop = bed.network["laptop"]
    notebook.ok(
        "import jupyter_gpu_release.client.session as way, jupyter_gpu_release.kernel.runs.follow as follow\n"
        f"usual = follow._GIVE_UP_S, way.CONNECT_S; follow._GIVE_UP_S = {sized(3, 60)}; way.CONNECT_S = 3600"
    )
    cell = Counting(notebook, tmp_path)
    bed.network.cut(laptop)
    before = cell.step()
    try:
        failed = notebook.end(cell.message)
        assert failed.reply["ename"] == "GatewayUnavailableError", failed.traceback
        for more in range(0, sized(80, 300 * 20), 80):  # the cell's own seconds
            until(lambda more=more: cell.step() > before + more, "the cell's steps while the link is cut")
        (run,) = set(re.findall(r"%gpu_logs (\S+?),", failed.traceback))
        notebook.ok("follow._GIVE_UP_S = usual[0]")
        attached = notebook.begin(f"%gpu_attach {run}")  # before there is a way to the gateway
        notebook.until(lambda shown: any("connecting to the gateway" in text for text in shown.displays()))
        before_attached = cell.step()
        until(lambda: cell.step() > before_attached + 80, "a question to nobody, which fails within 3 s")
    finally:
        bed.network.join(laptop)
    cell.go.touch()
    shown = notebook.end(attached)
    assert shown.status == "ok", shown.traceback
    notebook.ok("way.CONNECT_S = usual[1]")
    assert 0 < len(_numbers(failed)) <= before + 80, "the link was not cut"
    assert _numbers(shown) == list(range(notebook.value("last") + 1)), "each line once, in order"


def test_a_slow_network_that_loses_packets_and_a_clock_that_is_an_hour_ahead(bed: FarBed, tmp_path: Path) -> None:
    """50 ms in each direction, and stalls as TCP has them when packets are lost; the kernel's clock is wrong."""
    laptop = bed.network["laptop"]
    relay = RelayProcess(bed.url, laptop.address, laptop.command([]))
    relay.order("delay_s", 0.05)
    relay.order("stall_every_s", 0.5)
    notebook = RemoteNotebook(laptop, tmp_path, bed.kernel_environment(f"http://{relay.place}", **bed.hour_ahead))
    try:
        shown = notebook.ok(
            "%%gpu_train --wait 10m --timeout 30m\nimport time; there = time.time()\nfor i in range(300): print(i)"
        )
        assert _numbers(shown) == list(range(300))
        assert notebook.value("__import__('time').time() - there") > _HOUR_S - 60, "the clocks are an hour apart"
        assert "60 min" not in shown.receipt
        assert "1 h" not in shown.receipt
        cell = notebook.begin("%%gpu_train\nimport time\nprint('begun', flush=True)\nwhile True: time.sleep(0.1)")
        notebook.until(lambda shown: "begun" in shown.lines())
        relay.order("cut")
        notebook.interrupt()
        assert notebook.end(cell).reply["ename"] == "KeyboardInterrupt"
    finally:
        notebook.close()
        relay.close()


def test_a_notebook_on_a_host_without_the_shared_folder(bed: FarBed, tmp_path: Path) -> None:
    """Small values travel all the same; what has to go through the store is refused before anything is queued."""
    empty = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{bed.store}" && exec "$@"', "sh"]
    notebook = RemoteNotebook(bed.network["laptop"], tmp_path, bed.kernel_environment(), prefix=empty)
    try:
        notebook.ok("n = 20; import numpy; large = numpy.zeros(1 << 20)")
        notebook.ok("%%gpu_train\nanswer = 2 * n + 2")
        assert notebook.value("answer") == 42
        failed = notebook.run("%%gpu_train\ntotal = float(large.sum())")
        assert failed.status == "error"
        assert str(bed.store) in failed.traceback
    finally:
        notebook.close()


def test_a_node_that_loses_its_power_is_lost_and_the_cell_runs_elsewhere(
    notebook: RemoteNotebook, bed: FarBed, tmp_path: Path
) -> None:
    """Last: one node is gone afterwards."""
    go = tmp_path / "go"
    cell = notebook.begin(
        "%%gpu_train --gpus 2 --retries 1\nimport pathlib, socket, time\nwhere = socket.gethostname()\n"
        f"print('on', where, flush=True)\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)"
    )
    shown = notebook.until(lambda shown: any(line.startswith("on ") for line in shown.lines()))
    first = shown.lines()[-1].split()[-1]
    bed.network.cut(bed.network[first])
    bed.network[first].kill_all()
    go.touch()
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert {first, notebook.value("where")} == {"node-a", "node-b"}
    assert first in shown.receipt, shown.receipt
