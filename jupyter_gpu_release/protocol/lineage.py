"""Records of lineage (inputs, tracked files, environment, links between runs) and of the ``--cache`` question."""

from __future__ import annotations

from typing import Annotated

import msgspec

from .bounds import Bytes, Name, Names, Word


class TrackedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a cell read through ``track(path)``, as it was then. ``digest``: blake3-256, hex."""

    path: str
    bytes: int
    digest: str
    mtime_ns: int = 0


class UsedInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """One name that was sent to a run; ``run``: the earlier run that made the object, where that is known.

    ``digest``: ``sent:…`` of the bytes as they were sent; ``blobs:…`` of the digests of its blobs where it is large;
    ``graph:…`` of what it means, with ``--cache``.
    """

    name: Name
    type: Name
    bytes: Bytes = 0
    run: Word = ""
    digest: Word = ""


UsedInputs = Annotated[list[UsedInput], msgspec.Meta(max_length=100_000)]

#: how far lineage is followed, and how many runs of it are told at most
MOST_DEPTH = 20
MOST_RUNS = 200


#: in place of the version of a package that is not there
ABSENT = "absent"


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Environment of a cell. ``packages``: distribution → version (or digest of its files, for one that is edited)."""

    python: str = ""
    platform: str = ""
    #: what ``JUPYTER_GPU_IMAGE`` says on the node
    image: str = ""
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    #: packages of which it is not known what they are
    unknown: list[str] = msgspec.field(default_factory=list)
    #: of the environment that was built for it; empty: it had the node's own packages
    digest: str = ""


class RunFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts that the ledger keeps of a run apart from its view and outcome."""

    code: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    used: list[UsedInput] = msgspec.field(default_factory=list)
    cache_key: str = ""
    environment: Environment = Environment()
    #: options of ``%%gpu_train`` by name, as they are written
    options: dict[str, str] = msgspec.field(default_factory=dict)


class Link(msgspec.Struct, frozen=True):
    """``run`` used ``name``, which ``source`` had made."""

    run: str
    name: str
    source: str


class RunSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run in a lineage. ``is_known`` False: it is named by another one, but no longer (or not to you) to be seen."""

    run: str
    is_known: bool = True
    state: str = ""
    name: str = ""
    notebook: str = ""
    submitted_at: float = 0.0
    gpus: float = 0
    gpu_name: str = ""
    simulated: bool = False


class Lineage(msgspec.Struct, frozen=True):
    """``GET /v1/runs/{run}/lineage``: one run's facts, and the runs above and below it. ``cut``: there are more."""

    run: str
    facts: RunFacts
    tracked: list[TrackedFile]
    runs: list[RunSummary]
    links: list[Link]
    #: how often its results were bound again (``--cache``), and whether they may be
    reused: int = 0
    is_reusable: bool = False
    cut: bool = False


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
