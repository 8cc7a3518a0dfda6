"""Records of the ``--cache`` question and answer."""

from __future__ import annotations

import msgspec

from .limits import Name, Names, Word
from .lineage import TrackedFile


class ObjectNumbering(msgspec.Struct, frozen=True, array_like=True):
    """Numbers of the sent objects, in a numbering that does not depend on the kernel (that of the graph key).

    ``objects``: pairs of (number in the stream that was sent, number in the key), flat. ``idents``: number in the key
    → id under which a notebook class or function travelled.
    """

    objects: list[int] = msgspec.field(default_factory=list)
    idents: dict[int, str] = msgspec.field(default_factory=dict)


class CacheQuestion(msgspec.Struct, frozen=True):
    """``POST /v1/cache``: is there a run with this key? ``packages``: top-level ones, as in the request."""

    key: Word
    packages: Names = msgspec.field(default_factory=list)


class CacheCandidate(msgspec.Struct, frozen=True):
    """A run whose results are at hand, if its tracked files are still what they were."""

    run: str
    finished_at: float
    marks: bytes = b""
    tracked: list[TrackedFile] = msgspec.field(default_factory=list)


class CacheAnswer(msgspec.Struct, frozen=True):
    """Newest first. ``reason``: why the cluster cannot tell (its nodes differ …); then there are no candidates.

    ``under_way``: where there are none, a run with this key that is not over.
    """

    candidates: list[CacheCandidate] = msgspec.field(default_factory=list)
    reason: str = ""
    under_way: str = ""


class CacheUse(msgspec.Struct, frozen=True):
    """``POST /v1/runs/{run}/reused``: where its results were bound again."""

    notebook: Name = ""
    cell: Name = ""
