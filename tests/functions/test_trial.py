"""A trial of a sweep: its row, the time that it has cost, and the metric in what its function returned."""

from __future__ import annotations

from typing import Any, cast

import numpy
import pytest

from jupyter_gpu_release.errors import RunFailedError
from jupyter_gpu_release.functions.future import RunFuture
from jupyter_gpu_release.functions.trial import COLUMNS, COMPLETE, SweepTrial, metric_of
from jupyter_gpu_release.protocol.runs import RunView


def _trial(view: RunView, **more: Any) -> SweepTrial:
    return SweepTrial(3, {"lr": 0.1}, cast(Any, None), RunFuture(cast(Any, None), view, "fit", lambda _: None), **more)


def test_the_row_of_a_trial_that_is_over() -> None:
    view = RunView("r1", "ann", "succeeded", gpus=2, granted_at=100.0, running_at=105.0, gone_at=160.0)
    trial = _trial(view, state=COMPLETE, value=0.5, steps={0: 0.9, 1: 0.5}, error="")
    assert trial.row("loss") == {
        "trial": 3,
        "state": "complete",
        "loss": 0.5,
        "params_lr": 0.1,
        "steps": 2,
        "seconds": 60.0,
        "gpu_seconds": 120.0,
        "run": "r1",
        "error": "",
    }
    assert set(COLUMNS) == set(trial.row("loss")) - {"loss", "params_lr"}
    assert trial.word == "complete"


def test_a_trial_that_goes_on_has_its_runs_state_and_no_time_yet() -> None:
    trial = _trial(RunView("r1", "ann", "queued", gpus=2))
    row = trial.row("loss")
    assert (trial.word, row["state"], row["seconds"], row["gpu_seconds"]) == ("queued", "running", None, None)
    assert trial.gpu_seconds == 0.0


@pytest.mark.parametrize("returned", [0.25, {"loss": 0.25}, {"loss": numpy.float32(0.25)}, numpy.array(0.25)])
def test_the_metric_is_what_was_returned_or_has_its_name(returned: object) -> None:
    assert metric_of(returned, "loss", "fit") == 0.25


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ({"acc": 1, "f1": 2}, "fit returned no 'loss' but acc, f1"),
        ({}, "fit returned no 'loss' but nothing"),
        ({"loss": None}, "fit returned a NoneType for 'loss', no number"),
        ("low", "fit returned a str for 'loss', no number"),
        (float("nan"), "fit returned NaN for 'loss'"),
    ],
)
def test_a_trial_without_its_metric_says_what_there_is(returned: object, says: str) -> None:
    with pytest.raises(RunFailedError) as refused:
        metric_of(returned, "loss", "fit")
    assert refused.value.message == says


@pytest.mark.parametrize("error", [OSError("no"), SystemExit(3)])
def test_a_number_that_raises_what_it_likes_is_the_trials_error(error: BaseException) -> None:
    """On the sweep's thread: it shall not end that."""

    class Odd(dict[str, object]):
        def __float__(self) -> float:
            raise error

        def __contains__(self, key: object) -> bool:
            raise error

    for returned in (Odd(), {"loss": Odd()}):
        with pytest.raises(RunFailedError, match="fit returned a Odd for 'loss', no number") as refused:
            metric_of(returned, "loss", "fit")
        assert type(error).__name__ in str(refused.value.hint)
