"""A run as one file: write, read, verify, unpack.

``bundle.json`` (what is in it: paths, sizes, blake3 digests), ``bundle.proof`` (a keyed digest of the former), then
``run/<n>`` for each file and ``blobs/<digest>`` for each blob. No name in the tar becomes a path: paths are in
``bundle.json`` and are checked there.
"""

from __future__ import annotations

import hmac
import mmap
import os
import re
import secrets
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec
from blake3 import blake3

from ..errors import RequestError, StoreError
from ..protocol.states import RunState, is_run_id
from . import ownership
from .blobs import BlobStore
from .digests import is_digest
from .files import make_store_folder, open_plain, write_atomic
from .graph_file import blobs_of, digest_in
from .layout import RunPaths
from .run_contents import graphs_of
from .run_folders import read_manifest

BUNDLE_VERSION = 1
HEAD_FILE, PROOF_FILE = "bundle.json", "bundle.proof"
#: of ``bundle.json``
MOST_HEAD_BYTES = 64 << 20
STEP_BYTES = 4 << 20
_CONTEXT = "jupyter_gpu_release 2026-11 run bundle proof"
_KEPT = re.compile(
    r"(manifest\.json|events(\.[0-9]+)?\.log|[a-z]+(-[0-9]+)?(\.[0-9]+)?\.graph)|(files|code|published)/.+"
)
_LONGEST_PATH, _LONGEST_PART = 4096, 255


class BundledFile(msgspec.Struct, frozen=True):
    """A file of the run folder. ``digest``: blake3-256."""

    path: str
    bytes: int
    digest: str


class BundledBlob(msgspec.Struct, frozen=True):
    """A blob of the store."""

    digest: str
    bytes: int


class BundleHead(msgspec.Struct, frozen=True):
    """``bundle.json``."""

    schema_version: int
    run: str
    exported_by: str
    files: list[BundledFile]
    blobs: list[BundledBlob]
    #: what is no plain file, and is not in the bundle
    left_out: list[str] = msgspec.field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        """The number of bytes that it takes on a store."""
        return sum(file.bytes for file in self.files) + sum(blob.bytes for blob in self.blobs)


def proof_of(head: bytes, secret: str) -> str:
    """Proof for a ``bundle.json`` that only somebody with the ``secret`` (a user's token for a gateway) can give."""
    key = blake3(secret.encode(), derive_key_context=_CONTEXT).digest()
    return blake3(head, key=key).hexdigest()


# --------------------------------------------------------------------------------------------- export
def write_bundle(
    store: Path, run: str, target: Path, *, exported_by: str, secret: str, told: str | None = None
) -> BundleHead:
    """Write ``run`` to the file ``target`` in one step, a few MiB in memory at a time.

    ``told``: the digest of its values as the gateway tells it (empty: it has none; None: nobody was asked).

    Raises :class:`StoreError` naming the file when anything of the run is missing, altered, another user's or a link.
    """
    paths = RunPaths.of(store, run)
    head, manifest = _survey(store, paths, exported_by, told)
    raw = msgspec.json.encode(head)
    proof = proof_of(raw, secret).encode()
    blobs = BlobStore(store / "blobs")

    def members() -> Iterator[bytes]:
        yield from _member(HEAD_FILE, len(raw), iter([raw]))
        yield from _member(PROOF_FILE, len(proof), iter([proof]))
        for number, file in enumerate(head.files):
            path = paths.folder / file.path
            content = iter([manifest]) if path == paths.manifest else _checked(path, file)
            yield from _member(f"run/{number:06}", file.bytes, content)
        for blob in head.blobs:
            yield from _member(f"blobs/{blob.digest}", blob.bytes, _checked(blobs.path_of(blob.digest), blob))
        yield bytes(2 * tarfile.BLOCKSIZE)

    write_atomic(target, members())
    return head


def _survey(store: Path, paths: RunPaths, exported_by: str, told: str | None) -> tuple[BundleHead, bytes]:
    """The bundle's contents, and the manifest: what is learnt of a run late is written into it when the run is over."""
    if paths.folder.is_symlink():
        raise StoreError(f"{paths.folder} is a symbolic link: not exported", hint="export it where it really is")
    manifest = read_manifest(paths)
    if not RunState.of(manifest["state"]).is_terminal:
        raise StoreError(f"the run is {manifest['state']}: not exported", hint="wait until it is over")
    digest = check_graphs(paths, manifest)
    if told is not None and digest != told:
        raise StoreError(f"{paths.manifest} speaks of other values than the gateway: not exported", hint=_ALTERED)
    files, left_out, content = [], [], b""
    for path in _walk(paths.folder):
        relative = path.relative_to(paths.folder).as_posix()
        if not _KEPT.fullmatch(relative) or not stat.S_ISREG(path.lstat().st_mode):
            left_out.append(relative)
        elif path == paths.manifest:
            content = b"".join(_pieces(path))
            files.append(BundledFile(relative, len(content), blake3(content).hexdigest()))
        else:
            files.append(_described(path, relative))
    blobs = {digest: size for graph, _ in graphs_of(paths.folder) for digest, size in blobs_of(graph)}
    described = [BundledBlob(digest, size) for digest, size in sorted(blobs.items())]
    return BundleHead(BUNDLE_VERSION, paths.folder.name, exported_by, files, described, left_out), content


