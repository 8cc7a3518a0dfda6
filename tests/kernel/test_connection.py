"""Gateways that are down, refuse, go away and come back; this machine's own cluster dying."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
from round_trip import make_shell

from jupyter_gpu_release.client.config import GpuRelease, find_target
from jupyter_gpu_release.client.home import Connection, HomePaths, write_secret
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import GatewayUnavailableError
from jupyter_gpu_release.kernel.connection import GatewayConnection, describe_cluster
from jupyter_gpu_release.protocol.session import Refused, Welcome

if TYPE_CHECKING:
    from kernel_outputs import Kernel
    from script_gateway import FakeGateway, FakeRun

MakeKernel = Callable[[dict[str, str]], "Kernel"]


def test_nothing_is_lost_or_doubled_when_the_connection_breaks(kernel: Kernel, gateway: FakeGateway, graph_of: Any):
    @gateway.script("broken")
    def play(run: FakeRun) -> None:
        run.start()
        for number in range(200):
            run.say(f"{number}\n")
            if number in (50, 120):
                assert gateway.greeted.acquire(timeout=20)
                gateway.drop_connections()
        run.end(**graph_of(done=True))

    outputs = kernel.run("%%gpu_train --name broken\npass")
    assert outputs.text() == "".join(f"{n}\n" for n in range(200))
    assert kernel.value("done") == "True"
    assert len(gateway.hellos) == 3
    assert len({hello.session for hello in gateway.hellos}) == 1


def test_a_lost_connection_is_said(kernel: Kernel, gateway: FakeGateway):
    lost = threading.Event()

    @gateway.script("away")
    def play(run: FakeRun) -> None:
        run.start()
        gateway.is_away.set()
        gateway.drop_connections()
        lost.wait(20)
        gateway.is_away.clear()
        run.end()

    message = kernel.start("%%gpu_train --name away\npass")
    said = []
    while not any(text.startswith("connection to the gateway lost, the run goes on") for text in said):
        shown = kernel.client.get_iopub_msg(timeout=20)
        if "data" in shown["content"]:
            said.append(shown["content"]["data"]["text/plain"])
    lost.set()
    assert kernel.finish(message).reply["status"] == "ok"


def test_a_kernel_that_does_not_see_the_store_says_so_once_before_anything_runs(kernel: Kernel, gateway: FakeGateway):
    gateway.store = gateway.store / "elsewhere"
    (line, *_) = [text for text in kernel.run("%%gpu_train\npass").plain() if "above 1 MiB" in text]
    assert line.startswith("Of cells that are sent from here, names above 1 MiB in all neither go nor come back: ")
    assert f"the store {gateway.store} cannot be seen from this kernel; mount the shared filesystem here" in line
    assert not [text for text in kernel.run("%%gpu_train\npass").plain() if "above 1 MiB" in text]


def test_a_configured_gateway_that_is_down_is_not_replaced(take_kernel: MakeKernel, home: dict[str, str]):
    kernel = take_kernel({**home, "JUPYTER_GPU_URL": "http://127.0.0.1:9", "JUPYTER_GPU_TOKEN": "x"})
    outputs = kernel.run("%%gpu_train\nx = 1", timeout_s=60)
    assert outputs.error["ename"] == "GatewayUnavailableError"
    assert "http://127.0.0.1:9 does not answer: Connection refused" in outputs.traceback
    assert "the address is set by JUPYTER_GPU_URL" in outputs.traceback
    assert "unset JUPYTER_GPU_URL to use this machine's own" in outputs.traceback
    assert outputs.plain() == ["connecting to the gateway http://127.0.0.1:9: not done"]
    said = [message["content"]["data"]["text/plain"] for message in outputs if message["msg_type"] == "display_data"]
    assert len(said) == 1
    assert re.fullmatch(r"connecting to the gateway http://127\.0\.0\.1:9 … \(\d s\)", said[0])
    assert not (Path(home["JUPYTER_GPU_HOME"]) / "connection.json").exists()


@pytest.fixture
def silent() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_the_wait_for_a_gateway_can_be_interrupted(make_kernel: MakeKernel, home: dict[str, str], silent: str):
    kernel = make_kernel({**home, "JUPYTER_GPU_URL": silent, "JUPYTER_GPU_TOKEN": "x"})
    kernel.run("%load_ext jupyter_gpu_release")
    # nothing but the interrupt ends the wait
    kernel.run("import jupyter_gpu_release.client.session as way\nway.CONNECT_S = 3600")
    message = kernel.start("%gpu_train 1")
    while "data" not in kernel.client.get_iopub_msg(timeout=20)["content"]:
        pass
    kernel.manager.interrupt_kernel()
    assert kernel.finish(message).error["ename"] == "KeyboardInterrupt"
    assert kernel.value("1 + 1") == "2"


def test_a_name_that_does_not_exist_is_said_at_once(take_kernel: MakeKernel, home: dict[str, str]):
    kernel = take_kernel({**home, "JUPYTER_GPU_URL": "http://no-such-host.invalid:8765", "JUPYTER_GPU_TOKEN": "x"})
    outputs = kernel.run("%gpu_train 1")
    assert outputs.error["ename"] == "GatewayUnavailableError"
    assert "its name is not resolved" in outputs.traceback


def test_a_token_is_asked_for(take_kernel: MakeKernel, home: dict[str, str]):
    kernel = take_kernel({**home, "JUPYTER_GPU_URL": "http://127.0.0.1:9"})
    outputs = kernel.run("%gpu_train 1")
    assert outputs.error["ename"] == "AuthenticationError"
    assert "JUPYTER_GPU_TOKEN" in outputs.traceback


def test_a_gateway_that_refuses_says_why(kernel: Kernel, gateway: FakeGateway):
    gateway.refuse_all = Refused("", "protocol_version", "the gateway speaks protocol 2, this client 1", "upgrade")
    outputs = kernel.run("%gpu_train 1")
    assert outputs.error["ename"] == "ProtocolError"
    assert outputs.traceback.endswith("the gateway speaks protocol 2, this client 1\n  → upgrade")
    gateway.refuse_all = None
    assert kernel.run("%gpu_train 1").reply["status"] == "ok"


def test_nothing_is_started_where_that_is_forbidden(take_kernel: MakeKernel, home: dict[str, str]):
    folder = Path(home["JUPYTER_CONFIG_DIR"])
    folder.mkdir(parents=True)
    (folder / "jupyter_gpu_release_config.py").write_text("c.GpuRelease.auto_start = 'never'\n")
    kernel = take_kernel(home)
    outputs = kernel.run("%gpu_train 1")
    assert outputs.error["ename"] == "GatewayUnavailableError"
    assert "auto_start is 'never'" in outputs.traceback


def test_a_kernel_that_ends_says_good_bye(kernel: Kernel, gateway: FakeGateway, until: Any):
    kernel.run("%gpu_train 1")
    kernel.client.shutdown()
    assert gateway.said_bye.wait(20)
    until(lambda: not kernel.manager.is_alive(), "its end")


def test_unloading_says_good_bye(kernel: Kernel, gateway: FakeGateway):
    kernel.run("%gpu_train 1")
    kernel.run("%unload_ext jupyter_gpu_release")
    assert gateway.said_bye.wait(20)


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the one that keeps a cluster together."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def own_cluster(home: dict[str, str], gateway: FakeGateway, daemon: subprocess.Popen[bytes]) -> dict[str, str]:
    """Environment of a kernel for which the fake gateway is this machine's own cluster."""
    paths = HomePaths(Path(home["JUPYTER_GPU_HOME"]))
    write_secret(paths.token, "a-token-for-tests")
    created = psutil.Process(daemon.pid).create_time()
    connection = Connection(
        gateway.url, str(paths.token), str(gateway.store), simulated=True, daemon_pid=daemon.pid, daemon_created=created
    )
    paths.write_connection(connection)
    return home


