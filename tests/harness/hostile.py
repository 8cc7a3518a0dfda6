"""Messages and bodies as a hostile client would write them, made from the record types that clients may send."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.session import ClientMessage, Submit
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode

MESSAGES = typing.get_args(ClientMessage)
SENT = [*MESSAGES, *dict.fromkeys(route.body for route in ROUTES if route.body is not None)]
_HOSTILE_NUMBERS = (2**63, 2**64 - 1, -1, -(2**63), math.nan, math.inf, -math.inf, 1e300)


def fields_of(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every place of a record where a client may write something, with its type."""
    found = inspect.type_info(kind) if not isinstance(kind, inspect.Type) else kind
    if isinstance(found, inspect.StructType):
        for field in found.fields:
            yield from fields_of(field.type, (*path, field.encode_name))
    elif isinstance(found, inspect.UnionType):
        for one in found.types:
            yield from fields_of(one, path)
    else:
        yield path, found
        if isinstance(found, inspect.ListType):
            yield from fields_of(found.item_type, (*path, "[]"))
        elif isinstance(found, inspect.DictType):
            yield from fields_of(found.key_type, (*path, "{key}"))
            yield from fields_of(found.value_type, (*path, "{value}"))


def hostile(kind: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        small = (-1,) if (kind.ge if kind.gt is None else kind.gt) >= 0 else ()
        yield from (number for number in _HOSTILE_NUMBERS if number != -1 or small)
    elif isinstance(kind, inspect.StrType) and "[]" not in path and "{" not in path[-1]:
        yield "x" * (kind.max_length + 1)


def written(message: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The message with ``value`` at ``path``; lists and tables get one item that has it."""
    if path == ():
        return value
    head, *rest = path
    if head == "[]":
        return [written({}, tuple(rest), value)]  # type: ignore[return-value]
    if head == "{key}":
        return {value if isinstance(value, str | int | float) else "x": 0}
    if head == "{value}":
        return {"x": value}
    inner = message.get(head)
    return message | {head: written(inner if isinstance(inner, dict) else {}, tuple(rest), value)}


def example(kind: type[msgspec.Struct]) -> dict[str, Any]:
    asked = RunRequest(new_run_id(), "s", ResourceAsk(), encode(CellPayload("print 1")))
    texts = {"session": "s", "run": new_run_id(), "protocol": 1, "key": "k", "user": "u", "keep_s": 1, "node": "n"}
    texts |= {"python": "3.11.9", "platform": "here", "digest": "abcd"}
    texts |= {name: [] for name in ("requests", "constraints", "excluded", "preferred")}
    made = asked if kind is RunRequest else Submit(asked) if kind is Submit else None
    if made is not None:
        plain = msgspec.msgpack.decode(encode(made))
        plain.get("request", plain)["ask"] = {}
        return plain
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    tag = kind.__struct_config__.tag
    return {name: value for name, value in texts.items() if name in names} | ({"type": tag} if tag else {})
