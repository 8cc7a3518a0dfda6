"""Event and Publication: numbered output of a run."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from ..errors import ForbiddenError
from .cell import Graph
from .fetch import ITEM


class Event(msgspec.Struct, frozen=True, array_like=True):
    """One numbered piece of output, in the order in which it was recorded (``n`` = 1, 2, …).

    ``kind`` and ``data``: ``stream`` {name, text, rank?, who?}; ``display`` and ``update_display`` {data, metadata,
    transient}; ``clear_output`` {wait}; ``comm`` {msg_type, content, metadata, buffers}; ``note`` {text};
    ``published``, ``fetch``, ``next-item``, ``item``, ``report``, for programs (:mod:`.protocol.events`,
    :mod:`.protocol.fetch`);
    ``payload``, as of a kernel's reply: a page for the pager, text for the next cell;
    ``error`` {ename, evalue, traceback, rank?}; ``traceback``, the same of an error that does not end the cell.
    """

    n: int
    at_s: float
    kind: str
    data: dict[str, Any]


class Publication(msgspec.Struct, frozen=True, omit_defaults=True):
    """``value``: a plain number, text or None; else ``graph``: inline, or ``file`` in the run's ``published`` folder,
    replaced by later ones, with the ``digest`` (blake2b-128) of its bytes.

    ``withheld``: why whoever asks does not get a value that is no plain one, in words.
    """

    name: str
    value: bool | int | float | str | None = None
    graph: Graph | None = None
    file: str = ""
    digest: str = ""
    withheld: str = ""


def publication_of(event: Event) -> Publication:
    """Content of a ``published`` event; read through REST its bytes are base64 text."""
    return msgspec.convert(_with_bytes(event.data), Publication)


def carries_pickle(event: Event) -> bool:
    """Tell if an event holds, or names, a value that would have to be unpickled."""
    if event.kind == "published":
        return event.data.get("graph") is not None or bool(event.data.get("file"))
    return event.kind == ITEM


def without_pickles(event: Event, why: str) -> Event:
    """The event without a value that would have to be unpickled; ``why`` it is not there, in words."""
    if not carries_pickle(event):
        return event
    if event.kind == "published":
        return with_data(event, {"name": event.data.get("name"), "withheld": why})
    error = {"ename": ForbiddenError.__name__, "evalue": why, "code": ForbiddenError.code}
    return with_data(event, {"item": event.data.get("item"), "error": error})


def with_data(event: Event, data: dict[str, Any]) -> Event:
    """The event with other data, of the same rank."""
    whose = {name: event.data[name] for name in ("rank", "who") if name in event.data}
    return msgspec.structs.replace(event, data=data | whose)


def _with_bytes(data: dict[str, Any]) -> dict[str, Any]:
    graph = data.get("graph")
    if not isinstance(graph, dict) or isinstance(graph.get("stream", b""), bytes):
        return data
    buffers = [base64.b64decode(buffer) for buffer in graph.get("buffers", ())]
    return {**data, "graph": {**graph, "stream": base64.b64decode(graph["stream"]), "buffers": buffers}}
