"""A digest of a value graph that is the same for equal graphs in every kernel, whatever its hash seed and history.

It follows what would be pickled (the reducers are those of :mod:`.serialization.pickler`), so nothing that a cell gets
is left out.
It differs from a digest of the pickle where that depends on the process: objects are numbered in the order in which
they are met, plain immutable values are written out wherever they stand, sets are in the order of their elements'
digests, functions and classes of the notebook are their code and what they hold, not their ids. Dicts keep their
order: a cell sees it. What has no such form raises :class:`UnkeyableError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from ...protocol.wire import without_gc
from ..rebuild import NamespaceInfo
from .atoms import tagged_bytes
from .canonical import UnkeyableError, Writer

__all__ = ["GraphKey", "UnkeyableError", "graph_key"]

_MOST_RESTARTS = 4


@dataclass
class GraphKey:
    """``digest`` of all names; ``names``: of each, in the order of their letters.

    ``numbers``: id → number of each object that has an identity; ``idents``: number → id under which a class or
    function of the notebook travels; ``modules``: whose things go by reference. ``keep`` holds the objects: ids stay
    theirs.
    """

    digest: str
    names: dict[str, str]
    numbers: dict[int, int] = field(default_factory=dict)
    idents: dict[int, str] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    keep: list[Any] = field(default_factory=list)


def graph_key(values: Mapping[str, Any], realm: NamespaceInfo) -> GraphKey:
    """The key of these names and values; raises :class:`UnkeyableError` with the name at fault."""
    whole: set[Any] = set()
    with without_gc():
        for _ in range(_MOST_RESTARTS):
            writer = Writer(realm, whole)
            found = _key_of(values, writer)
            if not writer.pickler.torn:
                return found
            whole |= writer.pickler.torn  # as the dump does: a view was met before what it looks at
    raise UnkeyableError("arrays that look at one another's memory in no order that holds")


def _key_of(values: Mapping[str, Any], writer: Writer) -> GraphKey:
    names: dict[str, str] = {}
    total = blake3()
    for name in sorted(values):
        try:
            writer.write_value(values[name])
        except UnkeyableError as error:
            raise UnkeyableError(f"`{name}`: {error}") from error.__cause__
        except RecursionError as error:
            raise UnkeyableError(f"`{name}` is nested too deeply") from error
        except Exception as error:  # reducers are foreign code; they say why not
            raise UnkeyableError(f"`{name}`: {_reason(error)}") from error
        names[name] = writer.take_digest()
        total.update(tagged_bytes(b"N", name.encode("utf-8", "surrogatepass")) + names[name].encode())
    return GraphKey(str(total.hexdigest()), names, writer.numbers, writer.idents, writer.modules, writer.keep)


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
