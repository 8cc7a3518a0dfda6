"""Placeholders: they show themselves, refuse everything else, and are gone when their run is over."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter

from jupyter_gpu_release.errors import StillTrainingError
from jupyter_gpu_release.protocol.runs import RunView
from jupyter_gpu_release.submission.placeholders import AwaitedRun, Pending, PendingNames

RUN = "20261121-034512-9f3a12bc"


def awaited(**facts: Any) -> AwaitedRun:
    return AwaitedRun(lambda: RunView(run=RUN, user="u", state="running", submitted_at=time.time() - 500, **facts))


@pytest.fixture
def pending() -> Any:
    return Pending("model", awaited(granted_at=time.time() - 180))


def test_it_says_how_long(pending: Any):
    assert repr(pending) == f"<still training, 3 min (run {RUN})>"
    assert f"{pending}" == str(pending) == repr(pending)
    assert "waits for a GPU" in repr(Pending("model", awaited()))


def test_it_says_that_its_results_are_being_written() -> None:
    view = RunView(RUN, "u", "persisting", granted_at=time.time() - 9000, gone_at=time.time() - 180)
    pending = Pending("model", AwaitedRun(lambda: view))
    assert repr(pending) == f"<trained, its results are being written, 3 min (run {RUN})>"
    with pytest.raises(StillTrainingError, match="results are being written"):
        pending.weights()


@pytest.mark.parametrize(
    "use",
    [
        lambda p: p.weights,
        lambda p: p(),
        lambda p: p[0],
        lambda p: p + 1,
        lambda p: 1 + p,
        bool,
        len,
        list,
        lambda p: p == 1,
        lambda p: p < 1,
        lambda p: 1 in p,
        float,
        lambda p: f"{p:.2f}",
        np.asarray,
        pickle.dumps,
        copy.deepcopy,
        lambda p: setattr(p, "x", 1),
        lambda p: p.__setitem__(0, 1),
        open,
        lambda p: {**p},
        round,
        lambda p: -p,
        lambda p: np.ones(3) @ p,
        range,
        sorted,
    ],
)
def test_every_use_is_refused(pending: Any, use: Callable[[Any], Any]):
    with pytest.raises(StillTrainingError, match=f"%gpu_wait {RUN}"):
        use(pending)


def test_a_notebook_can_show_it(pending: Any):
    data, _ = DisplayFormatter().format(pending)
    assert data == {"text/plain": repr(pending)}
    assert dir(pending) == []
    assert {pending: 1}[pending] == 1


def test_settled_names_and_what_stays() -> None:
    names: dict[str, Any] = {"model": "old", "plot": 1}
    waiting = PendingNames(names, ["model", "loss"], awaited())
    assert isinstance(names["model"], Pending)
    names["alias"], names["box"] = names["model"], [names["loss"]]
    assert waiting.rebound(["model", "loss", "plot", "new"], {}) == set()
    assert waiting.had_before("model")
    assert waiting.bind_results({"model": "new"}, []) == ["loss"]
    assert not waiting.had_before("model"), "an old value is not held for ever"
    assert names["model"] == names["alias"] == "new"
    assert "loss" not in names
    assert "which is over" in repr(names["box"][0])


def test_what_the_user_did_is_seen() -> None:
    data: list[int] = []
    names: dict[str, Any] = {"data": data, "other": object(), "sent": "old"}
    waiting = PendingNames(names, ["model", "gone"], awaited())
    names["model"], names["other"], names["fresh"], names["sent"] = 1, 2, 3, "new"
    del names["gone"]
    rebound = waiting.rebound(["model", "gone", "data", "other", "fresh", "sent"], {"data": data, "sent": "old"})
    assert rebound == {"model", "gone", "other", "fresh", "sent"}
    waiting.bind_results({"model": "theirs", "gone": 1}, [])
    assert (names["model"], "gone" in names) == (1, False)


def test_a_newer_run_of_the_same_name_learns_what_stands_behind_it() -> None:
    names: dict[str, Any] = {"model": "old", "gone": 1}
    first = PendingNames(names, ["model", "gone"], awaited())
    second = PendingNames(names, ["model"], awaited())
    assert first.rebound(["model"], {}) == {"model"}
    first.bind_results({"model": "first"}, [first, second], {"gone"})
    assert isinstance(names["model"], Pending)
    assert "gone" not in names, "the run has deleted it"
    second.bind_results({}, [second])
    assert names["model"] == "first"


def test_published_values_take_the_placeholders_place_for_a_while() -> None:
    names: dict[str, Any] = {}
    waiting = PendingNames(names, ["loss", "model"], awaited())
    for loss in (3, 2):
        waiting.bind_early("loss", loss)
        assert names["loss"] == loss
        assert isinstance(waiting.awaited_as("loss", loss), Pending)
    waiting.bind_early("unknown", 1)
    names["model"] = "mine"
    waiting.bind_early("model", "published")
    assert (names["model"], "unknown" in names) == ("mine", False)
    assert waiting.rebound(["loss", "model"], {}) == {"model"}
    waiting.bind_results({"loss": 1}, [])
    assert names["loss"] == 1
    assert waiting.awaited_as("loss", 2) is None, "there is nothing to wait for"