_ALTERED = "somebody who may write to the store has altered it; run the cell again"


def check_graphs(paths: RunPaths, manifest: dict[str, object]) -> str:
    """The digest of the values (empty: there are none); raises :class:`StoreError` where the manifest has another."""
    outcome = manifest.get("outcome")
    values = outcome.get("values") if isinstance(outcome, dict) else None
    if not isinstance(values, dict):
        return ""
    name = str(values.get("file", ""))
    if not re.fullmatch(r"[a-z]+(\.[0-9]+)?\.graph", name):
        raise StoreError(f"{paths.manifest} names {name[:80]!r} as the file of the values", hint="it was altered")
    digest = digest_in(paths.folder / name)
    if digest != values.get("digest"):
        raise StoreError(f"{paths.folder / name} is not what the run's manifest says", hint="it was altered or torn")
    return digest


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        yield from (Path(root, name) for name in sorted([*names, *links]))


def _described(path: Path, relative: str) -> BundledFile:
    summed, size = blake3(), 0
    for piece in _pieces(path):
        summed.update(piece)
        size += len(piece)
    return BundledFile(relative, size, summed.hexdigest())


def _checked(path: Path, wanted: BundledFile | BundledBlob) -> Iterator[bytes]:
    """The content, which must be what was described."""
    summed, size = blake3(), 0
    for piece in _pieces(path):
        size += len(piece)
        if size > wanted.bytes:
            break
        summed.update(piece)
        yield piece
    if size != wanted.bytes or summed.hexdigest() != wanted.digest:
        raise StoreError(f"{path} is damaged, or was changed meanwhile: its content is another than its digest says")


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        descriptor = open_plain(path, os.O_NOFOLLOW)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}", hint="is the store whole and mounted?") from error
    with os.fdopen(descriptor, "rb") as file:
        ownership.check_owner(path, os.fstat(descriptor), doing="exported")
        while piece := file.read(STEP_BYTES):
            yield piece