def test_whose_cluster_it_is_is_said_once(
    make_kernel: MakeKernel, own_cluster: dict[str, str], gateway: FakeGateway, hush: Callable[[Kernel], None]
) -> None:
    kernel = make_kernel(own_cluster)
    kernel.run("%load_ext jupyter_gpu_release")
    hush(kernel)
    first, second = kernel.run("%gpu_train 1"), kernel.run("%gpu_train 1")
    assert first.plain()[0] == ("This is this machine's own cluster: 4 simulated GPUs. It runs until jupyter gpu stop.")
    assert len(first.plain()) == 2
    assert len(second.plain()) == 1


def test_of_a_pool_the_gpus_that_it_may_borrow_are_said() -> None:
    welcome = Welcome(1, "0", "ann", simulated=False, gpus_total=0, store="/store", gpus_borrowed_most=8)
    (text,) = (text for kind, text in describe_cluster(welcome).items() if kind == "text/plain")
    assert text.startswith("This is this machine's own cluster: up to 8 GPUs, on nodes that are borrowed")


def test_own_cluster_that_dies_is_noticed_at_once(
    make_kernel: MakeKernel, own_cluster: dict[str, str], gateway: FakeGateway, daemon: subprocess.Popen[bytes]
) -> None:
    kernel = make_kernel(own_cluster)
    kernel.run("%load_ext jupyter_gpu_release\nkept = [1, 2]")

    @gateway.script("dies")
    def play(run: FakeRun) -> None:
        run.start()
        daemon.kill()
        daemon.wait()
        gateway.is_away.set()
        gateway.drop_connections()

    outputs = kernel.run("%%gpu_train --name dies\nkept.append(3)")
    assert outputs.error["ename"] == "RunLostError"
    assert "this machine's own cluster ended while run" in outputs.traceback
    assert kernel.value("kept") == "[1, 2]"


@pytest.mark.parametrize(("host", "is_kept"), [("", False), ("login1", True)], ids=["own", "pool"])
def test_a_session_ends_with_its_cluster_unless_that_is_a_pool_that_waits_for_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, is_kept: bool
) -> None:
    home = HomePaths(tmp_path / "home")
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(home.root))
    write_secret(home.token, "own-token")
    with subprocess.Popen(["true"]) as daemon:
        dead = {"cluster": "cafe", "daemon_pid": daemon.pid, "daemon_created": 1.0, "host": host}
    home.write_connection(Connection("http://127.0.0.1:9", str(home.token), "/s", simulated=True, **dead))
    settings, closed = GpuRelease(auto_start="never"), list[float]()
    connection = GatewayConnection(make_shell())
    connection._session = cast(
        GatewaySession,
        SimpleNamespace(connected=False, target=find_target(settings), serves=lambda _: False, close=closed.append),
    )
    with pytest.raises(GatewayUnavailableError, match="no cluster is running here"):
        connection.open(settings)
    assert (connection._session is not None, closed == []) == (is_kept, is_kept)
