"""``%gpu_doctor`` in real kernels: without a cluster, with one, and before a gateway that says nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpu_release.checks.finding import Finding, broken, note, ok
from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.kernel.magics.doctor import findings_table

if TYPE_CHECKING:
    from kernel_outputs import Kernel

MakeKernel = Callable[[dict[str, str]], "Kernel"]
_FINDINGS = [
    ok("package", "jupyter_gpu_release 0.1", where="kernel"),
    note("dns", "the name gpu-02 is not known on gpu-01", "an entry for `10.0.0.2 gpu-02` in DNS", where="gpu-02"),
    broken("store", "gpu-01: cannot write /store: No space left on device", "free some space there", where="gpu-01"),
]


def _doctor(kernel: Kernel) -> tuple[str, str]:
    """Its table, as text and as HTML."""
    outputs = kernel.run("%gpu_doctor", 120)
    assert outputs.reply["status"] == "ok", outputs.traceback
    shown = [m["content"]["data"] for m in outputs if m["msg_type"] in ("display_data", "update_display_data")]
    return str(shown[-1]["text/plain"]), str(shown[-1]["text/html"])


def test_without_a_cluster_it_says_how_to_get_one(take_kernel: MakeKernel, home: dict[str, str]):
    kernel = take_kernel(home)
    text, html = _doctor(kernel)
    assert "0 broken, 1 worth knowing" in text
    assert "none is running here and no gateway is configured" in " ".join(text.split())
    assert "the first %%gpu_train starts this machine" in html
    assert json.loads(kernel.value("'ray' in __import__('sys').modules").lower()) is False
    assert not Path(home["JUPYTER_GPU_HOME"]).exists()


def test_kernel_gateway_and_node_of_a_cluster(take_kernel: MakeKernel, home: dict[str, str], cluster: Ready):
    kernel = take_kernel({**home, "JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)})
    text, html = _doctor(kernel)
    rows = html.split("<tr>")[2:]
    places = {(row.split(">")[3].split("<")[0], row.split(">")[5].split("<")[0]) for row in rows}
    node = socket.gethostname()
    assert {("kernel", "package"), ("kernel", "store"), ("gateway", "gateway"), ("gateway", "versions")} <= places
    assert {(node, "nodes"), (node, "store")} <= places
    assert text.startswith("0 broken, ")
    assert kernel.value("'ray' in __import__('sys').modules") == "False"


def test_a_node_tells_its_store_and_frameworks_and_tries_no_port_of_its_own(cluster: Ready):
    token = read_secret(Path(cluster.connection.token_file))
    with GatewayClient(cluster.connection.url, token, timeout_s=60.0) as gateway:
        (node,), health = gateway.checks().nodes, gateway.health()
    assert node.probe is not None
    assert node.probe.store_id == health.store_id
    assert health.store_id
    assert any(name.startswith("torch ") for name in node.probe.frameworks)
    assert node.probe.ports == node.probe.names == []


def test_a_gateway_that_says_nothing_is_left_at_an_interrupt(take_kernel: MakeKernel, home: dict[str, str]):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        kernel = take_kernel({**home, "JUPYTER_GPU_URL": url, "JUPYTER_GPU_TOKEN": "secret"})
        message = kernel.start("%gpu_doctor")
        line, _ = listener.accept()  # it has asked
        kernel.manager.interrupt_kernel()
        outputs = kernel.finish(message)
        line.close()
    assert outputs.error["ename"] == "KeyboardInterrupt"
    shown = [m["content"]["data"]["text/plain"] for m in outputs if m["msg_type"].endswith("display_data")]
    assert "not done" in shown[-1]


def test_a_gateway_that_is_down_is_broken_and_says_why(take_kernel: MakeKernel, home: dict[str, str]):
    kernel = take_kernel({**home, "JUPYTER_GPU_URL": "http://127.0.0.1:9", "JUPYTER_GPU_TOKEN": "secret-word"})
    text, html = _doctor(kernel)
    assert text.startswith("2 broken")
    assert "✗" in text.splitlines()[2], "what is broken comes first"
    assert "http://127.0.0.1:9 does not answer" in html
    assert "is reached, and nothing listens there" in html
    assert "secret-word" not in html


def test_settings_that_are_wrong_are_a_finding(take_kernel: MakeKernel, home: dict[str, str]):
    kernel = take_kernel({**home, "JUPYTER_GPU_URL": "gpu.example.org", "JUPYTER_GPU_TOKEN": "secret"})
    text, html = _doctor(kernel)
    assert text.startswith("1 broken")
    assert "write it like http://host:8765" in html


def test_what_is_broken_comes_first_and_no_cure_is_cut():
    table = findings_table(_FINDINGS)
    assert [row[:3] for row in table.rows] == [
        ("✗", "gpu-01", "store"),
        ("·", "gpu-02", "dns"),
        ("✓", "kernel", "package"),
    ]
    assert table.title == "1 broken, 1 worth knowing, 1 fine"
    text = " ".join(repr(table).split())
    assert all(_told(finding) in text for finding in _FINDINGS)


def _told(finding: Finding) -> str:
    return f"{finding.finding} → {finding.hint}" if finding.hint else finding.finding
