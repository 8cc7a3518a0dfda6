"""The trials of a sweep are cancelled together, by its id."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bed import ANN, BrokerBed, until

from jupyter_gpu_release.errors import NoSuchRunError, RunCancelledError
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.protocol.states import new_run_id


@pytest.mark.asyncio
async def test_one_cancel_ends_all_trials_and_there_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its owner: somebody else can neither end it nor keep its owner from it."""
    bed, sweep = BrokerBed(tmp_path, monkeypatch, a=4), new_run_id()
    async with bed.life() as service:
        holder = await bed.running(service, 4)
        trials = [await bed.submitted(service, sweep=sweep) for _ in range(2)]
        assert [trial.view.sweep for trial in trials] == [sweep, sweep]
        with pytest.raises(NoSuchRunError):
            await service.cancel(Caller("bob", ANN.role), sweep, kill=False)
        theirs = await bed.submitted(service, sweep=sweep, user="bob")
        assert (await service.cancel(ANN, sweep, kill=False)).view.sweep == sweep
        await until(lambda: all(trial.state.is_terminal for trial in trials))
        assert not theirs.state.is_terminal
        assert not holder.state.is_terminal
        with pytest.raises(RunCancelledError, match=f"sweep {sweep} was cancelled"):
            await bed.submitted(service, sweep=sweep)
        await bed.submitted(service, sweep=sweep, user="bob")
        with pytest.raises(NoSuchRunError):
            await service.cancel(ANN, sweep, kill=False)
