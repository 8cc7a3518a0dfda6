"""Nodes, as they tell of themselves."""

from __future__ import annotations

from jupyter_gpu_release.checks.certificate import check_end
from jupyter_gpu_release.checks.finding import BROKEN, NOTE, OK
from jupyter_gpu_release.checks.nodes import check_clocks, check_drivers, check_frameworks, check_pythons, check_stores
from jupyter_gpu_release.protocol.node import ProbeReport
from jupyter_gpu_release.protocol.rest import NodeCheck, NodeChecks


def test_clocks_drivers_and_certificates_of_others() -> None:
    nodes = [
        NodeCheck("gpu-01", versions={"driver": "550.1"}, clock_ahead_s=-3600.0),
        NodeCheck("gpu-02", versions={"driver": "535.2"}),
        NodeCheck("gpu-03", agent_problem="it is away", clock_ahead_s=900.0),
    ]
    found = {finding.finding: finding.level for finding in check_clocks(NodeChecks(1, "/store", nodes, 1010.0), 1000.0)}
    assert found == {
        "the clock of the gateway is 10 s ahead of this one": NOTE,
        "the clock of gpu-01 is 59 min 50 s behind this one": BROKEN,
        "the clock of gpu-02 is 10 s ahead of this one": NOTE,
    }
    (right,) = check_clocks(NodeChecks(1, "/store", nodes[1:], 1001.0), 1000.0)
    assert right.level == OK
    assert not list(check_clocks(NodeChecks(1, "/store", nodes), 1000.0)), "an older gateway does not tell"
    (differ,) = check_drivers(NodeChecks(1, "/store", nodes))
    assert "gpu-01 550.1, gpu-02 535.2" in differ.finding
    assert not list(check_drivers(NodeChecks(1, "/store", nodes[1:])))
    assert [check_end(days).level for days in (400.0, 29.0)] == [OK, NOTE]


def test_each_nodes_frameworks_are_held_against_its_own_driver() -> None:
    built = {"torch 2.13.0": "13.0"}
    nodes = [
        NodeCheck("gpu-01", versions={"driver": "550.1"}, probe=ProbeReport(frameworks=built, driver_cuda="12.4")),
        NodeCheck("gpu-02", versions={"driver": "580.1"}, probe=ProbeReport(frameworks=built, driver_cuda="13.0")),
        NodeCheck("cpu-01", probe=ProbeReport(frameworks=built)),
        NodeCheck("old"),
    ]
    old, new = check_frameworks(NodeChecks(1, "/store", nodes))
    assert (old.level, old.where) == (BROKEN, "gpu-01")
    assert "torch 2.13.0 is built for CUDA 13, the driver 550.1 supports up to 12.4" in old.finding
    assert "upgrade the NVIDIA driver, or install torch for CUDA 12" in old.hint
    assert (new.level, new.where) == (OK, "gpu-02")


def test_another_minor_version_of_python_is_noted_for_kernels_alone() -> None:
    checks = NodeChecks(1, "/store", [NodeCheck("gpu-01", python="3.12.1"), NodeCheck("gpu-02", python="3.11.9")])
    assert not list(check_pythons(checks, ""))
    (differs,) = check_pythons(checks, "3.11.2")
    assert (differs.level, differs.where) == (NOTE, "gpu-01")
    assert "Python 3.12.1, this kernel 3.11.2" in differs.finding


def test_a_node_that_sees_another_store_is_broken() -> None:
    ids = {"same": "0123", "other": "4567", "none": "", "unknown": None}
    nodes = [NodeCheck(host, probe=ProbeReport(store_id=found)) for host, found in ids.items()] + [NodeCheck("old")]
    checks = NodeChecks(1, "/store", nodes)
    other, none = check_stores(checks, "0123")
    assert [(one.level, one.where) for one in (other, none)] == [(BROKEN, "other"), (BROKEN, "none")]
    assert "another store (store.json says 4567) at /store" in other.finding
    assert "a folder without store.json" in none.finding
    assert not list(check_stores(checks, "")), "an older gateway does not tell"
