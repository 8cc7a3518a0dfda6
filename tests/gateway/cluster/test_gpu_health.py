"""When a GPU, or a node, is believed to be ill, and when to be well again."""

from __future__ import annotations

from jupyter_gpu_release.gateway.cluster.gpu_health import GpuHealth, NodeDeaths
from jupyter_gpu_release.protocol.node import GpuInfo


def _judged(health: GpuHealth, gpu: GpuInfo, believed: dict[str, str], leased: tuple[str, ...] = ()) -> dict[str, str]:
    return health.judge("n1", "gpu-07", [gpu], leased, believed)


def test_two_readings_in_a_row_are_believed() -> None:
    health = GpuHealth(minds_memory=True)
    ill, well = GpuInfo("3", trouble="it is lost"), GpuInfo("3")
    assert _judged(health, well, {}) == {}
    assert _judged(health, ill, {}) == {}
    assert _judged(health, well, {}) == {}
    assert _judged(health, ill, {}) == {}
    believed = _judged(health, ill, {})
    assert believed == {"3": "GPU 3 of gpu-07 is set aside: it is lost"}
    assert _judged(health, well, believed) == believed
    assert _judged(health, ill, believed) == believed
    assert _judged(health, well, believed) == believed
    assert _judged(health, well, believed) == {}


def test_a_gpu_that_was_never_known_well_is_set_aside_at_its_first_reading() -> None:
    """Memory that others hold may be theirs for a moment only, or a run's that this gateway does not know yet."""
    health = GpuHealth(minds_memory=True)
    believed = _judged(health, GpuInfo("3", trouble="it is lost"), {})
    assert believed == {"3": "GPU 3 of gpu-07 is set aside: it is lost"}
    assert _judged(health, GpuInfo("3"), believed) == believed
    assert _judged(health, GpuInfo("4", used_bytes=5 << 30), {}) == {}


def test_a_gpu_without_a_reading_stays_as_it_was() -> None:
    """The driver answers nothing at all when it is in trouble: that makes no GPU well."""
    health = GpuHealth(minds_memory=True)
    believed = {"1": "GPU 1 of gpu-07 is set aside: it is lost"}
    for _ in range(3):
        assert health.judge("n1", "gpu-07", [], (), believed) == believed
        assert _judged(health, GpuInfo("0"), believed) == believed
    assert _judged(health, GpuInfo("1"), believed) == believed
    assert _judged(health, GpuInfo("1"), believed) == {}


def test_a_driver_that_has_not_answered_a_new_agent_yet_makes_no_gpu_well() -> None:
    """An agent that was started anew names its GPUs before its driver has said anything of them."""
    health = GpuHealth(minds_memory=True)
    unread = GpuInfo("3", is_unread=True)
    believed = _judged(health, GpuInfo("3", trouble="it is lost"), {})
    assert [_judged(health, unread, believed) for _ in range(3)] == [believed] * 3
    silent = GpuInfo("3", is_unread=True, trouble="its driver does not answer")
    assert "does not answer" in _judged(health, silent, believed)["3"]
    health.forget_node("n1")
    assert _judged(health, unread, {}) == {}
    assert _judged(health, silent, {}), "its first reading is believed"


def test_memory_of_others_counts_where_no_run_has_the_gpu() -> None:
    used = GpuInfo("0", used_bytes=5 << 30)
    for minds, leased, ill in ((True, (), True), (True, ("0",), False), (False, (), False)):
        health = GpuHealth(minds_memory=minds)
        _judged(health, used, {}, leased)
        assert bool(_judged(health, used, {}, leased)) == ill
    health = GpuHealth(minds_memory=True)
    _judged(health, used, {})
    assert _judged(health, used, {}) == {
        "0": "GPU 0 of gpu-07 is set aside: others than its runs hold 5 GiB of its memory"
    }


def test_runs_of_three_users_within_an_hour_condemn_a_node() -> None:
    deaths = NodeDeaths()
    assert not any(deaths.note("gpu-07", "ann", at_s) for at_s in (0.0, 10.0, 20.0))
    assert not deaths.note("gpu-07", "bob", 30.0)
    assert not deaths.note("gpu-08", "eve", 40.0)
    assert not deaths.note("gpu-07", "eve", 5000.0), "the others' were long ago"
    assert not deaths.note("gpu-07", "ann", 5010.0)
    why = deaths.note("gpu-07", "bob", 5020.0)
    assert why == "runs of ann, bob and eve died there within an hour, and not by their code"
    assert not deaths.note("gpu-07", "bob", 5030.0), "it begins anew once an admin has taken it back"
