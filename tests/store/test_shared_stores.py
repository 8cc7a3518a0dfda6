"""A store that a group shares: modes, access lists, whose files are loaded. Users by number; needs root."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from unix_users import ANN, BOB, SERVICE, TEAM, as_user, needs_root, public_folder

from jupyter_gpu_release.checks.gateway import check_used_store, used_store
from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.store.event_log import EventWriter
from jupyter_gpu_release.store.files import make_store_folder, write_atomic
from jupyter_gpu_release.store.gc.trash import Trash
from jupyter_gpu_release.store.graph_file import digest_in, read_graph, write_graph
from jupyter_gpu_release.store.layout import RunPaths, own_store
from jupyter_gpu_release.store.ownership import VARIABLE, trust
from jupyter_gpu_release.store.run_folders import (
    create_run_folder,
    make_store,
    require_store,
    share_store,
    write_manifest,
)

pytestmark = needs_root
_LARGE = bytes(range(256)) * 8192  # 2 MiB: a blob


@pytest.fixture
def store() -> Iterator[Path]:
    with public_folder() as folder:
        root = folder / "store"
        root.mkdir(mode=0o700)
        os.chown(root, SERVICE, SERVICE)

        def make() -> None:
            make_store(root)
            share_store(root, TEAM)

        assert as_user(SERVICE, make, groups=[TEAM]) == 0
        yield root


def _in_team(uid: int, work: Callable[[], object]) -> int:
    return as_user(uid, work, groups=[TEAM])


def _graph(path: Path) -> Graph:
    return Graph(file=path.name, digest=digest_in(path))


def _write_inputs(store: Path, run: str) -> None:
    write_graph(create_run_folder(store, run).inputs, b"stream", [_LARGE])


def _run_cell(store: Path, run: str, owner: int) -> None:
    """The service user's part: load what the owner wrote, leave log, manifest and values."""
    paths = RunPaths.of(store, run)
    trust(owner)
    stream, buffers = read_graph(_graph(paths.inputs), paths.folder)
    assert stream == b"stream"
    assert bytes(buffers[0]) == _LARGE
    log = EventWriter(paths.events)
    log.write([Event(1, 0.0, "stream", {"name": "stdout", "text": "hello"})])
    log.close()
    write_graph(paths.values, b"results", [_LARGE, _LARGE[:-1] + b"x"])
    write_manifest(paths, {"run": run, "state": "succeeded"}, durable=False)


def _load_values(store: Path, run: str) -> None:
    paths = RunPaths.of(store, run)
    stream, buffers = read_graph(_graph(paths.values), paths.folder)
    assert stream == b"results"
    assert bytes(buffers[0]) == _LARGE


def test_members_of_the_group_and_the_service_use_one_store_whatever_their_umask(store: Path) -> None:
    of_ann, of_bob = new_run_id(), new_run_id()
    for user, run in ((ANN, of_ann), (BOB, of_bob)):  # the same content: one blob, which ann put first
        assert _in_team(user, partial(_write_inputs, store, run)) == 0
        assert _in_team(SERVICE, partial(_run_cell, store, run, user)) == 0

        def load(run: str = run) -> None:
            trust(SERVICE)
            _load_values(store, run)

        assert _in_team(user, load) == 0
    entries = [store, *store.rglob("*")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in entries if path.is_dir()}
    assert modes == {0o2770}
    below = {path: stat.S_IMODE(path.stat().st_mode) for path in store.rglob("runs/*/*") if path.is_file()}
    below |= {path: stat.S_IMODE(path.stat().st_mode) for path in store.glob("blobs/[0-9a-f]*/*")}
    assert below
    assert set(below.values()) == {0o660}
    assert {path.stat().st_gid for path in entries if path.name != "store.json"} == {TEAM}
    assert _in_team(SERVICE, partial(Trash(store).remove_results, of_ann, "a test", 0.0)) == 0
    assert [path.name for path in (store / "runs" / of_ann).iterdir()] == ["manifest.json"]


def test_who_is_not_in_the_group_sees_nothing(store: Path) -> None:
    def look() -> None:
        with pytest.raises(PermissionError):
            os.listdir(store)

    assert as_user(BOB, look) == 0


def test_files_of_others_are_loaded_only_where_they_are_named_as_the_service(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run_id()
    assert _in_team(ANN, partial(_write_inputs, store, run)) == 0
    assert _in_team(SERVICE, partial(_run_cell, store, run, ANN)) == 0

    def refused() -> None:
        with pytest.raises(StoreError, match=f"belongs to user {SERVICE}") as raised:
            _load_values(store, run)
        assert f"{VARIABLE}={SERVICE}" in raised.value.hint

    assert _in_team(ANN, refused) == 0
    monkeypatch.setenv(VARIABLE, str(SERVICE))
    assert _in_team(ANN, partial(_load_values, store, run)) == 0


def _acl(*entries: tuple[int, int]) -> bytes:
    """A list as the kernel has it: version 2, then tag, rights and no name."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, rights, 0xFFFFFFFF) for tag, rights in entries)


def test_a_default_access_list_decides_by_itself(store: Path) -> None:
    folder = store / "runs"
    default = _acl((1, 7), (4, 5), (16, 5), (32, 0))  # owner rwx, group r-x, mask r-x, others nothing
    try:
        os.setxattr(folder, "system.posix_acl_default", default)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip("no access lists on this filesystem")

    def write() -> None:
        make_store_folder(folder / "made")
        write_atomic(folder / "made" / "file", [b"text"], durable=False)

    assert _in_team(SERVICE, write) == 0
    assert stat.S_IMODE((folder / "made").stat().st_mode) == 0o2750
    # a folder that its group may not write is not shared: what is made there is its owner's
    assert stat.S_IMODE((folder / "made" / "file").stat().st_mode) == 0o600


def test_a_store_of_one_user_stays_private_in_a_shared_folder() -> None:
    with public_folder() as folder:
        folder.chmod(0o2770)
        make_store(folder / "store")
        run = create_run_folder(folder / "store", new_run_id())
        write_manifest(run, {"run": run.folder.name}, durable=False)
        assert run.folder.stat().st_mode & 0o777 == 0o700
        assert run.manifest.stat().st_mode & 0o777 == 0o600


def test_who_is_no_member_is_told_so(store: Path) -> None:
    def look() -> None:
        assert own_store(store) == store
        with pytest.raises(StoreError, match=f"Unix user {BOB} may not enter the store") as caught:
            require_store(store)
        assert "adds your account to the group" in caught.value.hint
        finding = check_used_store(used_store(str(store)))
        assert (finding.level, f"Unix user {BOB} may not enter" in finding.finding) == ("broken", True)

    assert as_user(BOB, look) == 0
