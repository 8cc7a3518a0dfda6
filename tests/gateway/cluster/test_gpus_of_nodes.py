"""GPUs that Ray gives under names and numbers of its own, some of a machine's: listed, drained, set aside, given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from gpu_node_bed import GIVEN, ON_HEAD, ON_SECOND, PART, UUIDS, GpuNodes, gpu_nodes
from server_bed import API, ServerBed

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import NoSuchNodeError
from jupyter_gpu_release.protocol.admin import NodeDrain

# the cluster of its own: 20 s, minutes on a machine that is busy
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]
Until = Callable[[Callable[[], object], str], None]
HOST = os.uname().nodename
#: readings are 5 s apart, and two of them are believed
_ILL = ("ecc 2 1", "lost 3", "slowed 4 64")
_REASONS = {
    "2": "its memory had 1 error that ECC could not correct; a reset clears that",
    "3": "the driver says: GPU is lost",
    UUIDS[4]: "it is too hot, and slowed down by its hardware",
    PART: "others than its runs hold 5 GiB of its memory",
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuNodes]:
    with gpu_nodes(tmp_path_factory.mktemp("nodes")) as bed:
        yield bed


@pytest.fixture(autouse=True)
def as_users(nodes: GpuNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_URL", nodes.target.url)
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", nodes.target.token)


def test_the_gpus_that_ray_gives_are_listed_and_given_under_its_names(nodes: GpuNodes) -> None:
    """Those of the machine that it does not give are neither counted nor set aside, however ill they are."""
    status = nodes.status()
    assert (status.gpus.total, status.gpus.free) == (4, 4)
    assert [(gpu.name, gpu.slice_of) for gpu in nodes.gpus().values() if gpu.slice_of] == [("H100 MIG 1g.10gb", "5")]
    listed = {tuple((gpu.index, gpu.uuid) for gpu in node.gpus) for node in status.nodes}
    assert listed == {(("2", UUIDS[2]), ("3", UUIDS[3])), ((UUIDS[4], UUIDS[4]), (PART, PART))}
    assert nodes.reasons() == {}
    runs = [nodes.submit() for _ in GIVEN]
    assert sorted(run.gpu() for run in runs) == sorted(GIVEN)
    rows = nodes.gpus()
    for run in runs:
        assert rows[run.gpu()].run == run.run
        run.end()


def test_a_gpu_is_drained_under_the_name_that_it_is_listed_by(nodes: GpuNodes, until: Until) -> None:
    with GatewayClient.for_target(nodes.target) as gateway:
        with pytest.raises(NoSuchNodeError, match=f"{HOST} has no GPU 0") as caught:
            gateway.drain_node(NodeDrain(f"{HOST}:0"))
        assert set(caught.value.hint.removeprefix("GPUs: ").split(", ")) == set(GIVEN)
    drained = (ON_HEAD[1], ON_SECOND[0], ON_SECOND[1])
    for name, written in zip(drained, ("3", UUIDS[4][:10], PART), strict=True):
        assert main(["nodes", "drain", f"{HOST}:{written}", "--reason", "fan", "--wait"]) == 0
        until(lambda name=name: nodes.gpus()[name].state == "drained", "it to be out")
    until(lambda: nodes.status().gpus.free == 1, "the others to be held")
    first = nodes.submit()
    assert first.gpu() == ON_HEAD[0]
    waiting = nodes.submit()
    until(lambda: any(row.run == waiting.run for row in nodes.status().queue), "it to wait")
    assert main(["nodes", "resume", f"{HOST}:{PART}"]) == 0
    assert waiting.gpu() == PART
    for name in drained[:2]:
        assert main(["nodes", "resume", f"{HOST}:{name}"]) == 0
    others = [nodes.submit() for _ in range(2)]
    assert {run.gpu() for run in others} == set(drained[:2])
    for run in (first, waiting, *others):
        run.end()


def test_gpus_that_are_not_well_get_no_runs_until_they_are(
    nodes: GpuNodes, until: Until, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The reason of each is in the status, in the list of nodes and in the panel."""
    nodes.machine.show_well(*_ILL, part_used=5 << 30)
    until(lambda: nodes.reasons() == _REASONS, "all reasons")
    until(lambda: nodes.status().gpus.free == 0, "them to be held")
    waiting = [nodes.submit() for _ in GIVEN]
    until(lambda: len(nodes.status().queue) == len(GIVEN), "all to wait")
    capsys.readouterr()
    assert main(["nodes"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert main(["status"]) == 0
    assert capsys.readouterr().out.count("drained") >= len(GIVEN)
    of_user = {"JUPYTER_GPU_URL": nodes.target.url, "JUPYTER_GPU_TOKEN": nodes.target.token}
    server = ServerBed(tmp_path_factory.mktemp("server"), environment=of_user)
    try:
        panel = server.http.get(f"{API}/status").text
        until(lambda: _REASONS["3"] in server.http.get(f"{API}/status").text, "the panel to know")
        panel = server.http.get(f"{API}/status").text
    finally:
        server.stop()
    for name, reason in _REASONS.items():
        assert f"GPU {name} of {HOST} is set aside: {reason}" in told
        assert f"GPU {name} of {HOST} is set aside: {reason}" in panel
    assert [row.run for row in nodes.status().queue] == [run.run for run in waiting]

    nodes.machine.show_well()
    assert {run.gpu() for run in waiting} == set(GIVEN)
    assert nodes.reasons() == {}
    for run in waiting:
        run.end()


def test_a_driver_that_is_dead_when_the_agents_start_has_all_gpus_set_aside(nodes: GpuNodes, until: Until) -> None:
    nodes.machine.show_well("error 9")
    nodes.kill_agents()
    dead = dict.fromkeys(GIVEN, "the driver says: Driver Not Loaded")
    until(lambda: nodes.reasons() == dead, "all reasons")
    until(lambda: nodes.status().gpus.free == 0, "them to be held")
    waiting = nodes.submit()
    until(lambda: any(row.run == waiting.run for row in nodes.status().queue), "it to wait")
    nodes.machine.show_well()
    assert waiting.gpu() in GIVEN
    until(lambda: nodes.reasons() == {}, "all to be well")
    waiting.end()


def test_halves_of_a_gpu_are_free_when_the_agent_of_both_was_killed(nodes: GpuNodes, until: Until) -> None:
    with nodes.run_of("ann", 0.5) as first, nodes.run_of("bob", 0.5) as second:
        assert first.gpu() == second.gpu()
        assert sorted(part.user for part in nodes.gpus()[first.gpu()].parts) == ["ann", "bob"]
        nodes.kill_agents()
        assert [run.state_at_end() for run in (first, second)] == ["lost"] * 2
    until(lambda: nodes.status().gpus.held == 0, "nobody to have a part")
    whole = [nodes.submit() for _ in GIVEN]
    assert {run.gpu() for run in whole} == set(GIVEN)
    for run in whole:
        run.end()


def test_a_host_on_which_runs_of_three_users_died_gets_none_until_it_is_resumed(
    nodes: GpuNodes, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as users:
        runs = [users.enter_context(nodes.run_of(user)) for user in ("ann", "bob", "eve")]
        assert {run.gpu() for run in runs} < set(GIVEN)
        nodes.kill_agents()
        assert [run.state_at_end() for run in runs] == ["lost"] * 3
    words = f"the node {HOST} is drained by the gateway: runs of ann, bob and eve died there within an hour"
    until(lambda: all(words in node.drained for node in nodes.status().nodes), "it to be out")
    capsys.readouterr()
    assert main(["nodes"]) == 0
    assert words in " ".join(capsys.readouterr().out.split())
    waiting = nodes.submit()
    until(lambda: any("died there within an hour" in row.reason for row in nodes.status().queue), "its reason")
    assert main(["nodes", "resume", HOST]) == 0
    assert waiting.gpu() in GIVEN
    waiting.end()
