from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store.graph_file import ALIGNMENT, VERIFY_BYTES, open_graph, write_graph
from jupyter_gpu_release.store.mapped.mapping import GraphMap

BUFFERS = [b"abc", b"", bytes(range(256)) * 100, bytearray(b"z" * 5000)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "v.graph"
    digest = write_graph(path, b"stream", BUFFERS)
    opened = open_graph(path, digest)
    assert opened.stream == b"stream"
    assert [bytes(buffer) for buffer in opened.buffers] == [bytes(buffer) for buffer in BUFFERS]
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["v.graph"]


def test_buffers_are_aligned_writable_and_private(tmp_path: Path) -> None:
    path = tmp_path / "v.graph"
    digest = write_graph(path, b"s", BUFFERS)
    before = path.read_bytes()
    opened = open_graph(path, digest)
    mapping = opened.buffers[2].obj
    assert isinstance(mapping, GraphMap)
    for buffer in opened.buffers:
        at = _offset(mapping, buffer)
        assert at % ALIGNMENT == 0
    opened.buffers[2][0] = 77
    assert path.read_bytes() == before
    assert open_graph(path, digest).buffers[2][0] == 0


def _offset(mapping: GraphMap, view: memoryview) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view)) - mapping.address if view.nbytes else 0


def test_the_file_may_go_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "v.graph"
    opened = open_graph(path, write_graph(path, b"s", BUFFERS))
    path.unlink()
    assert bytes(opened.buffers[0]) == b"abc"
    assert opened.buffers[2].obj.unchanged(opened.buffers[2].obj.address, 4096)


@pytest.mark.parametrize("damage", ["cut", "empty", "stream", "index", "buffer", "longer", "other", "missing"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "v.graph"
    digest = write_graph(path, b"streamstream", BUFFERS)
    data = bytearray(path.read_bytes())
    places = {"stream": data.index(b"streamstream"), "buffer": data.index(b"z" * 100), "index": len(data) - 40}
    if damage == "cut":
        del data[-1000:]
    elif damage == "empty":
        data.clear()
    elif damage == "longer":
        data += b"more"
    elif damage in places:
        data[places[damage]] ^= 1
    path.write_bytes(data)
    if damage == "other":
        path.write_bytes(b"something else entirely" * 50)
    if damage == "missing":
        path.unlink()
    with pytest.raises(StoreError, match=r"v\.graph"):
        open_graph(path, digest)


def test_another_digest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.graph"
    write_graph(path, b"s", [])
    with pytest.raises(StoreError, match="digest"):
        open_graph(path, "0" * 32)


def test_large_buffers_are_checked_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "v.graph"
    digest = write_graph(path, b"s", [bytes(VERIFY_BYTES // 2 + 1)] * 2, durable=False)
    open_graph(path, digest, verify=True)
    with path.open("r+b") as file:
        file.seek(VERIFY_BYTES // 4)
        file.write(b"x")
    assert open_graph(path, digest).buffers[0][VERIFY_BYTES // 4 - 100] == 0
    with pytest.raises(StoreError, match="altered"):
        open_graph(path, digest, verify=True)


def test_a_foreign_file_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.graph"
    digest = write_graph(path, b"s", [])
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StoreError, match="belongs to user"):
        open_graph(path, digest)


def test_an_unwritable_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot write"):
        write_graph(tmp_path / "none" / "v.graph", b"s", [])


@pytest.mark.parametrize("pagemap", [True, False])
def test_changed_memory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pagemap: bool) -> None:
    if not pagemap:
        monkeypatch.setattr("jupyter_gpu_release.store.mapped.mapping.page_flags", lambda *_: None)
    path = tmp_path / "v.graph"
    opened = open_graph(path, write_graph(path, b"s", [bytes(100_000), bytes(100_000)]))
    mapping: GraphMap = opened.buffers[0].obj  # type: ignore[assignment]
    first, second = (mapping.address + _offset(mapping, buffer) for buffer in opened.buffers)
    assert mapping.unchanged(first, 100_000)
    opened.buffers[0][50_000] = 0  # written, but the same
    assert mapping.unchanged(first, 100_000)
    opened.buffers[0][50_001] = 1
    assert not mapping.unchanged(first, 100_000)
    assert mapping.unchanged(second, 100_000)
    assert mapping.holds(second, 100_000)
    assert not mapping.holds(second, len(mapping))
