"""Plain text beyond this machine is refused unless somebody says so; half a certificate and a wrong proxy are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from certificates import Authority

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.local_cluster.start import StartOptions


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gpu.example.org"])
def test_plain_text_beyond_this_machine_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"--host {host}: without TLS") as caught:
        StartOptions.read({"host": host})
    assert "--tls-cert FILE --tls-key FILE" in caught.value.hint
    assert "--allow-plain-text" in caught.value.hint
    assert StartOptions.read({"host": host, "allow_plain_text": True}).host == host
    cert, key = Authority(tmp_path).sign("gateway", "gpu.example.org")
    assert StartOptions.read({"host": host, "tls_cert": cert, "tls_key": key}).tls_cert == cert


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_alone_needs_no_tls(host: str) -> None:
    StartOptions.read({"host": host, "proxy_url": "https://gpu.example.org/team"})


@pytest.mark.parametrize(
    "url", ["gpu.example.org", "ftp://gpu.example.org", "https://u:p@gpu.example.org", "https://x/?a"]
)
def test_a_proxy_is_an_address(url: str) -> None:
    with pytest.raises(OptionError, match="not an address"):
        StartOptions.read({"proxy_url": url})


def test_a_proxy_speaks_tls_too() -> None:
    with pytest.raises(OptionError, match=r"--proxy-url http://gpu\.example\.org: without TLS"):
        StartOptions.read({"proxy_url": "http://gpu.example.org"})
    StartOptions.read({"proxy_url": "http://gpu.example.org", "allow_plain_text": True})


def test_start_refuses_before_anything_starts(own_home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "--simulated-gpus", "1", "--host", "0.0.0.0"]) == 2
    assert "--allow-plain-text" in capsys.readouterr().err
    assert main(["start", "--simulated-gpus", "1", "--tls-cert", "gateway.crt"]) == 2
    assert "--tls-cert without --tls-key" in capsys.readouterr().err
    assert own_home.read_connection() is None


@pytest.mark.parametrize(
    ("names", "flags", "told"),
    [
        (("gpu.example.org", "10.0.0.5"), {"host": "0.0.0.0"}, "https://gpu.example.org:8765"),
        (("gpu.example.org", "10.0.0.5"), {"host": "0.0.0.0", "address": "10.0.0.5:6379"}, ""),
        (("gpu.example.org",), {"host": "10.0.0.5"}, "https://gpu.example.org:8765"),
        (("gpu.example.org",), {"host": "gpu.example.org"}, ""),
        (("*.example.org",), {"host": "gpu.example.org"}, ""),
        (("*.example.org",), {"host": "0.0.0.0"}, ""),
        (("gpu.example.org",), {"host": "127.0.0.1"}, ""),
        (("gpu.example.org",), {"host": "0.0.0.0", "proxy_url": "https://x.org/team/"}, "https://x.org/team"),
    ],
)
def test_users_are_told_a_name_that_the_certificate_has(
    names: tuple[str, ...], flags: dict[str, str], told: str, tmp_path: Path
) -> None:
    cert, key = Authority(tmp_path).sign("gateway", *names)
    asked = StartOptions.read({"port": 8765, "tls_cert": cert, "tls_key": key, **flags})
    assert asked.proxy_url == told
