"""``jupyter gpu doctor``: with no cluster, and what it finds when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from socket import gethostname

import msgspec
import pytest

from jupyter_gpu_release.checks.cluster import no_cluster
from jupyter_gpu_release.checks.finding import BROKEN, OK, Finding
from jupyter_gpu_release.checks.home import check_home
from jupyter_gpu_release.cli.admin.doctor import check_leftovers, check_store
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.home import Connection, HomePaths, write_secret
from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.local_cluster.launch_spec import LaunchSpec, make_runtime_folder
from jupyter_gpu_release.local_cluster.preflight import begin_store
from jupyter_gpu_release.local_cluster.start import stop_embedded


def _doctor(capsys: pytest.CaptureFixture[str]) -> tuple[int, list[Finding]]:
    status = main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["ok"] == (status == 0)
    return status, msgspec.convert(document["findings"], list[Finding])


def test_it_works_with_no_cluster_and_starts_none(own_home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    status, findings = _doctor(capsys)
    by_check = {finding.check: finding for finding in findings}
    assert {"python", "package", "ray", "home", "nvml", "cuda", "store", "cluster", "leftovers"} <= set(by_check)
    assert by_check["ray"].level == OK
    assert by_check["cluster"] == no_cluster()
    assert status == int(any(finding.level == BROKEN for finding in findings))
    assert own_home.read_connection() is None


def test_it_makes_no_folder(own_home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    _, findings = _doctor(capsys)
    assert not own_home.root.exists()
    for check in ("home", "store"):
        (finding,) = [finding for finding in findings if finding.check == check]
        assert finding.level == OK
        assert "does not exist yet" in finding.finding


def test_a_home_that_cannot_be_made_is_broken(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (finding,) = check_home(HomePaths(tmp_path / "file" / "home"))
    assert finding.level == BROKEN
    assert f"{tmp_path / 'file'} is no folder" in finding.finding
    assert "JUPYTER_GPU_HOME" in finding.hint


def test_what_start_finds_open_it_closes(own_home: HomePaths) -> None:
    own_home.root.mkdir(mode=0o755, parents=True, exist_ok=True)
    own_home.root.chmod(0o755)
    own_home.create()
    assert {finding.level for finding in check_home(own_home)} == {OK}


def test_a_folder_that_others_use_too_is_not_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    HomePaths(tmp_path).create()
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


def test_every_finding_that_is_not_fine_has_a_mend(own_home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    own_home.create()
    write_secret(own_home.token, "secret-word")
    own_home.token.chmod(0o644)
    own_home.connection.write_text("{")
    status, findings = _doctor(capsys)
    assert status == 1
    wrong = [finding for finding in findings if finding.level != OK]
    assert {"token", "gateway"} <= {finding.check for finding in wrong if finding.level == BROKEN}
    assert all(finding.hint for finding in wrong)
    assert "secret-word" not in str(findings)


def test_the_readable_form_says_the_same(own_home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    own_home.create()
    own_home.root.chmod(0o755)
    assert main(["doctor"]) == 1
    text = "".join(capsys.readouterr().out.split())
    assert f"✗home{own_home.root}mayberead" in text
    assert f"chmod700{own_home.root}" in text


def test_private_files_are_fine(own_home: HomePaths) -> None:
    own_home.create()
    write_secret(own_home.token, "secret")
    assert {finding.level for finding in check_home(own_home)} == {OK}


def test_a_store_that_cannot_be_written_is_named(own_home: HomePaths, tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("not a folder")
    finding = check_store(own_home, folder / "store")
    assert finding.level == BROKEN
    assert str(folder) in finding.finding
    assert "JUPYTER_GPU_STORE" in finding.hint


@pytest.mark.parametrize("is_used", [True, False])
def test_a_store_that_is_away_is_broken_and_not_made_anew(own_home: HomePaths, tmp_path: Path, is_used: bool) -> None:
    own_home.create()
    mount_point = tmp_path / "mnt"
    mount_point.mkdir()
    assert check_store(own_home, mount_point).level == OK  # to be begun
    own_home.gateway_config.write_text(json.dumps({"store": str(mount_point), "store_id": "0123", "home": "x"}))
    finding = check_store(own_home, mount_point, is_used=is_used)
    assert (finding.level, str(mount_point) in finding.finding) == (BROKEN, True)
    assert "mounted?" in finding.hint
    with pytest.raises(StoreError, match="is not there"):
        begin_store(own_home, mount_point)
    assert list(mount_point.iterdir()) == []
    (mount_point / "runs").mkdir()  # somebody's, once, below the mount
    assert check_store(own_home, mount_point, is_used=is_used).level == BROKEN
    with pytest.raises(StoreError, match="is not the store"):
        begin_store(own_home, mount_point)
    (mount_point / "store.json").touch()  # as the message says
    last = {"store": str(mount_point), "store_id": begin_store(own_home, mount_point)}
    own_home.gateway_config.write_text(json.dumps(last))
    assert check_store(own_home, mount_point, is_used=is_used).level == OK


def test_a_store_of_a_running_gateway_that_is_away_is_not_made_anew(own_home: HomePaths, tmp_path: Path) -> None:
    finding = check_store(own_home, tmp_path, is_used=True)
    assert (finding.level, "is it mounted?" in finding.hint) == (BROKEN, True)
    assert not (tmp_path / "runs").exists()


def test_a_connection_to_a_dead_cluster_is_found(own_home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    own_home.create()
    write_secret(own_home.token, "secret")
    own_home.write_connection(
        Connection(
            url="http://127.0.0.1:9",
            token_file=str(own_home.token),
            store=str(own_home.store),
            cluster="gone",
            daemon_pid=os.getpid(),  # a living process, but not that daemon
        )
    )
    status, findings = _doctor(capsys)
    assert status == 1
    (found,) = [finding for finding in findings if finding.check == "cluster"]
    assert (found.level, "has ended, and left its connection file" in found.finding) == (BROKEN, True)


def test_of_a_pool_that_has_lost_its_head_nobody_is_told_that_it_has_ended(
    own_home: HomePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    own_home.create()
    write_secret(own_home.token, "secret")
    url, token, store = "http://127.0.0.1:9", str(own_home.token), str(own_home.store)
    # a living process, but not that daemon; ``host``: only pools have it
    facts = {"daemon_pid": os.getpid(), "daemon_created": 1.0, "host": gethostname()}
    own_home.write_connection(Connection(url, token, store, cluster="pool", **facts))
    status, findings = _doctor(capsys)
    (found,) = [finding for finding in findings if finding.check == "cluster"]
    assert (status, found.level, "the head of this home's pool is lost" in found.finding) == (1, BROKEN, True)
    assert found.hint.startswith("the same `jupyter gpu start --slurm FILE` brings it back")
    for command in ("status", "runs"):  # which the store calls lost
        assert main([command]) == 1
        assert capsys.readouterr().err.startswith("the head of this home's pool is lost")


def test_a_configured_gateway_that_is_down_is_broken(
    own_home: HomePaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", "secret-word")
    status, findings = _doctor(capsys)
    assert status == 1
    (gateway,) = [finding for finding in findings if finding.check == "gateway"]
    assert "http://127.0.0.1:9 does not answer" in gateway.finding
    assert "secret-word" not in str(findings)


def test_the_gateway_of_jupyters_configuration_is_the_one_that_is_looked_at(
    own_home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands talk to the gateway that the notebooks beside them talk to."""
    for variable in ("JUPYTER_GPU_URL", "JUPYTER_GPU_TOKEN", "JUPYTER_GPU_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    assert own_home.read_connection() is None
    token = tmp_path / "token"
    write_secret(token, "secret-word")
    settings = {"GpuRelease": {"url": "http://127.0.0.1:9", "token_file": str(token)}}
    (tmp_path / "jupyter_gpu_release_config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    _, findings = _doctor(capsys)
    assert any("http://127.0.0.1:9 does not answer" in finding.finding for finding in findings)
    assert main(["runs"]) == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err


def test_the_folder_of_a_dead_cluster_is_found_and_the_mend_mends(own_home: HomePaths) -> None:
    own_home.create()
    ended = subprocess.Popen(["true"])
    ended.wait()
    folder = make_runtime_folder()
    plan = LaunchSpec(
        cluster="0123456789abcdef",
        home=str(own_home.root),
        runtime=str(folder),
        store=str(own_home.store),
        gpus=1,
        simulated=True,
        daemon_pid=ended.pid,
    )
    plan.write()
    mine = [finding for finding in check_leftovers() if str(folder) in finding.finding]
    assert [finding.level for finding in mine] == [BROKEN]
    assert mine[0].hint == f"JUPYTER_GPU_HOME={own_home.root} jupyter gpu stop"
    stop_embedded(own_home)
    assert not folder.exists()
    assert not [finding for finding in check_leftovers() if str(folder) in finding.finding]
