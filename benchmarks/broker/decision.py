"""From a client's send to the gateway's decision that its run starts, while many others wait."""

from __future__ import annotations

import time

from websockets.asyncio.client import ClientConnection, connect

from jupyter_gpu_release.client.websocket import session_url
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.session import PROTOCOL, Accepted, GatewayMessage, Hello, Submit, Update
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode

QUEUES = """
schema_version: 1
queues: [{name: full, max: 1}, {name: free}]
default_queue: free
"""
_SESSION = "decisions"
_LONG_S, _SHORT_S = 600.0, 0.05


async def measure(url: str, token: str, *, waiting: int, count: int) -> list[float]:
    """Milliseconds of ``count`` decisions while ``waiting`` runs wait; all wait for a queue that has its maximum."""
    async with connect(
        session_url(url),
        additional_headers={"Authorization": f"Bearer {token}"},
        compression=None,
        proxy=None,
        ping_interval=None,
        max_size=None,
        max_queue=None,
        open_timeout=60,
    ) as link:
        await link.send(encode(Hello(PROTOCOL, _SESSION)))
        await link.recv()
        for _ in range(1 + waiting):
            await link.send(_submission("full", _LONG_S)[1])
        accepted = 0
        while accepted <= waiting:
            accepted += isinstance(decode(await link.recv(), GatewayMessage), Accepted)
        return [await _decision_ms(link) for _ in range(count)]


async def _decision_ms(link: ClientConnection) -> float:
    run, submission = _submission("free", _SHORT_S)
    sent_s, granted_at, state = time.time(), None, ""
    await link.send(submission)
    while state != "succeeded":
        message = decode(await link.recv(), GatewayMessage)
        if isinstance(message, Accepted | Update) and message.view.run == run:
            granted_at, state = message.view.granted_at, message.view.state
    assert granted_at is not None
    return (granted_at - sent_s) * 1000


def _submission(queue: str, run_s: float) -> tuple[str, bytes]:
    run = new_run_id()
    return run, encode(Submit(RunRequest(run, _SESSION, ResourceAsk(gpus=1), str(run_s).encode(), queue=queue)))
