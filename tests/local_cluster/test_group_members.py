"""A store that a group shares: what one member can find out about another and the service, or do to them. Needs root.

That is what a member does from outside of cells: a cell is the service user's process, so those who may run cells are
one trust domain (operators' pages).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from unix_users import (
    ANN,
    BOB,
    SERVICE,
    TEAM,
    as_user,
    make_home,
    needs_root,
    public_folder,
    python_for_all,
    run_python_as,
    start_python_as,
)

from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import Connection, HomePaths, read_secret, write_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.graph_file import ALIGNMENT, write_graph
from jupyter_gpu_release.store.layout import RunPaths

pytestmark = [needs_root, pytest.mark.timeout(900), pytest.mark.thorough]

#: ann's program: one run is over, another one goes on until a file is there, a third one waits for its GPU
_ANN = """
import os, pathlib, sys, time
import jupyter_gpu_release as gpu_release

def made(size):
    return bytes(size)

def hold(gate):
    while not os.path.exists(gate):
        time.sleep(0.05)
    return "held"

over = gpu_release.launch(made, 3 << 20)
over.result(timeout=120)
held = gpu_release.launch(hold, sys.argv[1])
while not held.running():
    time.sleep(0.05)
waits = gpu_release.launch(len, bytes(3 << 20))
waits.id
print(over.id, held.id, waits.id, flush=True)
held.result(timeout=300)
try:
    waits.result(timeout=120)
    print("its inputs were loaded")
except Exception as error:
    print(str(error).replace(chr(10), " "))
"""
_LOAD = """
import sys
import jupyter_gpu_release as gpu_release
try:
    print(type(gpu_release.load(sys.argv[1])).__name__)
except gpu_release.errors.GpuReleaseError as error:
    print(str(error).replace(chr(10), " "))
"""
#: asks Ray itself for what it keeps
_ASK_RAY = """
import os, sys
os.environ |= {"RAY_gcs_rpc_server_connect_timeout_s": "1", "RAY_gcs_rpc_server_reconnect_timeout_s": "1"}
from ray._raylet import GcsClient
try:
    print(GcsClient(address=sys.argv[1]).internal_kv_keys(b"", None, 1))
except Exception as error:
    print(type(error).__name__, error)
