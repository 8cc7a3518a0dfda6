"""Whatever a client can send has bounds: every number, every text, every list, wherever it stands in a message."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from jupyter_gpu_release.broker.parameters import RefusedMessageError, message_of
from jupyter_gpu_release.broker.routes import ROUTES
from jupyter_gpu_release.core.bounds import LARGEST_NUMBER
from jupyter_gpu_release.core.messages import RunRequest, encode
from jupyter_gpu_release.core.resources import ResourceAsk
from jupyter_gpu_release.core.run import new_run_id
from jupyter_gpu_release.core.session_messages import ClientMessage, Submit, Subscribe
from jupyter_gpu_release.errors import RequestError

SENT = [*typing.get_args(ClientMessage), *dict.fromkeys(route.body for route in ROUTES if route.body is not None)]
_BOUNDED = {inspect.StrType: "max_length", inspect.BytesType: "max_length", inspect.ListType: "max_length",
            inspect.DictType: "max_length"}  # fmt: skip
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


def is_bounded(kind: Any) -> bool:
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return None not in (kind.ge if kind.gt is None else kind.gt, kind.le if kind.lt is None else kind.lt)
    if isinstance(kind, inspect.BoolType | inspect.NoneType):
        return True
    return getattr(kind, _BOUNDED[type(kind)]) is not None  # a type that is not known here has no bound either


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_every_field_that_clients_send_is_bounded(kind: type[msgspec.Struct]) -> None:
    assert [".".join(path) for path, found in fields_of(kind) if not is_bounded(found)] == []


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
        return {value: 0}
    if head == "{value}":
        return {"x": value}
    inner = message.get(head)
    return message | {head: written(inner if isinstance(inner, dict) else {}, tuple(rest), value)}


def example(kind: type[msgspec.Struct]) -> dict[str, Any]:
    asked = RunRequest(new_run_id(), "s", ResourceAsk(), b"")
    texts = {"session": "s", "run": new_run_id(), "protocol": 1, "key": "k", "user": "u", "keep_s": 1}
    made = asked if kind is RunRequest else Submit(asked) if kind is Submit else None
    if made is not None:
        plain = msgspec.msgpack.decode(encode(made))
        plain.get("request", plain)["ask"] = {}
        return plain
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    tag = kind.__struct_config__.tag
    return {name: value for name, value in texts.items() if name in names} | ({"type": tag} if tag else {})


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_what_is_beyond_the_bounds_is_a_bad_request(kind: type[msgspec.Struct]) -> None:
    message = example(kind)
    assert isinstance(msgspec.convert(message, kind), kind)
    for path, found in fields_of(kind):
        for value in hostile(found, path):
            data = encode(written(message, path, value))
            with pytest.raises(msgspec.ValidationError):
                msgspec.msgpack.decode(data, type=kind)
            if kind in typing.get_args(ClientMessage):
                with pytest.raises(RequestError):
                    message_of(data)


def test_a_refused_message_names_its_run_so_that_the_socket_can_stay_open() -> None:
    run = new_run_id()
    asked = msgspec.msgpack.decode(encode(Submit(RunRequest(run, "s", ResourceAsk(), b""))))
    asked["request"]["ask"] = {"cpus": math.nan}
    with pytest.raises(RefusedMessageError, match=r"request\.ask\.cpus") as refused:
        message_of(encode(asked))
    assert refused.value.run == run
    with pytest.raises(RefusedMessageError) as refused:
        message_of(encode(Subscribe(run, LARGEST_NUMBER + 1)))
    assert refused.value.run == run


@pytest.mark.parametrize("data", [b"\x81\xa4type\xa1\xff", b"\x91" * 100_000, b"", b"\xc1", encode([1]), encode({})])
def test_what_is_no_message_at_all_is_a_bad_request(data: bytes) -> None:
    with pytest.raises(RequestError):
        message_of(data)
