"""Reports to the gateway: close together they share a call, but who waits for GPUs waits for no other message."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from plain_loop import run_plain

from jupyter_gpu_release.node.agent import recorder as module
from jupyter_gpu_release.node.agent.recorder import Reporter
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.node import AgentConfig, AttemptId, NodeMessage, NodeReport, RunEvents, RunPhase
from jupyter_gpu_release.protocol.wire import decode

a, b = AttemptId("a", 0), AttemptId("b", 0)


def test_messages_share_a_report_until_gpus_are_free(monkeypatch) -> None:
    monkeypatch.setattr(module, "_PATIENT_S", 3600.0)
    monkeypatch.setattr(module, "_OUTPUT_S", 3600.0)
    told: list[NodeMessage] = [
        RunPhase(a, "running", 1.0),
        RunEvents(a, [Event(1, 1.0, "stream", {})]),
        RunPhase(a, "ended", 2.0),
        RunPhase(b, "running", 2.0),
        RunPhase(a, "released", 3.0),
        RunPhase(a, "final", 4.0),
    ]
    assert asyncio.run(_reports(told)) == [told[:1], told[1:5]]


def test_what_nobody_waits_for_is_told_all_the_same(monkeypatch) -> None:
    monkeypatch.setattr(module, "_PATIENT_S", 3600.0)
    monkeypatch.setattr(module, "_OUTPUT_S", 0.01)
    told: list[NodeMessage] = [
        RunPhase(a, "running", 1.0),
        RunPhase(a, "ended", 2.0),
        RunEvents(a, [Event(1, 1.0, "stream", {})]),
    ]
    assert asyncio.run(_reports(told)) == [told[:1], told[1:]]
    assert run_plain(_reports(told)) == [told[:1], told[1:]], "on a loop whose timers do not tell when they are due"


def test_a_node_without_room_for_a_socket_introduces_itself_all_the_same(tmp_path, caplog) -> None:
    reporter = Reporter(AgentConfig("store", str(tmp_path / "gone")), "node", "life")
    asyncio.run(reporter.listen(SimpleNamespace()))
    assert "no calls past Ray on this node" in caplog.text


def test_output_does_not_pile_up_while_the_gateway_is_away(monkeypatch) -> None:
    """Phases come in order, and of each run's output the newest: the rest is in the log."""
    monkeypatch.setattr(module, "_AWAY_S", 0.05)
    first, rest = asyncio.run(_reports_after_a_pause(500))
    assert first == [RunPhase(a, "released", 1.0)]
    newest = [RunEvents(run, [Event(501, 1.0, "stream", {})]) for run in (a, b)]
    assert rest == [RunPhase(a, "ended", 1.0), *newest]


async def _reports_after_a_pause(count: int) -> tuple[list[NodeMessage], list[NodeMessage]]:
    """The first report, and the next one after ``count`` pieces of output of two runs while nobody took any."""
    reporter = Reporter(AgentConfig("store", "runtime"), "node", "life")
    reports: list[list[NodeMessage]] = []
    is_back = asyncio.Event()

    async def node_report(body: bytes) -> None:
        await is_back.wait()
        reports.append(decode(body, NodeReport).messages)

    reporter._gateway = SimpleNamespace(node_report=SimpleNamespace(remote=node_report))
    sending = asyncio.create_task(reporter.send_forever())
    reporter.report(RunPhase(a, "released", 1.0))
    await asyncio.sleep(0)
    for run in (a, b):
        reporter.report(RunEvents(run, [Event(1, 1.0, "stream", {})]))  # it may be back at any moment
    reporter.report(RunPhase(a, "ended", 1.0))
    await asyncio.sleep(2 * module._AWAY_S)
    for n in range(2, count + 2):
        for run in (a, b):
            reporter.report(RunEvents(run, [Event(n, 1.0, "stream", {})]))
    is_back.set()
    while len(reports) < 2:
        await asyncio.sleep(0.01)
    sending.cancel()
    return reports[0], reports[1]


async def _reports(told: list[NodeMessage]) -> list[list[NodeMessage]]:
    """The first two reports of ``told``, of which the first message is told when the node was quiet."""
    reporter = Reporter(AgentConfig("store", "runtime"), "node", "life")
    reports: list[list[NodeMessage]] = []
    arrived = asyncio.Event()

    async def node_report(body: bytes) -> None:
        reports.append(decode(body, NodeReport).messages)
        arrived.set()

    reporter._gateway = SimpleNamespace(node_report=SimpleNamespace(remote=node_report))
    reporter._sent_s = -module._PATIENT_S
    sending = asyncio.create_task(reporter.send_forever())
    for some in (told[:1], told[1:]):
        arrived.clear()
        for message in some:
            reporter.report(message)
            for _ in range(5):  # what is due at once is sent now
                await asyncio.sleep(0)
        await asyncio.wait_for(arrived.wait(), 30)
    sending.cancel()
    return reports