def _member(name: str, size: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    facts = tarfile.TarInfo(name)
    facts.size, facts.mode = size, 0o600
    yield facts.tobuf(tarfile.GNU_FORMAT)
    yield from pieces
    yield bytes(-size % tarfile.BLOCKSIZE)


# ------------------------------------------------------------------------------------- reading the head
class BundleReader:
    """Members of a bundle one after the other. Refuses what no export writes."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        raw = b"".join(self.read_member(HEAD_FILE, most_bytes=MOST_HEAD_BYTES))
        self.raw_head = raw
        self.head = self._read_head(raw)
        self.proof = b"".join(self.read_member(PROOF_FILE, most_bytes=1024)).decode(errors="replace")

    def is_proved(self, secret: str) -> bool:
        """Tell if it was exported by somebody with this secret, and not altered since."""
        return hmac.compare_digest(self.proof.encode(), proof_of(self.raw_head, secret).encode())

    def read_member(self, name: str, *, most_bytes: int | None = None, size: int | None = None) -> Iterator[bytes]:
        """The content of the next member, which must have this name (and size)."""
        block = self._exactly(tarfile.BLOCKSIZE)
        try:
            facts = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeError) as error:
            raise self._refusal(f"it is no tar of a run ({error})") from error
        if facts.type != tarfile.REGTYPE:
            raise self._refusal(f"{facts.name[:80]!r} in it is no plain file")
        if facts.name != name:
            raise self._refusal(f"{facts.name[:80]!r} is in the place of {name!r}")
        if (size is not None and facts.size != size) or (most_bytes is not None and facts.size > most_bytes):
            raise self._refusal(f"{name} in it has {facts.size} bytes")
        left = facts.size
        while left:
            piece = self._exactly(min(left, STEP_BYTES))
            left -= len(piece)
            yield piece
        self._exactly(-facts.size % tarfile.BLOCKSIZE)

    def expect_end(self) -> None:
        """Nothing more may come."""
        if self._exactly(tarfile.BLOCKSIZE).strip(b"\0"):
            raise self._refusal("there is more in it than bundle.json says")

    def refuse_content(self, path: str) -> RequestError:
        """The error for content that is not what ``bundle.json`` says."""
        return self._refusal(f"the content of {path} is not what bundle.json says")

    def _read_head(self, raw: bytes) -> BundleHead:
        try:
            version = msgspec.json.decode(raw, type=_Versioned).schema_version
            if version > BUNDLE_VERSION:
                text = f"it has schema_version {version}, this package reads up to {BUNDLE_VERSION}"
                raise self._refusal(text, hint="upgrade jupyter_gpu_release")
            head = msgspec.json.decode(raw, type=BundleHead)
        except msgspec.MsgspecError as error:
            raise self._refusal(f"bundle.json is damaged: {error}") from error
        if not is_run_id(head.run):
            raise self._refusal(f"{head.run[:80]!r} is not the id of a run")
        for file in head.files:
            if not is_kept_path(file.path):
                raise self._refusal(f"{file.path[:80]!r} is no path of a run folder")
        if len({file.path for file in head.files}) < len(head.files):
            raise self._refusal("it names a path twice")
        sizes = [*(file.bytes for file in head.files), *(blob.bytes for blob in head.blobs)]
        if min(sizes, default=0) < 0 or not all(is_digest(blob.digest) for blob in head.blobs):
            raise self._refusal("bundle.json is damaged: sizes or digests that are none")
        return head

    def _exactly(self, size: int) -> bytes:
        found = self._file.read(size)
        if len(found) < size:
            raise self._refusal("it is cut short")
        return found

    def _refusal(self, why: str, *, hint: str = "ask for it again: `jupyter gpu runs export RUN`") -> RequestError:
        return RequestError(f"{self._name} is not imported: {why}", hint=hint)


class _Versioned(msgspec.Struct):
    schema_version: int


def is_kept_path(path: str) -> bool:
    """Tell if ``path`` (from a bundle) names a file that a run folder may have, inside of that folder."""
    parts = PurePosixPath(path).parts
    is_plain = path == "/".join(parts) and not {"..", ".", "/"} & set(parts) and path.isprintable()
    is_short = len(path.encode(errors="replace")) <= _LONGEST_PATH and all(
        len(part.encode(errors="replace")) <= _LONGEST_PART for part in parts
    )
    return is_plain and is_short and _KEPT.fullmatch(path) is not None


_NAME = re.compile(r"[0-9a-f]{16}")


def incoming_folder(store: Path, name: str) -> Path:
    """Folder where the import called ``name`` is unpacked; raises :class:`RequestError` for what is no such name."""
    if not _NAME.fullmatch(name):
        raise RequestError(f"{name[:40]!r} is not the name of an import", hint="`jupyter gpu runs import FILE`")
    return store / "incoming" / name


def unpack_bundle(store: Path, reader: BundleReader) -> str:
    """Unpack into ``<store>/incoming/<name>`` and return the name; nothing of a failure is left.

    Blobs go to their place at once: they are what their names say, and collected when no run comes to refer to them.
    Raises :class:`RequestError` for a bundle that is not what it says, :class:`StoreError` for the store's troubles.
    """
    _check_space(store, reader)
    name = secrets.token_hex(8)
    folder = incoming_folder(store, name)
    try:
        make_store_folder(folder / "files")
        for number, file in enumerate(reader.head.files):
            _unpack_file(folder, number, file, reader)
        for blob in reader.head.blobs:
            _unpack_blob(
                store, folder, blob.digest, reader.read_member(f"blobs/{blob.digest}", size=blob.bytes), reader
            )
        reader.expect_end()
        _check_whole(folder, reader)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise StoreError(
            f"cannot unpack into {folder}: {error.strerror}", hint="check rights and free space"
        ) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return name


def _check_space(store: Path, reader: BundleReader) -> None:
    make_store_folder(store / "incoming")
    facts = os.statvfs(store)
    free, needed = facts.f_bavail * facts.f_frsize, reader.head.total_bytes
    if needed > free:
        raise StoreError(
            f"the import needs {needed} bytes in {store}, and {free} are free", hint="make room: `jupyter gpu gc`"
        )


def _unpack_file(folder: Path, number: int, file: BundledFile, reader: BundleReader) -> None:
    target = folder / file.path
    make_store_folder(target.parent)
    summed = blake3()
    write_atomic(target, _summed(reader.read_member(f"run/{number:06}", size=file.bytes), summed))
    if summed.hexdigest() != file.digest:
        raise reader.refuse_content(file.path)


def _summed(pieces: Iterator[bytes], summed: blake3) -> Iterator[bytes]:
    for piece in pieces:
        summed.update(piece)
        yield piece


def _unpack_blob(store: Path, folder: Path, digest: str, pieces: Iterator[bytes], reader: BundleReader) -> None:
    temp = folder / "blob"
    size = write_atomic(temp, pieces, durable=False)
    if not size:
        raise reader.refuse_content(f"blob {digest}")
    with temp.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = blake3(content, max_threads=2).hexdigest()
        if found != digest:
            raise reader.refuse_content(f"blob {digest}")
        BlobStore(store / "blobs").put_buffer(content)
    temp.unlink()


def _check_whole(folder: Path, reader: BundleReader) -> None:
    """The manifest is readable and of this run, its values are there, and so is every blob that a graph refers to."""
    paths = RunPaths(folder)
    manifest = read_manifest(paths)
    if manifest.get("run") != reader.head.run:
        raise reader.refuse_content("manifest.json")
    check_graphs(paths, manifest)
    listed = {blob.digest: blob.bytes for blob in reader.head.blobs}
    for graph, _ in graphs_of(folder):
        if any(listed.get(digest) != size for digest, size in blobs_of(graph)):
            raise reader.refuse_content(graph.name)
