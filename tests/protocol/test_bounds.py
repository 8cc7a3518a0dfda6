"""Whatever a client can send has bounds: every number, every text, every list, wherever it stands in a message."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hostile import MESSAGES, SENT, example, fields_of, hostile, written
from msgspec import inspect

from jupyter_gpu_release.errors import RequestError
from jupyter_gpu_release.gateway.api.session import RefusedMessageError, message_of
from jupyter_gpu_release.protocol.bounds import LARGEST_NUMBER
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.session import Submit, Subscribe
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode

_BOUNDED = {
    inspect.StrType: "max_length",
    inspect.BytesType: "max_length",
    inspect.ListType: "max_length",
    inspect.DictType: "max_length",
}


def is_bounded(kind: Any) -> bool:
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return None not in (kind.ge if kind.gt is None else kind.gt, kind.le if kind.lt is None else kind.lt)
    if isinstance(kind, inspect.BoolType | inspect.NoneType | inspect.EnumType):
        return True
    return getattr(kind, _BOUNDED[type(kind)]) is not None  # a type that is not known here has no bound either


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_every_field_that_clients_send_is_bounded(kind: type[msgspec.Struct]) -> None:
    assert [".".join(path) for path, found in fields_of(kind) if not is_bounded(found)] == []


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_what_is_beyond_the_bounds_is_a_bad_request(kind: type[msgspec.Struct]) -> None:
    message = example(kind)
    assert isinstance(msgspec.convert(message, kind), kind)
    for path, found in fields_of(kind):
        for value in hostile(found, path):
            data = encode(written(message, path, value))
            with pytest.raises(msgspec.ValidationError):
                msgspec.msgpack.decode(data, type=kind)
            if kind in MESSAGES:
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
