"""Findings: none without a cure but those that are fine."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest
from ports import free_port

from jupyter_gpu_release import checks
from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.checks import (
    certificate,
    frameworks,
    gateway,
    home,
    jupyter_servers,
    network,
    nodes,
    package,
    pod,
    slurm,
)
from jupyter_gpu_release.checks.finding import (
    BROKEN,
    NOTE,
    OK,
    Finding,
    at,
    broken_by,
    note,
    ok,
    report_on,
    worst_first,
)
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.errors import GpuReleaseError
from jupyter_gpu_release.host.slurm import Slurm
from jupyter_gpu_release.protocol.config import GatewayConfig, SlurmPool
from jupyter_gpu_release.protocol.node import NameLookup, PortTry, ProbeReport
from jupyter_gpu_release.protocol.rest import FileTrouble, Health, NodeCheck, NodeChecks, StatusDocument

_PROBE = ProbeReport(
    [
        PortTry("gpu-02", "10.0.0.2", 6379, "Ray's control store (GCS)", "silent"),
        PortTry("gpu-02", "10.0.0.2", 6380, "Ray's node manager", "refused"),
        PortTry("gpu-02", "10.0.0.2", 6381, "Ray's object manager", "unreachable", "No route to host"),
    ],
    [
        NameLookup("gpu-02", "10.0.0.2", problem="Name or service not known"),
        NameLookup("gpu-01", "10.0.0.1", found=["127.0.1.1"]),
        NameLookup("gpu-03", "10.0.0.3", found=["10.0.0.9"]),
    ],
    {"torch 2.13.0": "13.0", "torch 2.13.0+cpu": ""},
    "12.4",
)
#: everything is wrong with it
_NODES = NodeChecks(
    1,
    "/store",
    [
        NodeCheck("gpu-01", "", "cannot write", "3.9.1", "0.0.1", {"driver": "550.1"}, -3600.0, _PROBE),
        NodeCheck("gpu-02", "", "silent\n  → look at its file server", "3.9.1", __version__, {"driver": "535.2"}),
        NodeCheck("gpu-03", "it is away"),
        NodeCheck("gpu-04", probe=ProbeReport(store_id="4567", environments_problem="no uv\n  → install it")),
        NodeCheck("gpu-05", probe=ProbeReport(shared_bytes=64 << 20, open_files=1024, processes=1024)),
    ],
    1010.0,
)
_STATUS = msgspec.convert(
    {
        "schema_version": 1,
        "simulated": False,
        "gateway": {"url": "", "version": "", "up": True},
        "gpus": {"total": 2, "held": 0, "free": 2, "external": 0},
        "queue": [],
        "runs": [],
        "nodes": [
            {
                "id": "1",
                "host": "gpu-01",
                "drained": "drained by ann",
                "notes": ["torch could not be preloaded"],
                "gpus": [
                    {
                        "index": "0",
                        "uuid": "u",
                        "name": "H100",
                        "memory_bytes": 1,
                        "used_bytes": 0,
                        "utilization": None,
                        "state": "drained",
                        "drained": "GPU 0 is drained by ann",
                    },
                    {
                        "index": "1",
                        "uuid": "v",
                        "name": "H100",
                        "memory_bytes": 1,
                        "used_bytes": 0,
                        "utilization": None,
                        "state": "drained",
                        "drained": "GPU 1 has lost its link",
                        "unwell": True,
                    },
                ],
            }
        ],
    },
    StatusDocument,
)


def _bad_cases(folder: Path) -> dict[Callable[..., object], Iterable[Finding] | Finding]:
    """Every check, each with what is wrong."""
    (folder / "open").touch(mode=0o644)
    (folder / "home").mkdir(mode=0o755)
    (folder / "file").touch()
    nobody = Target(f"https://127.0.0.1:{free_port()}", "secret")
    driver = frameworks.Driver(True, "550.54", (12, 4))
    return {
        certificate.check_certificate: certificate.check_certificate(nobody, 0.0, 5.0),
        certificate.check_end: certificate.check_end(3.0),
        frameworks.compare_cuda: frameworks.compare_cuda(driver, "torch 2.13.0", (13, 0)),
        gateway.check_cluster: gateway.check_cluster(nobody, gateway.check_used_store),
        gateway.check_head: gateway.check_head(Health(True, "0.1.0", 1, "c", 1, 2, 2, 4, simulated=True)),
        gateway.check_same_store: gateway.check_same_store(folder, "0123"),
        gateway.check_told: gateway.check_told(_STATUS, _NODES, 1000.0),
        gateway.check_used_store: gateway.check_used_store(folder / "none"),
        gateway.check_version: gateway.check_version("9", 99),
        gateway.check_within: gateway.check_within(5.0, gateway.check_used_store, folder / "none"),
        jupyter_servers.check_jupyter_servers: jupyter_servers.check_jupyter_servers(_down_server(folder), 5.0),
        home.check_home: home.check_home(HomePaths(folder / "home")),
        slurm.check_slurm: slurm.check_slurm(_pool_of(folder / "pool"), Slurm({"PATH": "/nowhere"})),
        home.check_mode: home.check_mode("token", folder / "open", 0o600),
        home.check_to_come: home.check_to_come("home", folder / "file" / "home", "JUPYTER_GPU_HOME"),
        home.check_token_file: home.check_token_file(str(folder / "none")),
        network.check_names: network.check_names(_NODES),
        network.check_network: network.check_network(nobody.url, 5.0),
        network.check_ports: network.check_ports(_NODES),
        gateway.check_files: gateway.check_files(NodeChecks(1, "/", [], files=[FileTrouble("queues.yaml, line 1: x")])),
        nodes.check_clocks: nodes.check_clocks(_NODES, 1000.0),
        nodes.check_drivers: nodes.check_drivers(_NODES),
        nodes.check_environments: nodes.check_environments(_NODES),
        nodes.check_frameworks: nodes.check_frameworks(_NODES),
        nodes.check_nodes: nodes.check_nodes(_STATUS, _NODES),
        nodes.check_process_limits: nodes.check_process_limits(_NODES),
        nodes.check_shared_memory: nodes.check_shared_memory(_NODES),
        nodes.check_stores: nodes.check_stores(_NODES, "0123"),
        nodes.check_pythons: nodes.check_pythons(_NODES, "3.11.2"),
        package.check_package: [*package.check_package("again"), package.compare_installed("0.0.1", "again")],
        pod.check_pod: pod.check_pod(0, {"JUPYTER_GPU_POD_HEAD": f"127.0.0.1:{free_port()}"}),
        package.compare_ray: [package.compare_ray(""), package.compare_ray("1.0")],
        package.compare_installed: package.compare_installed("0.0.1", "restart this kernel"),
    }


def _down_server(folder: Path) -> Path:
    facts = {"url": f"http://127.0.0.1:{free_port()}/", "token": "secret", "pid": os.getpid()}
    (folder / "jpserver-1.json").write_text(json.dumps(facts))
    return folder


def _all_checks() -> set[Callable[..., object]]:
    modules = [
        importlib.import_module(f"{checks.__name__}.{found.name}") for found in pkgutil.iter_modules(checks.__path__)
    ]
    return {
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name.startswith(("check_", "compare_")) and function.__module__ == module.__name__
    }


def test_an_error_is_a_finding_with_a_cure() -> None:
    error = GpuReleaseError("no gateway")
    assert "the log" in broken_by("gateway", error).hint
    assert broken_by("gateway", error, otherwise="start it").hint == "start it"
    assert broken_by("gateway", GpuReleaseError("no gateway", hint="mend it"), otherwise="start it").hint == "mend it"


def _pool_of(folder: Path) -> HomePaths:
    folder.mkdir()
    pool = SlurmPool(max_nodes=1)
    config = GatewayConfig(home=str(folder), store="", token_file="", runtime="", ray_address="", slurm=pool)
    (folder / "gateway.json").write_bytes(msgspec.json.encode(config))
    return HomePaths(folder)


def test_every_check_says_what_to_do_about_what_it_finds(tmp_path: Path) -> None:
    cases = _bad_cases(tmp_path)
    assert {function.__name__ for function in _all_checks()} == {function.__name__ for function in cases}
    for check, told in cases.items():
        findings = [told] if isinstance(told, Finding) else list(told)
        wrong = [finding for finding in findings if finding.level != OK]
        assert wrong, f"{check.__name__} finds nothing"
        assert all(finding.hint.strip() for finding in wrong)
        assert all("→" not in finding.finding for finding in findings)


def test_a_finding_without_a_cure_is_none() -> None:
    for level in (NOTE, BROKEN):
        with pytest.raises(ValueError, match="does not say what to do"):
            Finding("store", level, "it is full")
    with pytest.raises(TypeError):
        note("store", "it is full")  # type: ignore[call-arg]
    assert Finding("store", OK, "it is there").hint == ""


def test_a_report_is_fine_unless_something_is_broken() -> None:
    fine, known = ok("a", "well"), note("b", "odd", "look")
    wrong = Finding("c", BROKEN, "no", "mend", "gpu-01")
    assert report_on([fine, known]).ok
    assert not report_on([fine, wrong]).ok
    assert worst_first([fine, known, wrong]) == [wrong, known, fine]
    assert [finding.where for finding in at("kernel", [fine, wrong])] == ["kernel", "gpu-01"]