"""
_IN_SHELL = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


class Members:
    """A cluster of the service user, with a run of ann's that goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python, self.store = folder, python_for_all(folder), folder / "store"
        self.service_home = make_home(folder, SERVICE)
        self.service_home.chmod(0o755)  # as homes often are: what lies there protects itself
        self.homes = {uid: make_home(folder, uid) for uid in (ANN, BOB)}
        self.store.mkdir()
        os.chown(self.store, SERVICE, TEAM)
        users = {"ann": {"uid": ANN, "gid": ANN, "home": "/"}, "bob": {"uid": BOB, "gid": BOB, "home": "/"}}
        (folder / "users.yaml").write_text(json.dumps(users))  # JSON is YAML
        self._settings = {
            "JUPYTER_GPU_HOME": str(self.service_home / "gpu"),
            "JUPYTER_GPU_UNIX_USERS": str(folder / "users.yaml"),
            "JUPYTER_GPU_STORE_MODE": "group",
            "JUPYTER_GPU_STORE_GROUP": str(TEAM),
            "JUPYTER_GPU_PRELOAD": "json",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._gpu("start", "--simulated-gpus", "1", "--store", str(self.store))
        self.gate = folder / "gate"
        try:
            self._let_ann_begin()
        except BaseException:
            self._gpu("stop", "--yes")
            raise

    def _let_ann_begin(self) -> None:
        found = HomePaths(self.service_home / "gpu").read_connection()
        assert found is not None
        self.connection: Connection = found
        self.secrets = {SERVICE: read_secret(Path(found.token_file))}
        with GatewayClient.for_target(target_of(found), timeout_s=60) as gateway:
            for uid, name in ((ANN, "ann"), (BOB, "bob")):
                self.secrets[uid] = gateway.create_token(TokenRequest(name)).secret
                write_secret(self.homes[uid] / "token", self.secrets[uid])
                os.chown(self.homes[uid] / "token", uid, uid)
        self.program = self.start(ANN, _ANN, str(self.gate))
        assert self.program.stdout is not None
        ids = self.program.stdout.readline().split()
        assert len(ids) == 3, self.program.communicate()
        self.over, self.held, self.waits = ids

    def _gpu(self, *words: str) -> None:
        command = ["-m", "jupyter_gpu_release.cli", *words]
        run_python_as(self.python, SERVICE, command, self.service_home, self._settings, [TEAM])

    def _environment(self, uid: int) -> dict[str, str]:
        token = str(self.homes[uid] / "token")
        return {"JUPYTER_GPU_URL": self.connection.url, "JUPYTER_GPU_TOKEN_FILE": token}

    def start(self, uid: int, program: str, *words: str) -> subprocess.Popen[str]:
        command = ["-c", program, *words]
        return start_python_as(self.python, uid, command, self.homes[uid], self._environment(uid), [TEAM])

    def said(self, uid: int, program: str, *words: str, **settings: str) -> str:
        command, environment = ["-c", program, *words], self._environment(uid) | settings
        return run_python_as(self.python, uid, command, self.homes[uid], environment, [TEAM]).strip()

    def processes(self) -> list[psutil.Process]:
        """The cluster's, ann's cell and her program."""
        real = {process: process.info["uids"].real for process in psutil.process_iter(["uids"]) if process.info["uids"]}
        assert {SERVICE, ANN} <= set(real.values())
        return [process for process, uid in real.items() if uid in (SERVICE, ANN)]

    def of_each(self, ask: Callable[[psutil.Process], list[Any]]) -> list[Any]:
        """Ask each of these processes that is still there for what it has."""
        found: list[Any] = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                found += ask(process)
        return found

    def stop(self) -> None:
        self.gate.touch()
        self.program.communicate(timeout=240)
        self._gpu("stop", "--yes")


@pytest.fixture(scope="module")
def members() -> Iterator[Members]:
    with public_folder() as folder:
        members = Members(folder)
        yield members
        members.stop()


def _as_bob(work: Callable[[], object]) -> None:
    assert as_user(BOB, work, groups=[TEAM]) == 0


def test_files_beside_the_store_are_closed_to_members(members: Members) -> None:
    """Token, ledger, logs, Ray's files, shared memory: all that lies in their folders, or that a process has open."""
    found = {
        path
        for folder in (members.service_home / "gpu", Path(members.connection.runtime), members.homes[ANN])
        for path in (folder, *folder.rglob("*"))
        if not path.is_symlink()
    }
    for opened in members.of_each(psutil.Process.open_files):
        found.add(Path(opened.path))
    theirs = {path for path in found if path.exists() and path.lstat().st_uid in (SERVICE, ANN)}
    private = sorted(path for path in theirs if not path.is_relative_to(members.store))
    names = {path.name for path in private}
    assert {"token", "ledger.sqlite", "gateway.log", "ray"} <= names

    def pry() -> None:
        for path in private:
            for flags in (os.O_RDONLY, os.O_WRONLY):
                with pytest.raises((PermissionError, IsADirectoryError)):
                    os.close(os.open(path, flags))
            with pytest.raises(PermissionError):
                path.rename(path.with_name("taken"))

    _as_bob(pry)


def test_processes_are_closed_to_members(members: Members) -> None:
    """They get no signal, and tell nothing but their command lines, which hold no secret."""
    processes = members.processes()
    assert len(processes) > 5

    def pry() -> None:
        for process in processes:
            with pytest.raises(PermissionError):
                os.kill(process.pid, 0)
            for name in ("environ", "mem", "maps", "io", "syscall", "stack"):
                with pytest.raises(PermissionError):
                    Path(f"/proc/{process.pid}/{name}").read_bytes()
            for name in ("fd", "cwd", "root", "map_files"):
                with pytest.raises(PermissionError):
                    os.listdir(f"/proc/{process.pid}/{name}")
            words = Path(f"/proc/{process.pid}/cmdline").read_text()
            assert not [secret for secret in members.secrets.values() if secret in words]

    _as_bob(pry)


def _ray_address(members: Members) -> str:
    """As command lines tell it to everybody."""
    words = [word for process in members.processes() for word in process.cmdline()]
    return next(word.partition("=")[2] for word in words if word.startswith("--gcs-address="))


def test_sockets_of_the_cluster_are_closed_to_members(members: Members) -> None:
    """Those with a name in a folder by that folder; none has one that needs no folder. Ray wants its own token."""
    sockets = members.of_each(lambda process: process.net_connections("unix"))
    names = {str(connection.laddr) for connection in sockets if connection.laddr}
    assert names
    assert not [name for name in names if not name.startswith("/")]

    def pry() -> None:
        for name in names:
            with socket.socket(socket.AF_UNIX) as link, pytest.raises(PermissionError):
                link.connect(name)

    _as_bob(pry)
    address = _ray_address(members)
    said = members.said(BOB, _ASK_RAY, address)
    assert "uthentic" in said, said


def test_the_gateway_keeps_runs_of_others_to_them(members: Members) -> None:
    headers = {"Authorization": f"Bearer {members.secrets[BOB]}"}
    for run in (members.over, members.held):
        for path, method in (("cancel", "POST"), ("preempt", "POST"), ("pin", "POST"), ("events", "GET")):
            url = f"{members.connection.url}/v1/runs/{run}/{path}"
            answer = httpx.request(method, url, headers=headers, trust_env=False, timeout=60)
            assert answer.status_code == 403, (path, answer.text)
    with GatewayClient.for_target(target_of(members.connection), timeout_s=60) as gateway:
        assert gateway.run(members.held).state == "running"
    assert "belongs to ann" in members.said(BOB, _LOAD, members.over)


def _replace_with_own(path: Path) -> None:
    write_graph(path.with_name("other"), b"cposix\nsystem\n.", [])
    path.with_name("other").rename(path)


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(ALIGNMENT)  # there the stream begins
        file.write(b"cposix\nsystem\n.")


class Trap:
    """Makes a folder where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.makedirs, (self.path,)


def _forge(paths: RunPaths, trap: Path) -> None:
    """Write other values and their manifest into the files that are there, which stay the service user's."""
    dump = codec.dump({"x": Trap(str(trap))}, NamespaceInfo({}, at_home=True))
    own = paths.values.with_name("forged.graph")
    digest = write_graph(own, dump.stream, dump.buffers)
    paths.values.write_bytes(own.read_bytes())
    own.unlink()
    manifest = json.loads(paths.manifest.read_text())
    manifest["outcome"]["values"]["digest"] = digest
    paths.manifest.write_text(json.dumps(manifest))


def test_values_that_a_member_forges_with_their_manifest_are_not_loaded(members: Members) -> None:
    """With a gateway its ledger knows better; without one nobody does."""
    paths, trap = RunPaths.of(members.store, members.over), members.folder / "trap"
    before = {path: path.read_bytes() for path in (paths.values, paths.manifest)}
    _as_bob(partial(_forge, paths, trap))
    assert {path.stat().st_uid for path in before} == {SERVICE}
    without = {
        "JUPYTER_GPU_URL": "http://127.0.0.1:9",
        "JUPYTER_GPU_STORE": str(members.store),
        "JUPYTER_GPU_SERVICE_USER": str(SERVICE),
    }
    said = members.said(ANN, _LOAD, members.over, **without)
    assert "is a group's" in said
    assert "damaged" in members.said(ANN, _LOAD, members.over)
    for path, content in before.items():
        path.write_bytes(content)
    assert members.said(ANN, _LOAD, members.over) == "Results"
    assert not trap.exists()


def test_what_a_member_puts_in_place_of_results_is_not_loaded(members: Members) -> None:
    """The folders are the group's, so there it can be put. It is another's, or not what the gateway was told of."""
    values = RunPaths.of(members.store, members.over).values
    assert members.said(ANN, _LOAD, members.over) == "Results"
    before = values.read_bytes()
    _as_bob(partial(_overwrite, values))
    assert values.stat().st_uid == SERVICE
    assert values.read_bytes() != before
    assert "values.graph is damaged" in members.said(ANN, _LOAD, members.over)
    _as_bob(partial(_replace_with_own, values))
    assert f"belongs to user {BOB}, not to this one: not loaded" in members.said(ANN, _LOAD, members.over)


def test_what_a_member_puts_in_place_of_inputs_is_not_loaded(members: Members) -> None:
    inputs = RunPaths.of(members.store, members.waits).inputs
    assert inputs.stat().st_uid == ANN
    _as_bob(partial(_replace_with_own, inputs))
    members.gate.touch()
    said, errors = members.program.communicate(timeout=240)
    assert f"belongs to user {BOB}" in said, said + errors
