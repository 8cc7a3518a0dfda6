"""A gateway, and the store as it is seen from here."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.checks import gateway
from jupyter_gpu_release.checks.finding import BROKEN, NOTE, OK
from jupyter_gpu_release.checks.gateway import (
    check_cluster,
    check_files,
    check_head,
    check_same_store,
    check_used_store,
    check_version,
)
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import Connection
from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.protocol.rest import FileTrouble, Health, NodeChecks
from jupyter_gpu_release.protocol.session import PROTOCOL
from jupyter_gpu_release.store.run_folders import make_store


def test_another_store_at_the_same_path_is_found_and_not_written_to(tmp_path: Path) -> None:
    ident = make_store(tmp_path)
    assert not list(check_same_store(tmp_path, ident))
    assert check_used_store(tmp_path).level == OK
    (other,) = check_same_store(tmp_path, "0123")
    assert (other.level, "another store" in other.finding, "mount" in other.hint) == (BROKEN, True, True)
    (tmp_path / "store.json").write_text(json.dumps({"schema_version": 99, "id": "0123", "created_at": 0.0}))
    (newer,) = check_same_store(tmp_path, ident)
    assert "schema_version 99" in newer.finding
    assert not list(check_same_store(tmp_path / "none", ident)), "that it is not there is another finding"


@pytest.mark.parametrize("own", ["", "make room. "])
def test_a_store_that_cannot_be_used_from_here_may_lie_elsewhere(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(folder: Path) -> None:
        raise StoreError(f"{folder} is full", hint=own.strip())

    monkeypatch.setattr(gateway, "probe_store", probe)
    found = check_used_store(Path("/store"))
    assert (found.level, found.finding) == (BROKEN, "/store is full")
    assert found.hint == f"{own}JUPYTER_GPU_STORE names where this machine sees it"


def test_a_file_of_the_operators_that_is_malformed_is_said_with_its_cure() -> None:
    trouble = FileTrouble("/etc/environments.yaml, line 2: environments[0].name: no name", "take another name")
    (found,) = check_files(NodeChecks(1, "/store", [], files=[trouble]))
    assert (found.level, found.hint, found.where) == (BROKEN, "take another name", "gateway")
    assert found.finding == f"{trouble.problem}; until it is mended the last good version holds"
    assert not list(check_files(NodeChecks(1, "/store", [])))


def test_versions_that_understand_each_other_are_no_fault() -> None:
    assert check_version("99.0", PROTOCOL).level == NOTE
    own = Connection("http://127.0.0.1:1", "token", "/store", ray_version="2.60")
    assert check_version(__version__, PROTOCOL, own).finding == f"gateway and client {__version__}, Ray 2.60"
    assert check_version(__version__, PROTOCOL).finding == f"gateway and client {__version__}"
    refused = check_version("99.0", PROTOCOL + 5)
    assert (refused.level, "install the same version" in refused.hint) == (BROKEN, True)


def test_with_several_nodes_it_is_said_whether_runs_outlive_the_head() -> None:
    def found(nodes: int, *, remembers: bool) -> list[str]:
        health = Health(True, __version__, PROTOCOL, "c", 1, nodes, nodes, 4, simulated=True, remembers_head=remembers)
        return [one.level for one in check_head(health)]

    assert (found(1, remembers=False), found(3, remembers=False), found(3, remembers=True)) == ([], [NOTE], [OK])


def test_without_the_heads_memory_doctor_says_how_to_keep_it() -> None:
    (found,) = check_head(Health(True, __version__, PROTOCOL, "c", 1, 3, 3, 4, simulated=True))
    assert "RAY_gcs_storage=rocksdb" in found.hint


def test_the_way_to_a_gateway_that_says_nothing_is_looked_at_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit for all of it must not go to waiting for a first answer."""
    monkeypatch.setattr(gateway, "_ANSWER_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = Target(f"http://127.0.0.1:{silent.getsockname()[1]}", "token")
        found = list(check_cluster(target, check_used_store))
    assert [(one.check, one.level) for one in found] == [("gateway", BROKEN), ("network", OK)]
