"""``jupyter gpu token`` on a real cluster, and where a user's token is after real work: nowhere but in the kernel."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from embedded_bed import mode, named, quiet
from nbclient import NotebookClient

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import AuthenticationError, ForbiddenError
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded

Until = Callable[[Callable[[], object], str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(cluster: Ready, monkeypatch: pytest.MonkeyPatch) -> HomePaths:
    """The session cluster's home, whose own token is the admin's."""
    paths = HomePaths(Path(cluster.connection.token_file).parent)
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(paths.root))
    return paths


@pytest.fixture
def as_user(cluster: Ready, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """The environment of somebody who has a token (in this file) and nothing else."""

    def environment(token_file: str) -> dict[str, str]:
        return {
            "JUPYTER_GPU_HOME": str(tmp_path / "nobodys-home"),
            "JUPYTER_GPU_URL": cluster.connection.url,
            "JUPYTER_GPU_TOKEN_FILE": token_file,
        }

    return environment


def rows(capsys: Capture) -> dict[str, dict[str, object]]:
    """``token list --json`` by user: each test has users of its own."""
    capsys.readouterr()
    assert main(["token", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    return {row["user"]: row for row in document["tokens"]}


def test_the_token_is_shown_once(cluster: Ready, home: HomePaths, capsys: Capture) -> None:
    assert main(["token", "create", "--user", "dora", "--label", "laptop"]) == 0
    shown = capsys.readouterr()
    secret = shown.out.strip()
    assert secret.startswith("jgr_")
    assert secret not in shown.err
    assert "for dora (user), expires" in shown.err
    assert f"  JUPYTER_GPU_URL={cluster.connection.url}\n  JUPYTER_GPU_TOKEN_FILE=FILE\n" in shown.err
    assert "this machine's alone" in shown.err
    row = rows(capsys)["dora"]
    assert (row["state"], row["label"], row["role"], row["last_used_at"]) == ("active", "laptop", "user", None)
    with GatewayClient(cluster.connection.url, secret) as dora:
        assert dora.health().ready
        with pytest.raises(ForbiddenError, match="for admins"):
            dora.tokens()
    assert rows(capsys)["dora"]["last_used_at"]
    assert main(["token", "list"]) == 0
    table = capsys.readouterr().out
    assert "laptop" in table
    assert "the cluster's own" in table
    assert secret not in table


def test_a_token_in_a_file_is_found_by_clients_until_it_is_revoked(
    home: HomePaths, as_user: Callable[[str], dict[str, str]], tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "bertas-token"
    assert main(["token", "create", "--user", "berta", "--expires", "never", "--out", str(file)]) == 0
    shown = capsys.readouterr()
    secret = file.read_text().strip()
    assert mode(file) == 0o600
    assert shown.out == ""
    assert secret not in shown.err
    found = find_gateway(environment=as_user(str(file)))
    assert found is not None
    assert found.token == secret
    with GatewayClient.for_target(found) as berta:
        assert berta.health().ready
        assert main(["token", "revoke", str(rows(capsys)["berta"]["id"])]) == 0
        assert "of berta is revoked" in capsys.readouterr().out
        with pytest.raises(AuthenticationError, match="revoked"):
            berta.health()
    assert rows(capsys)["berta"]["state"] == "revoked"


def test_all_tokens_of_a_user_are_revoked(home: HomePaths, capsys: Capture) -> None:
    for _ in range(2):
        assert main(["token", "create", "--user", "carl"]) == 0
    capsys.readouterr()
    assert main(["token", "revoke", "--user", "carl"]) == 0
    assert capsys.readouterr().out.count("of carl is revoked") == 2
    assert main(["token", "revoke", "--user", "carl"]) == 1
    assert "carl has no token to revoke" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("create --user a/b", 2, "not a name"),
        ("create --user ann --role king", 2, "--role king: not one of user, admin, assistant\n  → write --role user"),
        ("create --user ann --expires soon", 2, "not a duration"),
        ("create --user ann --expires 30", 2, "write 30d"),
        ("create --user ann --expires 0", 2, "lasts 0 s"),
        ("create --user ann --expires 99999d", 2, "3650 days"),
        ("revoke 0000000000", 1, "there is no token 0000000000"),
    ],
)
def test_mistakes_are_explained(home: HomePaths, words: str, status: int, message: str, capsys: Capture) -> None:
    assert main(["token", *words.split()]) == status
    error = capsys.readouterr().err
    assert message in error


def test_a_file_that_cannot_be_written_makes_no_token(home: HomePaths, tmp_path: Path, capsys: Capture) -> None:
    there = tmp_path / "there"
    there.write_text("precious")
    assert main(["token", "create", "--user", "norma", "--out", str(there)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert there.read_text() == "precious"
    assert main(["token", "create", "--user", "norma", "--out", str(tmp_path / "no" / "folder")]) == 1
    assert main(["token", "create", "--user", "do ra", "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()
    assert "norma" not in rows(capsys)


def test_a_gateway_that_does_not_answer_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setenv("JUPYTER_GPU_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", "token")
    assert main(["token", "create", "--user", "norma", "--out", str(tmp_path / "new")]) == 1
    assert not (tmp_path / "new").exists()


def test_the_clusters_own_token_is_not_revoked(home: HomePaths, capsys: Capture) -> None:
    (own,) = [row for row in rows(capsys).values() if row["own"]]
    assert main(["token", "revoke", str(own["id"])]) == 1
    assert "the cluster's own token" in capsys.readouterr().err
    assert rows(capsys)


# -------------------------------------------------------------------------------------------- nowhere else
@pytest.fixture
def own_cluster(own_home: HomePaths) -> Ready:
    return start_embedded(home=own_home, asked=StartOptions(simulated=2), progress=quiet)


def found_in(secret: str, *roots: Path) -> Iterator[Path]:
    """Files below ``roots`` that hold the secret, in their content or in their name."""
    for root in roots:
        for path in _below(root):
            if secret in str(path) or (path.is_file() and _holds(path, secret.encode())):
                yield path


def _below(root: Path) -> Iterator[Path]:
    """Not by ``rglob``, which fails when a folder goes while it looks."""
    for folder, folders, files in os.walk(root):
        yield from (Path(folder) / name for name in [*folders, *files])


def _holds(path: Path, secret: bytes) -> bool:
    try:
        return secret in path.read_bytes()
    except FileNotFoundError:
        return False


def processes_with(secret: str, name: str) -> set[int]:
    """Processes whose ``cmdline`` or ``environ`` holds the secret."""
    found = set()
    for pid in psutil.pids():
        try:
            if secret.encode() in Path(f"/proc/{pid}/{name}").read_bytes():
                found.add(pid)
        except OSError:
            continue
    return found


def notebook(flag: Path, go: Path) -> nbformat.NotebookNode:
    cells = (
        "%load_ext jupyter_gpu_release\n%xmode Verbose\nimport os\npid, data = os.getpid(), list(range(500_000))",
        "%%gpu_train --name told\nimport os, time\nfrom pathlib import Path\n"
        "tokens = [name for name in os.environ if 'JUPYTER_GPU_TOKEN' in name]\n"
        f"Path({str(flag)!r}).touch()\nwhile not Path({str(go)!r}).exists():\n    time.sleep(0.02)\n"
        "big = bytearray(3 << 20)\nprint('done', len(data))",
        "%%gpu_train\nraise ValueError('on purpose')",
        "%%gpu_train\nimport os\nos.abort()",
        "%gpu_runs\n%gpu_status\n%gpu_logs last\n%config GpuRelease\nprint(tokens, pid)",
    )
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


@pytest.mark.thorough
@pytest.mark.timeout(900)  # a cluster of its own: 15 s, minutes on a machine that is busy
def test_after_real_work_the_token_is_nowhere_but_in_the_kernel(
    own_cluster: Ready,
    own_home: HomePaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    until: Until,
) -> None:
    connection = own_cluster.connection
    assert main(["token", "create", "--user", "ann"]) == 0
    secret = capsys.readouterr().out.strip()
    flag, go, work = tmp_path / "flag", tmp_path / "go", tmp_path / "work"
    work.mkdir()
    written = notebook(flag, go)
    with monkeypatch.context() as patch:
        patch.setenv("JUPYTER_GPU_HOME", str(tmp_path / "nobodys-home"))
        patch.setenv("JUPYTER_GPU_URL", connection.url)
        patch.setenv("JUPYTER_GPU_TOKEN", secret)
        client = NotebookClient(written, allow_errors=True, resources={"metadata": {"path": str(work)}}, timeout=200)
        working = threading.Thread(target=lambda: asyncio.run(client.async_execute()))  # closes its loop
        working.start()
        try:
            until(lambda: flag.exists() or not working.is_alive(), "the cell that waits")
            in_words, in_environment = processes_with(secret, "cmdline"), processes_with(secret, "environ")
        finally:
            go.touch()
            working.join(200)
    nbformat.write(written, work / "written.ipynb")
    outputs = [str(cell.get("outputs")) for cell in written.cells]
    assert "done 500000" in outputs[1], outputs
    assert "on purpose" in outputs[2]
    assert "[] " in outputs[4]  # no token in the rank's environment
    kernel = int(outputs[4].rpartition("[] ")[2].split("\\n")[0])
    assert (in_words, in_environment) == (set(), {kernel})
    with GatewayClient(connection.url, secret) as ann:
        ends = [("ann", "failed"), ("ann", "failed"), ("ann", "succeeded")]
        until(lambda: [(row.user, row.state) for row in ann.runs(mine=True).runs] == ends, "the runs' ends")
        runs = ann.runs(mine=True).runs
    folders = (Path(connection.store), Path(connection.runtime), own_home.root, work)
    until((Path(connection.store) / "runs" / runs[-1].run / "manifest.json").exists, "the manifest")
    assert list(found_in(secret, *folders)) == []
    assert list(found_in(runs[-1].run, *folders)), "the search finds nothing at all"
    _crash(connection.daemon_pid)
    report = own_home.log / "ray-of-the-last-crash"
    until(lambda: report.exists() and not own_home.connection.exists(), "the crash report")
    assert any(path.is_file() for path in report.rglob("*"))
    assert list(found_in(secret, own_home.root, Path(connection.store))) == []


def _crash(daemon: int) -> None:
    """Ray's raylet is killed; the daemon ends the rest and keeps Ray's logs."""
    (raylet,) = named("raylet", (child.pid for child in psutil.Process(daemon).children(recursive=True)))
    raylet.kill()
