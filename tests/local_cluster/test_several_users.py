"""Clusters for two Unix users, from script to store: cells run as their owners, or as a service user. Needs root."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from certificates import Authority
from doc_blocks import block, shell
from ports import free_port
from unix_users import (
    ANN,
    BOB,
    SERVICE,
    TEAM,
    jupyter_for_all,
    make_home,
    needs_root,
    public_folder,
    python_for_all,
    run_python_as,
)
from wheel_bed import install, make_wheel

from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import Connection, HomePaths, write_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.store.layout import RunPaths

pytestmark = [needs_root, pytest.mark.thorough]

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

#: a user's program with a package that is edited in place, and one that the nodes have a wheel of
_WITH_PACKAGES = """
import json, os, sys
import jupyter_gpu_release as gpu_release

def train():
    import added, edited
    return os.getuid(), edited.BY, added.__version__, sys.prefix

print(json.dumps(gpu_release.launch(train, pip="added==1.0").result(timeout=120)))
"""


class Team:
    """Users of a gateway, each with a home that nobody else may enter."""

    def __init__(
        self, python: str, folder: Path, connection: Connection, names: Mapping[int, str], groups: Sequence[int] = ()
    ) -> None:
        self.homes = {uid: make_home(folder, uid) for uid in names}
        self._python, self._groups = python, groups
        self._environment = {
            "JUPYTER_GPU_URL": connection.url.replace("0.0.0.0", "127.0.0.1"),
            "JUPYTER_GPU_CA_FILE": str(folder / "authority.pem"),
        }
        with GatewayClient.for_target(target_of(connection), timeout_s=60) as gateway:
            for uid, name in names.items():
                write_secret(self.homes[uid] / "token", gateway.create_token(TokenRequest(name)).secret)
                os.chown(self.homes[uid] / "token", uid, uid)

    def run_with_packages(self, uid: int) -> list[object]:
        """Findings of a user's program whose packages the cluster lacks."""
        home = self.homes[uid]
        source, site = home / "project", home / "site-packages"
        source.mkdir()
        (source / "edited.py").write_text(f"BY = {uid}\n")
        wheel = make_wheel(home / "dist", "edited", "0.1", {"__editable__.edited.pth": f"{source}\n"})
        metadata = install(wheel, site)
        (metadata / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, uid)
        environment = self._environment | {"JUPYTER_GPU_TOKEN_FILE": str(home / "token")}
        environment["PYTHONPATH"] = f"{source}:{site}"
        said = run_python_as(self._python, uid, ["-c", _WITH_PACKAGES], home, environment, self._groups)
        found: list[object] = json.loads(said.splitlines()[-1])
        return found

    def run(self, uid: int, other: str) -> tuple[list[object], int, str, str]:
        """Findings of a user's program, which tries to load the run of the other."""
        home = self.homes[uid]
        environment = self._environment | {"JUPYTER_GPU_TOKEN_FILE": str(home / "token")}
        said = run_python_as(self._python, uid, ["-c", _PROGRAM, other], home, environment, self._groups)
        found: tuple[list[object], int, str, str] = tuple(json.loads(said.splitlines()[-1]))
        return found


def _make_certificate(folder: Path, owner: int, at: Path) -> None:
    """``gateway.crt`` and ``gateway.key`` for whoever starts the gateway there; all may read the authority."""
    made = Authority(folder).sign("gateway", "127.0.0.1")
    (folder / "authority.pem").chmod(0o644)
    for path in map(Path, made):
        os.chown(path, owner, owner)
        path.rename(at / path.name)


