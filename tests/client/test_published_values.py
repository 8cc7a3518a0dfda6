"""``published(name, run=…)`` from elsewhere: what the gateway has recorded, page by page."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_gpu_release.cell_api.context import ExecutionContext
from jupyter_gpu_release.client import published_values
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import (
    ForbiddenError,
    GatewayUnavailableError,
    NoSuchRunError,
    NothingPublishedError,
    StoreError,
)
from jupyter_gpu_release.protocol.events import Event, Publication
from jupyter_gpu_release.protocol.rest import EventsPage
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

RUN = "20260101-000000-00000001"


def test_a_value_that_is_withheld_is_refused_wherever_it_is() -> None:
    found = Publication("loss", 1.0, withheld="others write there")
    with pytest.raises(ForbiddenError, match="others write there"):
        published_values.value_of(found, RUN, NamespaceInfo({}, at_home=True), Path)


def test_all_pages_are_read_and_each_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [Event(n, 0.0, "published", msgspec.to_builtins(Publication("loss", 1.0 / n))) for n in range(1, 6)]
    asked: list[int] = []

    def events(_client: GatewayClient, run: str, after: int) -> EventsPage:
        asked.append(after)
        page = told[after : after + 2]
        return EventsPage(run, "running", after + len(page), after + 2 < len(told), page)

    around = ExecutionContext(
        realm=lambda: NamespaceInfo({}, at_home=True), find_target=lambda: Target("http://127.0.0.1:9", "t")
    )
    monkeypatch.setattr(published_values, "execution_context", lambda: around)
    monkeypatch.setattr(published_values, "_read_so_far", {})
    monkeypatch.setattr(GatewayClient, "events", events)
    assert published_values.latest_published("loss", RUN) == 1 / 5
    told.append(Event(6, 0.0, "published", msgspec.to_builtins(Publication("loss", 0.0))))
    assert published_values.latest_published("loss", RUN) == 0.0
    assert asked == [0, 2, 4, 5]
    with pytest.raises(NothingPublishedError, match=f"run {RUN} has not published `accuracy`"):
        published_values.latest_published("accuracy", RUN)


def test_what_cannot_be_had_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    around = ExecutionContext(realm=lambda: NamespaceInfo({}, at_home=True), find_target=None)
    monkeypatch.setattr(published_values, "execution_context", lambda: around)
    with pytest.raises(NothingPublishedError, match="no run of this notebook has published `loss` yet") as caught:
        published_values.latest_published("loss", None)
    assert caught.value.hint == "name the run: published('loss', run=…)"
    with pytest.raises(NoSuchRunError, match="'abc' is not the id of a run"):
        published_values.latest_published("loss", "abc")
    with pytest.raises(GatewayUnavailableError, match="there is no gateway"):
        published_values.latest_published("loss", RUN)


def test_a_file_that_is_always_replaced_meanwhile_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(*_: object) -> None:
        tries.append(1)
        raise published_values.ReplacedError

    tries: list[int] = []
    around = ExecutionContext(
        realm=lambda: NamespaceInfo({}, at_home=True), find_target=lambda: Target("http://127.0.0.1:9", "t")
    )
    monkeypatch.setattr(published_values, "execution_context", lambda: around)
    monkeypatch.setattr(published_values, "_catch_up", lambda *_: {"loss": Publication("loss", 1.0)})
    monkeypatch.setattr(published_values, "value_of", replaced)
    with pytest.raises(StoreError, match="replaced faster than it can be read"):
        published_values.latest_published("loss", RUN)
    assert len(tries) > 1
