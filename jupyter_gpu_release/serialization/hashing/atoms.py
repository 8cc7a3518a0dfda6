"""Plain immutable values in a graph key: tagged bytes, each with its length, so that none can pass for another."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from blake3 import blake3

from ...store.digests import digest_of
from ...store.mapped.mapping import mapping_at

#: from so many bytes on a digest is computed by several threads, and written in place of the bytes
LARGE_BYTES = 1 << 20


def digest_of_bytes(data: Any) -> str:
    """blake3-256, hex, of a buffer's bytes: what names it in the store, too.

    Memory that is a whole mapped blob, in which no page was written to, is not read.
    """
    view = memoryview(data).cast("B")
    found = mapping_at(view) if view.nbytes >= LARGE_BYTES else None
    if found is not None:
        mapping, offset = found
        if mapping.digest and not offset and len(mapping) == view.nbytes and mapping.is_untouched():
            return mapping.digest
    return digest_of(view) if view.nbytes >= LARGE_BYTES else str(blake3(view).hexdigest())


def tagged_bytes(tag: bytes, data: bytes) -> bytes:
    """A tag, the length of what follows, and that."""
    return b"%b%b%b" % (tag, struct.pack("<q", len(data)), data)


def _integer(value: int) -> tuple[bytes, bytes]:
    return b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _text(value: str) -> tuple[bytes, bytes]:
    return b"s", value.encode("utf-8", "surrogatepass")


#: values that nobody can change, and whose identity does not matter
ATOMS: dict[type, Callable[[Any], tuple[bytes, bytes]]] = {
    type(None): lambda _: (b"n", b""),
    bool: lambda value: (b"o", b"\1" if value else b"\0"),
    int: _integer,
    float: lambda value: (b"f", struct.pack("<d", value)),
    complex: lambda value: (b"c", struct.pack("<dd", value.real, value.imag)),
    str: _text,
    bytes: lambda value: (b"b", value if len(value) < LARGE_BYTES else digest_of_bytes(value).encode()),
    type(...): lambda _: (b".", b""),
    type(NotImplemented): lambda _: (b"_", b""),
}
