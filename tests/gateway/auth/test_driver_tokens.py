"""The token of a run that drives a sweep: for its trials alone, and for as long as it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_bed import ANN, BrokerBed, until
from certificates import Authority

from jupyter_gpu_release.errors import AuthenticationError, ConflictError, NoSuchRunError, RunCancelledError
from jupyter_gpu_release.gateway.auth.permissions import ASSISTANT, SWEEP, Caller
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.node import GatewayAccess, RunPhase
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode


def _request(run: str, sweep: str, **facts: Any) -> RunRequest:
    facts = {"ask": ResourceAsk(gpus=1), **facts}
    return RunRequest(run, "s", payload=encode(CellPayload(source="x")), sweep=sweep, **facts)


async def _driver(bed: BrokerBed, service: GatewayService, caller: Caller = ANN) -> RunRecord:
    run = new_run_id()
    request = _request(run, run, ask=ResourceAsk(gpus=0), restartable=True, detach=True)
    record = await service.submit(caller, request)
    await until(lambda: record.accepted)
    bed.say(service, record, "running")
    return record


def _access(bed: BrokerBed, record: RunRecord) -> GatewayAccess:
    found = bed.agents["a"].orders[str(record.attempt_id)].access
    assert found is not None
    return found


def _caller(service: GatewayService, access: GatewayAccess) -> Caller:
    return service.tokens.caller(f"Bearer {access.token}")


@pytest.mark.asyncio
async def test_it_is_good_for_trials_of_its_sweep_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        other = await bed.running(service)
        driver = await _driver(bed, service)
        access = _access(bed, driver)
        caller = _caller(service, access)
        assert (caller.user, caller.role, caller.sweep) == (ANN.user, SWEEP, driver.run)
        assert not caller.is_admin
        assert [caller.may_ask(*route) for route in (("GET", "/v1/status"), ("POST", "/v1/runs"))] == [False, False]
        assert caller.may_ask("WS", "/v1/session")
        assert access.token not in repr(access)
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or access.token.encode() not in path.read_bytes(), path
        # whatever it asks for is a trial, which ends with its session
        trial = await service.submit(caller, _request(new_run_id(), "another", detach=True, keep_s=60.0))
        assert (trial.view.sweep, trial.view.detached, trial.request.keep_s) == (driver.run, False, 0.0)
        assert service.run_for(caller, trial.run) is trial
        with pytest.raises(NoSuchRunError):
            service.run_for(caller, other.run)
        with pytest.raises(ConflictError):
            await service.submit(caller, _request(other.run, driver.run))


@pytest.mark.asyncio
async def test_it_ends_with_its_attempt_and_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt has another one; a process that dies is no end of a driver, which has its study."""
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        driver = await _driver(bed, service)
        first = _access(bed, driver)
        died = Outcome("died", started_s=1.0, error=None)
        for phase in ("released", "final"):
            service.lifecycle.hear(driver, RunPhase(driver.attempt_id, phase, 2.0, died))
        await until(lambda: driver.attempt == 1 and driver.accepted)
        second = _access(bed, driver)
        with pytest.raises(AuthenticationError, match="revoked"):
            _caller(service, first)
        caller = _caller(service, second)
        bed.say(service, driver, "running")
        bed.end(service, driver)
        await until(lambda: driver.state.is_terminal)
        with pytest.raises(AuthenticationError, match="revoked"):
            _caller(service, second)
        with pytest.raises(RunCancelledError):
            await service.submit(caller, _request(new_run_id(), driver.run))


@pytest.mark.asyncio
async def test_one_cancel_ends_driver_and_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        driver = await _driver(bed, service)
        caller = _caller(service, _access(bed, driver))
        trials = [await service.submit(caller, _request(new_run_id(), driver.run)) for _ in range(2)]
        await service.cancel(ANN, driver.run, kill=False)
        assert all(run.cancellation.reason for run in (driver, *trials))
        with pytest.raises(RunCancelledError):
            await service.submit(caller, _request(new_run_id(), driver.run))


@pytest.mark.asyncio
async def test_an_assistant_drives_no_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trials would be runs of its user's."""
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        driver = await _driver(bed, service, Caller(ANN.user, ASSISTANT))
        assert driver.view.sweep == ""
        assert bed.agents["a"].orders[str(driver.attempt_id)].access is None


def test_the_order_has_room_for_it() -> None:
    access = GatewayAccess("http://here", "jgr_secret", "s")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(access), type=GatewayAccess) == access


@pytest.mark.asyncio
async def test_it_trusts_the_gateway_s_own_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a Ray cluster, where clients are told an address: a node may know neither authority nor name."""
    cert, key = Authority(tmp_path / "authority").sign("gateway", "gpu.example.org")
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    bed.settings |= {"tls_cert": cert, "tls_key": key, "public_url": "https://10.0.0.5:8765"}
    async with bed.life() as service:
        access = _access(bed, await _driver(bed, service))
    assert access.certificate.strip() == Path(cert).read_text().strip()
