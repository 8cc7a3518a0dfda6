"""Which gateway is found, and how token files are guarded."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from jupyter_gpu_release.client.discovery import Target, find_gateway, has_ended, is_alive
from jupyter_gpu_release.client.home import Connection, HomePaths, read_secret, write_secret
from jupyter_gpu_release.errors import AuthenticationError, GatewayUnavailableError


@pytest.fixture
def home(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path / "home")


@pytest.fixture
def own_cluster(home: HomePaths) -> Connection:
    write_secret(home.token, "own-token")
    connection = Connection("http://127.0.0.1:9", str(home.token), "/own/store", simulated=True)
    home.write_connection(connection)
    return connection


def find(home: HomePaths, *arguments: object, **environment: str) -> Target | None:
    return find_gateway(*arguments, environment={"JUPYTER_GPU_HOME": str(home.root), **environment})


def test_nothing_is_known(home: HomePaths) -> None:
    assert find(home) is None


def test_the_own_cluster(home: HomePaths, own_cluster: Connection) -> None:
    found = find(home)
    assert found == Target("http://127.0.0.1:9", "own-token", False, "/own/store", True, True, own_cluster)
    assert found.is_loopback


@pytest.mark.parametrize(("apart_s", "alive"), [(0.0, True), (1.0, True), (-1.0, True), (60.0, False), (-60.0, False)])
def test_another_process_with_the_number_of_its_daemon_is_not_the_own_cluster(
    own_cluster: Connection, apart_s: float, alive: bool
) -> None:
    created = psutil.Process().create_time() + apart_s
    known = msgspec.structs.replace(own_cluster, daemon_pid=os.getpid(), daemon_created=created)
    target = Target("http://127.0.0.1:9", "own-token", connection=known)
    assert is_alive(target) is alive
    assert is_alive(replace(target, configured=True))


def test_a_daemon_that_nobody_has_waited_for_is_dead(own_cluster: Connection) -> None:
    with subprocess.Popen(["true"]) as daemon:
        os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(
            Target("http://a", "t", connection=msgspec.structs.replace(own_cluster, daemon_pid=daemon.pid))
        )


def test_a_pool_that_has_lost_its_head_is_not_over_until_it_is_stopped(
    home: HomePaths, own_cluster: Connection
) -> None:
    with subprocess.Popen(["true"]) as daemon:
        dead = msgspec.structs.replace(own_cluster, cluster="cafe", daemon_pid=daemon.pid, daemon_created=1.0)
    pool = msgspec.structs.replace(dead, host="login1")
    for known, is_over in ((dead, True), (pool, False)):
        home.write_connection(known)
        assert has_ended(find(home)) is is_over
    lost = find(home)
    home.write_connection(msgspec.structs.replace(pool, daemon_pid=os.getpid(), daemon_created=0.0))
    assert not has_ended(lost)
    assert find(home) != lost
    assert find(home).is_renewal_of(lost)
    home.write_connection(msgspec.structs.replace(pool, cluster="beef"))
    assert has_ended(lost)
    assert not find(home).is_renewal_of(lost)
    home.remove_connection()
    assert has_ended(lost)


def test_the_environment_comes_before_the_own_cluster(home: HomePaths, own_cluster: Connection) -> None:
    found = find(home, JUPYTER_GPU_URL="https://gpus.example:8765/", JUPYTER_GPU_TOKEN=" t ", JUPYTER_GPU_STORE="/nfs")
    assert found == Target("https://gpus.example:8765", "t", True, "/nfs")
    assert not found.is_loopback


def test_arguments_come_before_the_environment(home: HomePaths) -> None:
    found = find(home, "http://a:1", "t1", None, "/s", JUPYTER_GPU_URL="http://b:2", JUPYTER_GPU_TOKEN="t2")
    assert found == Target("http://a:1", "t1", True, "/s")


def test_a_token_file(home: HomePaths, tmp_path: Path) -> None:
    file = tmp_path / "my-token"
    write_secret(file, "from-file")
    assert find(home, "http://a:1", None, str(file)).token == "from-file"
    assert find(home, "http://a:1", None, str(file), JUPYTER_GPU_TOKEN="another").token == "from-file"
    named = {"JUPYTER_GPU_URL": "http://a:1", "JUPYTER_GPU_TOKEN_FILE": str(file), "JUPYTER_GPU_HUB_SERVICE": "/s"}
    found = find(home, **named)
    assert (found.token, found.is_renewed) == ("from-file", True)
    assert not find(home, **named, JUPYTER_GPU_TOKEN="own").is_renewed
    assert found.with_current_token() is found
    write_secret(file, "renewed")
    assert found.with_current_token().token == "renewed"
    with pytest.raises(AuthenticationError, match=f"cannot read the token file {tmp_path / 'none'}: No such file"):
        find(home, "http://a:1", None, str(tmp_path / "none"))


def test_a_token_file_that_others_may_read_is_refused(home: HomePaths, tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_secret(file, "x")
    for mode in (0o640, 0o604, 0o660):
        file.chmod(mode)
        with pytest.raises(AuthenticationError, match="may be read by others") as refused:
            find(home, "http://a:1", None, str(file))
        assert refused.value.hint == f"chmod 600 {file}"


@pytest.mark.parametrize("content", [b"", b"  \n"])
def test_an_empty_token_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_bytes(content)
    with pytest.raises(AuthenticationError, match="is empty"):
        read_secret(file)


def test_a_configured_gateway_needs_a_token(home: HomePaths, own_cluster: Connection) -> None:
    with pytest.raises(AuthenticationError, match="no token for the gateway http://a:1") as refused:
        find(home, "http://a:1")
    assert "JUPYTER_GPU_TOKEN" in refused.value.hint


def test_the_own_cluster_by_its_url_is_configured(home: HomePaths, own_cluster: Connection) -> None:
    found = find(home, "http://127.0.0.1:9/")
    assert (found.token, found.configured, found.embedded) == ("own-token", True, True)
    assert find(home, "http://127.0.0.1:9/", "mine").token == "mine"
    assert find(home, JUPYTER_GPU_STORE="/nfs").store == "/nfs"


@pytest.mark.parametrize("url", ["a:1", "ftp://a", "http://", "nonsense", "http://u:p@a:1", "http://a?token=x"])
def test_what_is_no_url(home: HomePaths, url: str) -> None:
    with pytest.raises(GatewayUnavailableError):
        find(home, url, "t")


def test_a_damaged_connection_file(home: HomePaths) -> None:
    home.create()
    home.connection.write_text("{")
    with pytest.raises(GatewayUnavailableError, match=r"cannot read .*connection\.json"):
        find(home)


def test_the_token_does_not_show() -> None:
    assert "secret" not in repr(Target("http://a", "secret"))


def test_files_of_the_home_are_private(home: HomePaths, own_cluster: Connection) -> None:
    assert home.root.stat().st_mode & 0o777 == 0o700
    for file in (home.connection, home.token):
        assert file.stat().st_mode & 0o777 == 0o600
    assert home.read_connection() == own_cluster
    home.remove_connection()
    home.remove_connection()
    assert home.read_connection() is None
