"""Under which names the gateway may be addressed: its own machine's where it listens everywhere, and what is named."""

from __future__ import annotations

import socket

import psutil
import pytest

from jupyter_gpu_release.errors import ForbiddenError, OptionError
from jupyter_gpu_release.gateway.api.guard import allowed_hosts, check_host
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.settings.table import CLUSTER


def _answers(name: str, **settings: object) -> bool:
    config = GatewayConfig("/home", "/store", "/token", "/run", "", **settings)  # type: ignore[arg-type]
    try:
        check_host(f"{name}:8765", allowed_hosts(config))
    except ForbiddenError:
        return False
    return True


def test_a_gateway_that_listens_everywhere_answers_to_its_machine() -> None:
    interfaces = psutil.net_if_addrs().values()
    own = {address.address for interface in interfaces for address in interface if address.family == socket.AF_INET}
    for name in {socket.gethostname(), "localhost"} | own:
        assert _answers(name, host="0.0.0.0")
    assert not _answers("attacker.example", host="0.0.0.0")
    assert not _answers(socket.gethostname() + ".example", host="0.0.0.0")
    assert not _answers("192.0.2.77", host="127.0.0.1")


def test_other_names_are_those_of_the_environment() -> None:
    named = CLUSTER["allowed_hosts"].given({"JUPYTER_GPU_ALLOWED_HOSTS": "gpu.example.org, 2001:db8::1"})
    assert _answers("GPU.example.org", allowed_hosts=named)
    assert _answers("[2001:db8::1]", allowed_hosts=named)
    assert not _answers("example.org", allowed_hosts=named)
    for wrong in ("https://gpu.example.org", "gpu.example.org:443"):
        with pytest.raises(OptionError, match="not the name of a host"):
            CLUSTER["allowed_hosts"].given({"JUPYTER_GPU_ALLOWED_HOSTS": wrong})