def test_cells_run_as_their_owners(own_home: HomePaths) -> None:
    """By the commands and table of the operators' pages, whose accounts are there for the cluster."""
    ann, bob, carol = uids = (ANN, 1002, 1003)
    with public_folder() as folder:
        python, store = python_for_all(folder), folder / "store"
        accounts = (("anna", ann), ("robert", bob))
        path = jupyter_for_all(
            folder, python, [f"{name}:x:{uid}:{uid}::{folder}/{uid}:/bin/sh" for name, uid in accounts]
        )
        table = block("operate/store.md", "### Accounts of other names")
        (folder / "users.yaml").write_text(table.filled({"/home/carol": f"{folder}/{carol}"}))
        _make_certificate(folder, 0, folder)
        start = block("operate/cells-as-owners.md", "# How to run cells as their owners").filled(
            {
                "/etc/jupyter-gpu/users.yaml": str(folder / "users.yaml"),
                "/shared/gpu": str(store),
                "8765": str(free_port()),
            }
        )
        done = shell(
            start,
            folder,
            PATH=f"{path}:{os.environ['PATH']}",
            JUPYTER_GPU_SPOOL=str(folder / "spool"),
            JUPYTER_GPU_PRELOAD="json",
            JUPYTER_GPU_ENVIRONMENTS=str(folder / "environments"),
            JUPYTER_GPU_ENVIRONMENT_INDEX="none",
            JUPYTER_GPU_ENVIRONMENT_WHEELS=str(folder / "wheels"),
            CUDA_VISIBLE_DEVICES="",
        )
        assert done.returncode == 0, done.stderr
        connection = own_home.read_connection()
        assert connection is not None
        team = Team(python, folder, connection, {ann: "ann", bob: "bob", carol: "carol"})
        hers = "20260101-000000-00000000"
        for uid in uids:
            ran, size, run, of_hers = team.run(uid, hers)
            home = team.homes[uid]
            assert (ran, size) == ([uid, str(home), str(home)], 3 << 20)
            assert uid == ann or "belongs to ann" in of_hers
            hers = run if uid == ann else hers
            assert (home / "made.txt").stat().st_uid == uid
            own = store / "users" / str(uid)
            assert own.stat().st_mode & 0o777 == 0o700
            assert {path.lstat().st_uid for path in (own, *own.rglob("*"))} == {uid}
        make_wheel(folder / "wheels", "added", "1.0")
        found = [team.run_with_packages(uid) for uid in (ann, bob)]
        assert [each[:3] for each in found] == [[uid, uid, "1.0"] for uid in (ann, bob)]
        prefixes = {Path(str(each[3])) for each in found}
        assert {each.parent for each in prefixes} == {folder / "environments"}
        assert len(prefixes) == 2


def _write_users(folder: Path) -> None:
    accounts = {
        name: {"uid": uid, "gid": uid, "home": str(folder / str(uid))} for name, uid in (("ann", ANN), ("bob", BOB))
    }
    (folder / "users.yaml").write_text(json.dumps(accounts))  # JSON is YAML


def test_a_group_shares_a_store_and_its_service_user_runs_the_cells() -> None:
    """By the guide's commands. The service user has no account, and may not enter the members' homes: cells work in
    their run folders.
    """
    with public_folder() as folder:
        python, home, store = python_for_all(folder), make_home(folder, SERVICE), folder / "store"
        _write_users(folder)
        store.mkdir()
        os.chown(store, SERVICE, TEAM)
        _make_certificate(folder, SERVICE, home)
        settings = {
            "PATH": f"{jupyter_for_all(folder, sys.executable)}:{os.environ['PATH']}",
            "JUPYTER_GPU_HOME": str(home / "gpu"),
            "JUPYTER_GPU_UNIX_USERS": str(folder / "users.yaml"),
            "JUPYTER_GPU_PRELOAD": "json",
            "CUDA_VISIBLE_DEVICES": "",
        }
        start = block("operate/group-store.md", "# How to share a store within a group").filled(
            {"=vision": f"={TEAM}", "/shared/gpu": str(store), "8765": str(free_port())}
        )
        run_python_as(python, SERVICE, ["-c", _IN_SHELL, start], home, settings, [TEAM])
        try:
            connection = HomePaths(home / "gpu").read_connection()
            assert connection is not None
            team = Team(python, folder, connection, {ANN: "ann", BOB: "bob"}, [TEAM])
            ran, size, hers, _refused = team.run(ANN, "20260101-000000-00000000")
            assert (ran, size) == ([SERVICE, str(RunPaths.of(store, hers).files), str(home)], 3 << 20)
            _ran, size, _his, of_hers = team.run(BOB, hers)
            assert size == 3 << 20
            assert "belongs to ann" in of_hers
            found = [path.lstat() for path in (store / "runs", *(store / "runs").rglob("*"))]
            assert {facts.st_gid for facts in found} == {TEAM}
            assert {facts.st_mode & 0o077 for facts in found} == {0o070, 0o060}
        finally:
            run_python_as(python, SERVICE, ["-m", "jupyter_gpu_release.cli", "stop", "--yes"], home, settings, [TEAM])


_IN_SHELL = "import os, sys; os.execvp('bash', ['bash', '-euc', sys.argv[1]])"
