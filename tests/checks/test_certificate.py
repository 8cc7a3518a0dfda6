"""The gateway's certificate, in real handshakes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority

from jupyter_gpu_release.checks.certificate import check_certificate
from jupyter_gpu_release.checks.finding import BROKEN, NOTE, OK, Finding
from jupyter_gpu_release.client.discovery import Target

_HOUR_S = 3600


@contextlib.contextmanager
def _serving(cert: str, key: str) -> Iterator[str]:
    """The address of a server that shakes hands once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def serve() -> None:
        with contextlib.suppress(OSError):
            line, _ = listener.accept()
            with line, context.wrap_socket(line, server_side=True) as tls:
                tls.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):  # wakes one that was never asked
                socket.create_connection(listener.getsockname(), timeout=5).close()
            thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def _look(authority: Authority, cert: tuple[str, str], ca_file: Path | None = None) -> Finding:
    with _serving(*cert) as url:
        target = Target(url, "secret", ca_file=str(ca_file or authority.file))
        (finding,) = check_certificate(target, time.time(), 30.0)
    return finding


@pytest.mark.parametrize(("days", "level"), [(400, OK), (32, OK), (29, NOTE), (2, NOTE)])
def test_a_certificate_that_ends_soon_is_noted(authority: Authority, days: int, level: str) -> None:
    finding = _look(authority, authority.sign(f"for-{days}", "127.0.0.1", days=days))
    assert finding.level == level
    assert str(days - 1) in finding.finding


def test_each_fault_has_its_own_cure(authority: Authority, tmp_path: Path) -> None:
    expired = _look(authority, authority.sign("expired", "127.0.0.1", days=-1))
    early = _look(authority, authority.sign("early", "127.0.0.1", ahead_s=_HOUR_S))
    other = _look(authority, authority.sign("other", "gpu.example.org"))
    stranger = Authority(tmp_path, "stranger")
    unknown = _look(authority, stranger.sign("unknown", "127.0.0.1"))
    missing = _look(authority, authority.sign("fine", "127.0.0.1"), tmp_path / "none.pem")
    assert {one.level for one in (expired, early, other, unknown, missing)} == {BROKEN}
    assert ("has expired" in expired.finding, "renew it" in expired.hint) == (True, True)
    assert ("is not valid yet" in early.finding, "set the clock" in early.hint) == (True, True)
    assert ("is for another host" in other.finding, "use a name" in other.hint) == (True, True)
    assert ("nobody whom this machine trusts" in unknown.finding, "JUPYTER_GPU_CA_FILE" in unknown.hint) == (True, True)
    assert ("none.pem" in missing.finding, "JUPYTER_GPU_CA_FILE" in missing.hint) == (True, True)


def test_a_gateway_without_tls_has_no_certificate() -> None:
    assert not list(check_certificate(Target("http://127.0.0.1:9", "secret"), time.time(), 5.0))


def test_one_that_cannot_be_looked_at_says_how_to(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    target = Target(f"https://127.0.0.1:{port}", "secret", ca_file=str(authority.file))
    (finding,) = check_certificate(target, time.time(), 5.0)
    assert (finding.level, f"openssl s_client -connect 127.0.0.1:{port}" in finding.hint) == (NOTE, True)


def test_one_that_says_nothing_is_given_up(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        (finding,) = check_certificate(Target(url, "secret", ca_file=str(authority.file)), time.time(), 0.05)
    assert (finding.level, "timed out" in finding.finding) == (NOTE, True)
