"""Reading another's run executes nothing: its pickles stay where they are, its displays are text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_bed import BrokerBed

from jupyter_gpu_release.cell_api.context import ExecutionContext
from jupyter_gpu_release.client import published_values
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import ForbiddenError
from jupyter_gpu_release.gateway.auth.permissions import ADMIN, Caller
from jupyter_gpu_release.gateway.auth.shown_events import as_text
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.events import Event, Publication, without_pickles
from jupyter_gpu_release.protocol.fetch import FETCH, ITEM, NEXT, ItemOutcome
from jupyter_gpu_release.protocol.rest import EventsPage
from jupyter_gpu_release.protocol.wire import decode, encode
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.event_log import EventWriter
from jupyter_gpu_release.store.files import SHARED_FOLDER
from jupyter_gpu_release.store.run_folders import create_run_folder

ROOT, ANN = Caller("root", ADMIN), Caller("ann")
RUN = "20261127-020000-00000001"


class Trap:
    """Writes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "unpickled")


def _published(trap: Path) -> Event:
    dump = codec.dump({"loss": Trap(trap)}, NamespaceInfo({}, at_home=True))
    graph = Graph(stream=dump.stream, buffers=[bytes(each) for each in dump.buffers])
    return Event(1, 0.0, "published", msgspec.to_builtins(Publication("loss", graph=graph), builtin_types=(bytes,)))


def _display(bundle: dict[str, Any], kind: str = "display", **transient: str) -> Event:
    return Event(1, 0.0, kind, {"data": bundle, "metadata": {"isolated": False}, "transient": transient})


def _shown(event: Event) -> Event:
    return as_text(event, RUN, "ann")


@pytest.mark.parametrize("kind", ["display", "update_display"])
@pytest.mark.parametrize(
    "active",
    [
        "text/html",
        "application/javascript",
        "image/svg+xml",
        "application/vnd.jupyter.widget-view+json",
        "text/markdown",
        "text/latex",
        "application/vnd.plotly.v1+json",
        "application/x-of-tomorrow",
    ],
)
def test_what_may_act_is_text(active: str, kind: str) -> None:
    shown = _shown(_display({active: "<script>alert(1)</script>", "text/plain": "<Figure>"}, kind)).data
    assert (shown["data"], shown["metadata"]) == ({"text/plain": "<Figure>"}, {})
    alone = _shown(_display({active: "<script>alert(1)</script>"}, kind)).data
    assert alone["data"] == {"text/plain": "<script>alert(1)</script>"}
    odd = _shown(_display({active: {"model_id": 1}}, kind)).data
    assert odd["data"] == {"text/plain": f"({active})"}


def test_pictures_and_text_are_shown_as_they_are() -> None:
    bundle = {"image/png": "iVBO", "text/plain": "<Figure>"}
    assert _shown(_display(bundle)).data["data"] == bundle
    printed = Event(1, 0.0, "stream", {"name": "stdout", "text": "epoch 1\n", "rank": 1})
    assert _shown(printed) == printed


def test_a_display_of_anothers_run_replaces_none_of_ones_own() -> None:
    assert _shown(_display({"text/plain": "x"}, display_id="mine")).data["transient"] == {"display_id": f"{RUN}:mine"}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("comm", {"msg_type": "comm_open", "content": {"target_name": "jupyter.widget"}}),
        ("payload", {"source": "set_next_input", "text": "import os", "replace": True}),
        (FETCH, {"name": "secret", "ask": 1}),
        (NEXT, {"ask": 1}),
        ("of-tomorrow", {"html": "<script>"}),
    ],
)
def test_what_acts_only_is_left_out_and_its_number_is_not(kind: str, data: dict[str, Any]) -> None:
    shown = as_text(Event(7, 1.0, kind, data), RUN, "ann")
    assert shown == Event(7, 1.0, "stream", {"name": "stdout", "text": ""})


@pytest.mark.parametrize("odd", [None, "text", [1], {"text/plain": 3}])
def test_what_is_no_display_at_all_harms_nobody(odd: Any) -> None:
    shown = as_text(Event(1, 0.0, "display", {"data": odd, "transient": odd}), RUN, "ann").data
    assert set(shown["data"]) == {"text/plain"}


