"""How long a kernel without runs waits between its tries to come back to its gateway."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import GatewayUnavailableError
from jupyter_gpu_release.protocol.config import GatewayConfig


def test_it_is_back_before_its_grace_is_over_however_long_the_gateway_was_away(
    monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    """Else what it keeps there (GPUs, results) is given up, although it is there."""
    grace_s = GatewayConfig("", "", "", "", "").reconnect_grace_s
    session = GatewaySession(Target("http://127.0.0.1:9", "token"), "s")
    pauses: list[float] = []

    class Retry:
        """Nothing is waited for."""

        def wait(self, pause_s: float) -> None:
            pauses.append(pause_s)
            if len(pauses) == 30:
                session.close(0.0)

        def clear(self) -> None:
            pass

        def set(self) -> None:
            pass

    monkeypatch.setattr(session, "_retry", Retry())
    with pytest.raises(GatewayUnavailableError):
        session.connect(0.0)
    until(lambda: len(pauses) >= 30, "thirty tries")
    assert pauses[0] < 0.1
    assert max(pauses) < grace_s / 2
