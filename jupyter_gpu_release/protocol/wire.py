"""Encodes and decodes records as msgpack."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

T = TypeVar("T")
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def encode(message: Any) -> bytes:
    """Encode one record (or list of records) as msgpack."""
    return _ENCODER.encode(message)


@overload
def decode(data: bytes | bytearray | memoryview, kind: type[T]) -> T: ...
@overload
def decode(data: bytes | bytearray | memoryview, kind: Any) -> Any: ...
def decode(data: bytes | bytearray | memoryview, kind: Any) -> Any:
    """Decode msgpack as ``kind`` (a record type, a union or a list of one); raises ``msgspec.DecodeError``."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.msgpack.Decoder(kind)
    return decoder.decode(data)


class Packed(bytes, Generic[T]):
    """The msgpack of one ``T``. Only the type checker tells it from other bytes: :func:`pack` makes plain ones."""


def pack(message: T) -> Packed[T]:
    """Encode a record for a method that takes it, or returns it, as bytes."""
    return cast("Packed[T]", encode(message))


def unpack(data: Packed[T], kind: type[T]) -> T:
    """Decode what :func:`pack` has made; raises ``msgspec.DecodeError``."""
    return decode(data, kind)


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Making millions of objects without looking for garbage among them again and again.

    Whether it is switched on is the user's, and may arrive meanwhile (``gc.disable()`` in a cell).
    """
    was = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(*was)
