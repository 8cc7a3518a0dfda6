"""Clusters for two Unix users, from script to store: cells run as their owners, or as a service user. Needs root."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from unix_users import (
    ANN,
    BOB,
    SERVICE,
    TEAM,
    make_home,
    needs_root,
    public_folder,
    python_for_all,
    run_python_as,
)

from jupyter_gpu_release.client.home import HomePaths, read_secret, write_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.local_cluster.start import start_embedded
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.store.layout import RunPaths

pytestmark = needs_root

#: a user's program
_PROGRAM = """
import json, os, sys
import jupyter_gpu_release as gpu_release
from jupyter_gpu_release.errors import GpuReleaseError

def train(size):
    with open("made.txt", "w") as file:
        file.write("by the cell")
    return os.getuid(), os.getcwd(), os.environ["HOME"], bytes(size)

future = gpu_release.launch(train, 3 << 20)
*said, large = future.result(timeout=120)
try:
    gpu_release.load(sys.argv[1])
    of_other = "loaded"
except GpuReleaseError as error:
    of_other = str(error)
print(json.dumps([said, len(large), future.id, of_other]))
"""


class Team:
    """Two users of a gateway, each with a home that nobody else may enter."""

    def __init__(
        self, python: str, folder: Path, url: str, tokens: Mapping[int, str], groups: Sequence[int] = ()
    ) -> None:
        self.homes = {uid: make_home(folder, uid) for uid in tokens}
        self._python, self._url, self._groups = python, url, groups
        for uid, token in tokens.items():
            write_secret(self.homes[uid] / "token", token)
            os.chown(self.homes[uid] / "token", uid, uid)

    def run(self, uid: int, other: str) -> tuple[list[object], int, str, str]:
        """Findings of a user's program, which tries to load the run of the other."""
        home = self.homes[uid]
        environment = {"JUPYTER_GPU_URL": self._url, "JUPYTER_GPU_TOKEN_FILE": str(home / "token")}
        said = run_python_as(self._python, uid, ["-c", _PROGRAM, other], home, environment, self._groups)
        found: tuple[list[object], int, str, str] = tuple(json.loads(said.splitlines()[-1]))
        return found


def _tokens(url: str, token_file: Path) -> dict[int, str]:
    with GatewayClient(url, read_secret(token_file), timeout_s=60) as client:
        return {uid: client.create_token(TokenRequest(name)).secret for name, uid in (("ann", ANN), ("bob", BOB))}


def _write_users(folder: Path) -> None:
    accounts = {
        name: {"uid": uid, "gid": uid, "home": str(folder / str(uid))} for name, uid in (("ann", ANN), ("bob", BOB))
    }
    (folder / "users.yaml").write_text(json.dumps(accounts))  # JSON is YAML


def test_cells_run_as_their_owners(own_home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    with public_folder() as folder:
        python = python_for_all(folder)
        monkeypatch.setattr(sys, "executable", python)
        _write_users(folder)
        monkeypatch.setenv("JUPYTER_GPU_STORE_MODE", "owner")
        monkeypatch.setenv("JUPYTER_GPU_UNIX_USERS", str(folder / "users.yaml"))
        monkeypatch.setenv("JUPYTER_GPU_SPOOL", str(folder / "spool"))
        store = folder / "store"
        ready = start_embedded(home=own_home, simulated=2, store=str(store), progress=print)
        url = ready.connection.url
        team = Team(python, folder, url, _tokens(url, Path(ready.connection.token_file)))
        ran, size, hers, _refused = team.run(ANN, "20260101-000000-00000000")
        home = team.homes[ANN]
        assert (ran, size) == ([ANN, str(home), str(home)], 3 << 20)
        ran, size, _his, of_hers = team.run(BOB, hers)
        assert (ran[0], size) == (BOB, 3 << 20)
        assert "belongs to ann" in of_hers
        for uid in (ANN, BOB):
            assert (team.homes[uid] / "made.txt").stat().st_uid == uid
            own = store / "users" / str(uid)
            assert own.stat().st_mode & 0o777 == 0o700
            assert {path.lstat().st_uid for path in (own, *own.rglob("*"))} == {uid}


def test_a_group_shares_a_store_and_its_service_user_runs_the_cells() -> None:
    """The service user has no account, and may not enter the members' homes: cells work in their run folders."""
    with public_folder() as folder:
        python, home, store = python_for_all(folder), make_home(folder, SERVICE), folder / "store"
        _write_users(folder)
        store.mkdir()
        os.chown(store, SERVICE, TEAM)
        settings = {
            "JUPYTER_GPU_HOME": str(home / "gpu"), "JUPYTER_GPU_STORE_MODE": "group",
            "JUPYTER_GPU_STORE_GROUP": str(TEAM), "JUPYTER_GPU_UNIX_USERS": str(folder / "users.yaml"),
        }  # fmt: skip
        cli = ("-m", "jupyter_gpu_release.cli")
        start = [*cli, "start", "--simulated-gpus", "2", "--store", str(store)]
        run_python_as(python, SERVICE, start, home, settings, [TEAM])
        try:
            connection = HomePaths(home / "gpu").read_connection()
            assert connection is not None
            team = Team(python, folder, connection.url, _tokens(connection.url, Path(connection.token_file)), [TEAM])
            ran, size, hers, _refused = team.run(ANN, "20260101-000000-00000000")
            assert (ran, size) == ([SERVICE, str(RunPaths.of(store, hers).files), str(home)], 3 << 20)
            _ran, size, _his, of_hers = team.run(BOB, hers)
            assert size == 3 << 20
            assert "belongs to ann" in of_hers
            found = [path.lstat() for path in (store / "runs", *(store / "runs").rglob("*"))]
            assert {facts.st_gid for facts in found} == {TEAM}
            assert {facts.st_mode & 0o077 for facts in found} == {0o070, 0o060}
        finally:
            run_python_as(python, SERVICE, [*cli, "stop"], home, settings, [TEAM])
