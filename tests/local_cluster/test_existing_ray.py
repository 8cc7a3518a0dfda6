"""``start --address``: the gateway on a Ray cluster that runs already, and off it again; what is refused."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from certificates import Authority
from doc_blocks import block, shell
from feeds import Reading
from ports import free_port
from ray_bed import GPUS, RayBed, request

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.discovery import Target, find_gateway
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import AuthenticationError, ClusterError, ConflictError, OptionError
from jupyter_gpu_release.local_cluster.existing_ray import _own_addresses, attach
from jupyter_gpu_release.local_cluster.start import StartOptions

# a cluster of its own: 15 s, minutes on a machine that is busy
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]
Until = Callable[[Callable[[], object], str], None]


def _quiet(text: str) -> None:
    """Progress that nobody reads."""


@pytest.fixture(scope="module")
def ray_bed() -> Iterator[RayBed]:
    bed = RayBed(settings={})  # as the operators' pages say, not as we start our own
    yield bed
    bed.stop()


@pytest.fixture
def with_token(ray_bed: RayBed, monkeypatch: pytest.MonkeyPatch) -> RayBed:
    """Ray's token as its operator would export it."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, ray_bed.environment[name])
    monkeypatch.setenv("JUPYTER_GPU_PRELOAD", "json")
    return ray_bed


def test_there_and_off_again(
    with_token: RayBed,
    own_home: HomePaths,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First by the commands of the operators' pages, with TLS."""
    addresses = {address for address in _own_addresses() if "." in address}
    Authority(tmp_path).sign("gateway", *addresses)
    port = str(free_port())
    variables, line = block("operate/ray-cluster.md", "# How to use a Ray cluster that you have").commands(
        {
            "RAY_AUTH_TOKEN_PATH=…": f"RAY_AUTH_TOKEN_PATH={with_token.folder}/ray-token",
            "HEAD:6379": with_token.address,
            "/shared/gpu-runs": str(tmp_path / "shared"),
            "8765": port,
        }
    )
    done = shell(f"unset RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH\n{variables}\n{line}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"The gateway on the Ray cluster at {with_token.address} is ready" in done.stdout
    monkeypatch.chdir(tmp_path)
    everywhere = shlex.split(line)[2:]
    connection = own_home.read_connection()
    assert connection is not None
    assert not connection.embedded
    target = find_gateway()
    assert target is not None
    with GatewayClient.for_target(target) as gateway:
        assert gateway.status().gpus.total == GPUS
    for address in addresses:  # not on loopback alone
        with GatewayClient(f"https://{address}:{port}", target.token, tls=target.tls()) as gateway:
            assert gateway.health().ready
    for same in (["start", "--address", with_token.address], everywhere):
        assert main(same) == 0
        assert "it is used as it is" in capsys.readouterr().out
    with_token.ask("end", "jupyter_gpu_release")  # as when the head's machine was started anew, and Ray on it
    assert main(everywhere) == 0
    assert "is ready" in capsys.readouterr().out
    assert own_home.read_connection() == connection
    with GatewayClient.for_target(target) as gateway:
        assert gateway.status().gpus.total == GPUS
    worker = _kept_worker(with_token, target, until)
    other = {"--port": "1", "--host": "127.0.0.2", "--store": str(tmp_path / "other")}
    for option, value in other.items():
        more = ["--port", "9"] if option == "--host" else []
        assert main(["start", "--address", with_token.address, option, value, *more]) == 1
        said = capsys.readouterr().err
        assert "runs already" in said
        assert "`jupyter gpu stop`, then start it anew" in said
    with pytest.raises(ConflictError, match="is in use already"):
        attach("127.0.0.1:1", home=own_home, asked=StartOptions(), progress=_quiet)
    assert main(["stop", "--yes"]) == 0
    assert "the cluster itself runs on" in capsys.readouterr().out
    until(lambda: not with_token.lease_workers() and not psutil.pid_exists(worker), "Ray to end this worker, too")
    assert own_home.read_connection() is None
    assert not Path(connection.runtime).exists()
    assert with_token.ask("end", "jupyter_gpu_release") == []  # no actor of ours to end
    until(lambda: with_token.ask("groups") == [], "no group of ours")
    until(lambda: with_token.ask("free") == GPUS, "all GPUs free, as Ray says a moment later")
    assert main(["stop"]) == 0
    assert capsys.readouterr().out == "No cluster was running.\n"


def _kept_worker(ray: RayBed, target: Target, until: Until) -> int:
    """The worker that stays for leases. Ray ends idle ones after 0.2 s, and a lease waited long for a new one."""
    session = GatewaySession(target, "leases")
    try:
        session.connect(60)
        until(ray.lease_workers, "a worker that stays")
        (kept,) = ray.lease_workers()
        for _ in range(4):
            cell = request("import time; time.sleep(0.5)", "leases")  # longer than Ray lets workers be idle
            assert Reading(session.submit(cell)).end().state == "succeeded"
            assert ray.lease_workers() == {kept}
    finally:
        session.close()
    return kept


def test_without_ray_s_token_it_is_refused_and_said(
    ray_bed: RayBed, own_home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other-token"
    other.write_text("0" * 64)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(other))
    monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "2")  # Ray tries 20 times, a second each
    with pytest.raises((AuthenticationError, ClusterError)) as caught:
        attach(ray_bed.address, home=own_home, asked=StartOptions(), progress=_quiet)
    assert ray_bed.address in caught.value.message
    assert "RAY_AUTH_TOKEN_PATH" in caught.value.hint
    assert own_home.read_connection() is None


def test_where_no_ray_is(own_home: HomePaths) -> None:
    with pytest.raises(ClusterError) as caught:
        attach("127.0.0.1:9", home=own_home, asked=StartOptions(), progress=_quiet)
    assert "127.0.0.1:9" in caught.value.message
    assert caught.value.hint
    assert own_home.read_connection() is None


@pytest.mark.parametrize(
    ("address", "host", "port", "message"),
    [
        ("192.0.2.77:6379", "127.0.0.1", 0, "would listen on 127.0.0.1 of 192.0.2.77"),
        ("192.0.2.77:6379", "0.0.0.0", 0, "--host 0.0.0.0 needs a port"),
    ],
)
def test_a_gateway_that_nobody_could_reach(
    address: str, host: str, port: int, message: str, own_home: HomePaths
) -> None:
    with pytest.raises(OptionError, match=message):
        attach(address, home=own_home, asked=StartOptions(host=host, port=port), progress=_quiet)
