"""A sweep that is watched goes on to be while its study, which may be in a database, does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.functions import watched_sweep
from jupyter_gpu_release.functions.kept_study import SweepFacts
from jupyter_gpu_release.functions.watched_sweep import WatchedSweep

Until = Callable[[Callable[[], object], str], None]


class _Study:
    """Raises what is no error of ours while its database is away."""

    is_away, looks = False, 0

    def get_trials(self, *, deepcopy: bool) -> list[Any]:
        self.looks += 1
        if self.is_away:
            raise RuntimeError("server closed the connection unexpectedly")
        return []


class _Run:
    """Ends when it is told to."""

    def when_done(self, call: Callable[[Any], None]) -> None:
        self.end = lambda: call(self)

    def exception(self) -> None:
        """It ended well."""


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_database_that_is_away_ends_no_watch(until: Until, monkeypatch: pytest.MonkeyPatch, comes_back: bool) -> None:
    monkeypatch.setattr(watched_sweep, "_LOOK_S", 0.01)
    study, run = _Study(), _Run()
    facts = SweepFacts("20260101-000000-00000001", "lr", "loss", "min", 9, is_cell=False)
    sweep = WatchedSweep(facts, study, None, run)  # type: ignore[arg-type]
    study.is_away, before = True, study.looks
    until(lambda: study.looks > before + 2, "looks in vain")
    assert not sweep.over.is_set()
    study.is_away = not comes_back
    run.end()
    assert sweep.over.wait(60)
    assert isinstance(sweep.failure, type(None) if comes_back else StoreError)
