"""The readiness probe of the chart's gateway: its three answers, in plain text and with TLS."""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from certificates import Authority
from helm_chart import CHART
from ports import free_port

_SCRIPT = CHART / "files" / "gateway-ready.py"


@contextmanager
def _gateway(status: int, health: object, certificate: tuple[str, str] | None = None) -> Iterator[int]:
    """Answers as a gateway with the token ``secret`` would; yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Authorization"] == "Bearer secret" and self.path == "/v1/health"
            self.send_response(status if known else 401)
            self.end_headers()
            self.wfile.write(json.dumps(health).encode())

        def log_message(self, *words: object) -> None:
            """Nothing of it in the tests' output."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _probe(url: str, folder: Path, token: str = "secret", **more: str) -> tuple[int, str]:
    (folder / "token").write_text(f"{token}\n")
    environment = {"JUPYTER_GPU_HOME": str(folder), "GATEWAY_URL": url, "https_proxy": "http://127.0.0.1:9", **more}
    environment["http_proxy"] = "http://127.0.0.1:9"
    done = subprocess.run([sys.executable, _SCRIPT], env=environment, capture_output=True, text=True, timeout=30)
    assert "secret" not in done.stdout + done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("status", "health", "expected", "said"),
    [
        (200, {"ready": True, "problems": []}, 0, ""),
        (200, {"ready": False, "problems": ["the store does not answer"]}, 1, "the store does not answer"),
        (200, {"ready": False, "problems": []}, 1, "no node agent is up"),
        (503, {"error": "busy"}, 1, "answers with 503"),
    ],
)
def test_what_the_gateway_says(status: int, health: object, expected: int, said: str, tmp_path: Path) -> None:
    with _gateway(status, health) as port:
        code, words = _probe(f"http://127.0.0.1:{port}", tmp_path)
    assert code == expected
    assert said in words


def test_a_token_that_is_not_its_own_is_no_reason_to_start_it_anew(tmp_path: Path) -> None:
    with _gateway(200, {"ready": True, "problems": []}) as port:
        assert _probe(f"http://127.0.0.1:{port}", tmp_path, token="another")[0] == 1


def test_where_nothing_listens(tmp_path: Path) -> None:
    code, words = _probe(f"http://127.0.0.1:{free_port()}", tmp_path)
    assert code == 2
    assert "does not answer" in words


def test_with_tls_it_trusts_the_gateway_s_certificate_and_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("gateway", "gpus-gateway")
    authority.sign("other", "gpus-gateway")
    own = (str(tmp_path / "gateway.crt"), str(tmp_path / "gateway.key"))
    with _gateway(200, {"ready": True, "problems": []}, own) as port:
        url = f"https://127.0.0.1:{port}"
        assert _probe(url, tmp_path, GATEWAY_CERTIFICATE=own[0]) == (0, "")
        code, words = _probe(url, tmp_path, GATEWAY_CERTIFICATE=str(tmp_path / "other.crt"))
    assert code == 2
    assert "CERTIFICATE_VERIFY_FAILED" in words
