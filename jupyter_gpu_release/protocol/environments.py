"""Records of packages: what is installed somewhere, and what an environment for a notebook's cells is made of."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from blake3 import blake3

from .bounds import Name, Number, Word

#: normalized names, and versions: they get into lines that an installer reads, and into names of files
NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*\Z"
VERSION_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*\Z"
#: of names for `--environment`
ENVIRONMENT_PATTERN = r"^[a-z0-9][a-z0-9._-]*\Z"
_Package = Annotated[str, msgspec.Meta(max_length=200, pattern=NAME_PATTERN)]
_Version = Annotated[str, msgspec.Meta(max_length=200, pattern=VERSION_PATTERN)]
_Hash = Annotated[str, msgspec.Meta(max_length=71, pattern=r"^sha256:[0-9a-f]{64}\Z")]
_Texts = Annotated[list[Name], msgspec.Meta(max_length=10_000)]
#: a Python beside the cluster's own: its version, or a path on the nodes
INTERPRETER_PATTERN = r"^(3(\.\d{1,3}){1,2}|/[^\x00-\x1f]*)?\Z"
Interpreter = Annotated[str, msgspec.Meta(max_length=4096, pattern=INTERPRETER_PATTERN)]
#: a requirement: no option, URL, path, variable or second line, whoever sends it: the installer reads it
_Line = Annotated[str, msgspec.Meta(max_length=4096, pattern=r"^[A-Za-z0-9][\w.,;()\[\]<>=!~*+|&'\" -]*\Z")]
_Lines = Annotated[list[_Line], msgspec.Meta(max_length=20_000)]


class Origin(StrEnum):
    """Place that a distribution was installed from."""

    INDEX = "index"
    #: its version need not be on any index
    CONDA = "conda"
    #: a file of this machine
    WHEEL = "wheel"
    #: an archive or a repository elsewhere
    URL = "url"
    #: a folder of this machine, copied
    FOLDER = "folder"
    #: a folder of this machine, in place
    EDITABLE = "editable"


class Distribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """One installed distribution. ``name`` is normalized.

    ``source``: URL or path that it came from, without credentials. ``digest``: of the files of one that is edited in
    place (empty: they are too many), of the archive of another one that was not taken from an index. ``files``: how
    many it has. ``requires``: as in its metadata, without what only its extras need. ``imports``: its topmost packages
    and modules, parts of namespaces with ``/`` (``google/protobuf``).
    """

    name: _Package
    version: _Version
    origin: Origin = Origin.INDEX
    source: Name = ""
    digest: Word = ""
    files: Number = 0
    is_pure: bool = True
    requires: _Texts = msgspec.field(default_factory=list)
    imports: _Texts = msgspec.field(default_factory=list)


class Installed(msgspec.Struct, frozen=True):
    """Every distribution that one interpreter finds, by name. ``markers``: its values for PEP 508's markers."""

    python: Word
    platform: Word
    markers: dict[Word, Name]
    distributions: Annotated[list[Distribution], msgspec.Meta(max_length=20_000)]
    digest: Word = ""

    @classmethod
    def of(cls, python: str, platform: str, markers: dict[str, str], found: list[Distribution]) -> Installed:
        """Return the record with its digest: the same packages give the same one, on any machine of this kind."""
        content = cls(python, platform, markers, sorted(found, key=lambda each: each.name))
        return msgspec.structs.replace(content, digest=digest_of(content))


#: this package: the cluster's is what counts
OURS = "jupyter-gpu-release"
#: in place of the digest of the nodes' packages, before a node has told it
UNKNOWN = "unknown"
#: reason of a package that only the notebook has
LACKS = "the cluster lacks it"


class PlannedPackage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One package of an environment. ``is_shipped``: made of the notebook's own files, not taken from an index."""

    name: _Package
    version: _Version
    #: why it is in it, in words
    reason: Name = ""
    is_shipped: bool = False
    origin: Origin = Origin.INDEX
    digest: Word = ""
    files: Number = 0
    #: of wheels that may be installed, where a lock file says it
    hashes: Annotated[list[_Hash], msgspec.Meta(max_length=1000)] = msgspec.field(default_factory=list)


class Why(StrEnum):
    """Reason why a package of the notebook is not in its cells' environment."""

    #: it is the operator's: GPU libraries, and what this package needs itself
    OWNED = "owned"
    #: it does not go with one that is the operator's
    CONFLICT = "conflict"
    #: no wheel of it can be had
    UNAVAILABLE = "unavailable"
    #: the interpreter itself is of another minor version
    PYTHON = "python"


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A package that differs and of which cells get the cluster's, or none: ``cluster`` is empty then."""

    name: Word
    notebook: Word
    cluster: Word
    why: Why
    reason: Name
    hint: Name = ""

    def __str__(self) -> str:
        """Return it as a sentence."""
        return f"{self.name} {self.notebook}: {self.reason}"


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """An environment for a notebook's cells: what is installed in front of the cluster's own packages.

    ``interpreter``: the operator's name of another Python, in front of whose packages it is; the cluster's are in none.
    ``requests``: packages whose version has to be found first (``resolve``). ``digest`` names the environment; it is
    empty where there is nothing to install, or where requests are left.
    """

    python: Word
    platform: Word
    packages: Annotated[list[PlannedPackage], msgspec.Meta(max_length=20_000)] = msgspec.field(default_factory=list)
    left_out: Annotated[list[LeftOut], msgspec.Meta(max_length=20_000)] = msgspec.field(default_factory=list)
    requests: _Texts = msgspec.field(default_factory=list)
    digest: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[0-9a-f]{0,64}\Z")] = ""
    interpreter: Interpreter = ""


class PackagesAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer to the question whether a plan's packages can be had.

    ``unavailable``: name → the installer's words. ``lacking``: digests of wheels that the notebook has to send.
    ``problem``: why nobody can tell; ``mend``: what to do about it.
    """

    is_ready: bool = False
    unavailable: dict[str, str] = msgspec.field(default_factory=dict)
    lacking: list[str] = msgspec.field(default_factory=list)
    problem: str = ""
    mend: str = ""


class Question(msgspec.Struct, frozen=True):
    """Question for versions that nobody has chosen yet. All lines are requirements (PEP 508).

    ``constraints`` hold for what is chosen; ``excluded`` are names that are there already, whatever requires them;
    ``preferred`` are versions to choose where nothing speaks against them. ``interpreter``: as in :class:`Plan`.
    """

    requests: _Lines
    constraints: _Lines
    excluded: Annotated[list[_Package], msgspec.Meta(max_length=20_000)]
    preferred: _Lines
    interpreter: Interpreter = ""


class Versions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Versions that were found: name → version. ``problem``: why there are none; ``mend``: what to do about it."""

    versions: dict[str, str] = msgspec.field(default_factory=dict)
    problem: str = ""
    mend: str = ""


class OtherPython(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Python of the nodes beside the cluster's own. ``interpreter``: its version or path, as the operator wrote it.

    ``installed``: packages that cells find in it: those of a whole environment (a folder), else none.
    ``problem``: why a node has none, ``mend``: what to do about it. ``is_for_all``: any kernel of its version gets it.
    """

    interpreter: str
    installed: Installed | None = None
    problem: str = ""
    mend: str = ""
    is_for_all: bool = False


class NamedEnvironment(msgspec.Struct, frozen=True, omit_defaults=True):
    """An environment that the operator has named: the cluster's packages, and what these requirements add.

    ``is_locked``: these are all packages, with their versions. ``hashes``: name → those of its wheels.
    ``interpreter``: of the Python that it is for, or the folder of one that is there; empty: the cluster's.
    """

    name: str
    requirements: list[str]
    is_locked: bool = False
    hashes: dict[str, list[str]] = msgspec.field(default_factory=dict)
    interpreter: str = ""


class ClusterPackages(msgspec.Struct, frozen=True, omit_defaults=True):
    """Packages of the cluster's nodes. ``owned``: names and patterns that the operator has added to its own.

    ``named``: environments that the asker is offered. ``pythons``: those that the asker's cells may run in.
    """

    installed: Installed
    owned: list[str] = msgspec.field(default_factory=list)
    named: list[NamedEnvironment] = msgspec.field(default_factory=list)
    pythons: list[OtherPython] = msgspec.field(default_factory=list)


class WheelSent(msgspec.Struct, frozen=True):
    """A wheel of the notebook's own is where the nodes find it."""

    digest: str
    bytes: int


class BuildReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of a build on one node. ``problem``: why there is no environment; empty: there is one.

    ``seconds``: that it took; 0: it was there.
    """

    seconds: float = 0.0
    problem: str = ""
    hint: str = ""


class EnvironmentRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One environment that is ready on one node. ``used_at``: unix seconds of its last use."""

    digest: str
    host: str
    python: str
    packages: list[PlannedPackage]
    used_at: float
    #: a fork server runs in it, and has so much memory of its own
    is_warm: bool = False
    memory_bytes: int = 0


class EnvironmentsDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """``environments list --json``. ``problems``: nodes that did not answer, and why."""

    schema_version: int
    environments: list[EnvironmentRow]
    problems: list[str] = msgspec.field(default_factory=list)


class EnvironmentBuilt(msgspec.Struct, frozen=True):
    """An environment is there. ``hosts``: nodes that have built it now; ``seconds``: that the longest build took."""

    hosts: list[str]
    seconds: float


class BuildProgress(msgspec.Struct, frozen=True):
    """State of a build. ``fetched``: packages that the slowest node has; None: none builds it now, or one is silent."""

    fetched: int | None


class EnvironmentRemoval(msgspec.Struct, frozen=True):
    """Environments to remove on all nodes: those whose digests begin so."""

    digest: Annotated[str, msgspec.Meta(min_length=4, max_length=64, pattern=r"^[0-9a-f]+\Z")]


def environment_digest(plan: Plan) -> str:
    """Name of a plan's environment: kind of interpreter, and content of its packages."""
    content = [(each.name, each.version, each.is_shipped, each.digest, *each.hashes) for each in plan.packages]
    other = (plan.interpreter,) if plan.interpreter else ()
    return digest_of((minor_of(plan.python), plan.platform, content, *other))


def minor_of(python: str) -> str:
    """``3.13`` of ``3.13.1``: packages are made for it."""
    return ".".join(python.split(".")[:2])


def named_by_content(plan: Plan) -> Plan:
    """The plan with its environment's name; none where it would be empty, or versions are not known yet."""
    digest = environment_digest(plan) if not plan.requests and (plan.packages or plan.interpreter) else ""
    return msgspec.structs.replace(plan, digest=digest)


def digest_of(record: object) -> str:
    """Digest of a record's content, hex."""
    return blake3(msgspec.msgpack.encode(record)).hexdigest(length=16)