def test_a_page_for_the_pager_is_printed() -> None:
    page = Event(1, 0.0, "payload", {"source": "page", "data": {"text/plain": "help", "text/html": "<script>"}})
    assert _shown(page).data["text"] == "help\n"


@pytest.mark.parametrize("values", [None, Graph(stream=b"x"), Graph(file="item-1.graph", digest="d")])
def test_items_come_without_their_pickles(values: Graph | None) -> None:
    data = msgspec.to_builtins(ItemOutcome(3, values), builtin_types=(bytes,))
    kept = without_pickles(Event(1, 0.0, ITEM, data), "why not")
    outcome = msgspec.convert(kept.data, ItemOutcome)
    assert (outcome.item, outcome.values) == (3, None)
    assert outcome.error is not None
    assert (outcome.error.evalue, outcome.error.pickled) == ("why not", b"")


# ------------------------------------------------------------------------------- through the gateway
async def _events(service: GatewayService, caller: Caller, record: RunRecord) -> list[Event]:
    batches = [batch async for batch in service.batches_after(caller, record, 0)]
    return [decode(bytes(raw), Event) for batch in batches for raw in batch.events]


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=1)


def _published_for(caller: Caller, events: list[Event], patch: pytest.MonkeyPatch) -> Any:
    """``published('loss', run=…)`` of somebody who gets these events, by REST as JSON."""
    page = msgspec.json.decode(msgspec.json.encode(EventsPage(RUN, "running", 1, False, events)), type=EventsPage)
    realm = NamespaceInfo({}, at_home=True)
    around = ExecutionContext(realm=lambda: realm, find_target=lambda: Target("http://127.0.0.1:9", caller.user, True))
    patch.setattr(published_values, "execution_context", lambda: around)
    patch.setattr(published_values, "_read_so_far", {})
    patch.setattr(GatewayClient, "events", lambda _client, _run, _after: page)
    return published_values.latest_published("loss", RUN)


@pytest.mark.asyncio
async def test_an_admin_reads_what_another_publishes_and_executes_nothing(
    bed: BrokerBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "unpickled"
    async with bed.life() as service:
        record = await bed.running(service)
        record.tail.add([msgspec.Raw(encode(_published(trap)))])
        read, own = await _events(service, ROOT, record), await _events(service, ANN, record)
    with pytest.raises(ForbiddenError, match="belongs to ann"):
        _published_for(ROOT, read, monkeypatch)
    assert not trap.exists()
    assert b"unpickled" not in json.dumps([event.data for event in read]).encode()
    _published_for(ANN, own, monkeypatch)
    assert trap.exists(), "one's own is loaded"


@pytest.mark.asyncio
async def test_plain_values_of_another_are_shown(bed: BrokerBed, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bed.life() as service:
        record = await bed.running(service)
        plain = msgspec.to_builtins(Publication("loss", 0.25))
        record.tail.add([msgspec.Raw(encode(Event(1, 0.0, "published", plain)))])
        read = await _events(service, ROOT, record)
    assert _published_for(ROOT, read, monkeypatch) == 0.25


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["single", "group"])
async def test_a_log_that_a_group_can_write_makes_its_owner_load_nothing(
    mode: str, bed: BrokerBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "unpickled"
    async with bed.life() as service:
        await bed.running(service)
        record = await bed.submitted(service)  # it waits, so that no node is asked
        record.tail.known = False
        paths = create_run_folder(tmp_path / "store", record.run)
        paths.folder.chmod(SHARED_FOLDER if mode == "group" else 0o700)
        writer = EventWriter(paths.events)
        writer.write([_published(trap)])
        writer.close()
        events = await _events(service, ANN, record)
    if mode == "group":
        with pytest.raises(ForbiddenError, match="members of a group"):
            _published_for(ANN, events, monkeypatch)
    else:
        _published_for(ANN, events, monkeypatch)
    assert trap.exists() == (mode == "single")
