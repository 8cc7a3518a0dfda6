"""Nodes, as they tell of themselves."""

from __future__ import annotations

from msgspec import convert

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.checks.certificate import check_end
from jupyter_gpu_release.checks.finding import BROKEN, NOTE, OK
from jupyter_gpu_release.checks.nodes import (
    check_clocks,
    check_drivers,
    check_environments,
    check_frameworks,
    check_nodes,
    check_process_limits,
    check_pythons,
    check_shared_memory,
    check_stores,
)
from jupyter_gpu_release.protocol.node import ProbeReport, PythonTry
from jupyter_gpu_release.protocol.rest import NodeCheck, NodeChecks, StatusDocument


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


def test_a_container_with_little_shared_memory_is_noted() -> None:
    sizes = {"docker": 64 << 20, "enough": 1 << 30, "unknown": None}
    nodes = [NodeCheck(host, probe=ProbeReport(shared_bytes=size)) for host, size in sizes.items()] + [NodeCheck("old")]
    (little,) = check_shared_memory(NodeChecks(1, "/store", nodes))
    assert (little.level, little.where) == (NOTE, "docker")
    assert "/dev/shm holds 64 MiB" in little.finding
    assert "--shm-size" in little.hint


def test_limits_that_cells_would_meet_are_noted_with_the_cure() -> None:
    probes = {
        "laptop": ProbeReport(open_files=1024, processes=None),
        "pod": ProbeReport(open_files=1 << 20, processes=1024),
        "enough": ProbeReport(open_files=65536, processes=96365),
        "unlimited": ProbeReport(open_files=-1),
    }
    nodes = [NodeCheck(host, probe=probe) for host, probe in probes.items()] + [NodeCheck("old")]
    files, processes = check_process_limits(NodeChecks(1, "/store", nodes))
    assert (files.level, files.where, processes.where) == (NOTE, "laptop", "pod")
    assert "a process may have 1024 files open" in files.finding
    assert "LimitNOFILE" in files.hint
    assert "1024 processes and threads at most" in processes.finding
    assert "podPidsLimit" in processes.hint


def test_a_node_that_cannot_build_environments_says_why() -> None:
    said = ("", "no index has answered\n  → is it reachable?", None)
    probes = [NodeCheck(f"gpu-0{n}", probe=ProbeReport(environments_problem=each)) for n, each in enumerate(said)]
    right, wrong = check_environments(NodeChecks(1, "/store", [*probes, NodeCheck("old")]))
    assert (right.level, right.where) == (OK, "gpu-00")
    assert (wrong.level, wrong.finding, wrong.hint) == (NOTE, "gpu-01: no index has answered", "is it reachable?")


def test_each_python_that_the_operator_offers_is_looked_for_on_each_node() -> None:
    here = [PythonTry("3.13", "3.13.1"), PythonTry("/opt/python", "3.12.1")]
    there = [PythonTry("3.13", problem="the node has no Python 3.13 yet", mend="install it"), here[1]]
    third = PythonTry("/opt/python", "3.13.0")
    nodes = [
        NodeCheck(host, probe=ProbeReport(pythons=found))
        for host, found in (("gpu-01", here), ("gpu-02", there), ("gpu-03", [third]))
    ]
    found = list(check_environments(NodeChecks(1, "/store", nodes)))
    assert [one.finding for one in found if one.level == OK] == [
        "gpu-01 has Python 3.13.1 (3.13)",
        "gpu-01 has Python 3.12.1 (/opt/python)",
        "gpu-02 has Python 3.12.1 (/opt/python)",
        "gpu-03 has Python 3.13.0 (/opt/python)",
    ]
    missing, differs = (one for one in found if one.level == NOTE)
    assert (missing.where, missing.finding) == ("gpu-02", "gpu-02: the node has no Python 3.13 yet")
    assert missing.hint == "install it"
    assert "/opt/python is Python 3.12 on gpu-01 and gpu-02, 3.13 on gpu-03" in differs.finding


def test_gpu_libraries_that_differ_from_node_to_node_are_noted() -> None:
    owned = ({"torch": "2.4", "jax": "1"}, {"torch": "2.5", "jax": "1", "acme-kernels": "3"}, {})
    nodes = [NodeCheck(f"gpu-0{n}", probe=ProbeReport(owned=each)) for n, each in enumerate(owned)]
    found = list(check_environments(NodeChecks(1, "/store", nodes)))
    assert [(one.check, one.level, one.finding) for one in found] == [
        ("versions", NOTE, "acme-kernels: missing on gpu-00, 3 on gpu-01"),
        ("versions", NOTE, "torch: 2.4 on gpu-00, 2.5 on gpu-01"),
    ]


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


def test_each_node_is_named_with_what_it_lacks() -> None:
    gpus = [
        {"index": "0", "state": "drained", "drained": "GPU 0 is drained by ann"},
        {"index": "1", "state": "drained", "drained": "its driver reported Xid 79", "unwell": True},
        {"index": "2", "state": "free"},
    ]
    gpu = {"uuid": "", "name": "", "memory_bytes": 0, "used_bytes": 0, "utilization": None}
    rows = [
        {"id": "a", "host": "a", "gpus": [{**gpu, **each} for each in gpus], "notes": ["torch is not preloaded"]},
        {"id": "b", "host": "b", "gpus": [], "drained": "b is drained by ann"},
    ]
    counts = {"total": 3, "held": 0, "free": 1, "external": 0}
    document = {"schema_version": 1, "simulated": False, "gateway": {"url": "", "version": ""}, "gpus": counts}
    status = convert({**document, "nodes": rows, "queue": [], "runs": []}, StatusDocument, strict=False)
    nodes = [
        NodeCheck("a", version=__version__, python="3.11.2"),
        NodeCheck("b", version="0.1", store_problem="it is full\n  → make room"),
        NodeCheck("c", store_problem="it is not there"),
        NodeCheck("d", agent_problem="its agent does not answer"),
    ]
    found = list(check_nodes(status, NodeChecks(1, "/store", nodes)))
    assert [(one.check, one.level, one.where, one.finding, one.hint) for one in found if one.level != OK] == [
        ("gpus", NOTE, "a", "GPU 0 is drained by ann", "jupyter gpu nodes resume a:0"),
        ("gpus", NOTE, "a", "its driver reported Xid 79", "once it is well it comes back by itself"),
        ("nodes", NOTE, "b", "b is drained by ann", "jupyter gpu nodes resume b"),
        ("nodes", NOTE, "a", "a: torch is not preloaded", found[5].hint),
        ("versions", NOTE, "b", f"b has version 0.1, this is {__version__}", found[7].hint),
        ("store", BROKEN, "b", "b: it is full", "make room"),
        ("nodes", NOTE, "c", "c: its agent has not introduced itself yet", found[9].hint),
        ("store", BROKEN, "c", "c: it is not there", "make the store writable there, under the same path"),
        ("nodes", BROKEN, "d", "d: its agent does not answer", "Ray restarts the agent; see Ray's logs there"),
    ]
    assert [one.finding for one in found if one.level == OK] == [
        f"a: 3 GPUs, Python 3.11.2, package {__version__}",
        "/store can be written and read from a",
        "b: 0 GPUs, Python , package 0.1",
    ]
