"""A Hub hands out no tokens over plain text, unless its operator allows that, nor without packages it needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.checks import package
from jupyter_gpu_release.errors import ClusterError, OptionError
from jupyter_gpu_release.hub.config import hand_out_tokens


def _configured(gateway: str, **arguments: Any) -> list[dict[str, Any]]:
    """The services that the Hub has after the call."""
    services: list[dict[str, Any]] = []
    config = SimpleNamespace(JupyterHub=SimpleNamespace(services=services), Spawner=SimpleNamespace(environment={}))
    hand_out_tokens(config, gateway, "/etc/admin.token", **arguments)
    return services


@pytest.mark.parametrize("gateway", ["http://gpu.example.org:8765", "http://10.1.2.3:8765", "HTTP://gpu:8765"])
def test_a_gateway_beyond_this_machine_speaks_tls(gateway: str) -> None:
    with pytest.raises(OptionError, match=f"gateway='{gateway}': without TLS, tokens could be read") as caught:
        _configured(gateway)
    assert "hand_out_tokens(…, allow_plain_text=True)" in caught.value.hint
    assert _configured(gateway, allow_plain_text=True)


def test_so_does_the_service_itself() -> None:
    gateway = "https://gpu.example.org:8765"
    with pytest.raises(OptionError, match="url='http://hub:8780'") as caught:
        _configured(gateway, url="http://hub:8780")
    assert "allow_plain_text=True" in caught.value.hint
    assert _configured(gateway, url="http://hub:8780", allow_plain_text=True)
    assert _configured(gateway, url="https://hub.example.org/gpu")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_on_one_machine_nobody_reads_along(host: str) -> None:
    assert _configured(f"http://{host}:8765", url=f"http://{host}:8780")


def test_packages_that_the_service_lacks_are_named_before_the_hub_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "installed_version", lambda _name: "")
    with pytest.raises(ClusterError, match="the service for tokens needs ") as missing:
        _configured("https://gpu.example.org")
    assert missing.value.hint.endswith("-m pip install 'jupyter-gpu-release[hub]'")
