"""What is mapped from the store instead of read: arrays, tensors, frames; and that they are everybody's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_gpu_release.serialization import codec, rebuild
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.graph_file import blobs_of, open_graph, write_graph
from jupyter_gpu_release.store.mapped.mapping import mapping_at
from jupyter_gpu_release.store.run_folders import create_run_folder
from jupyter_gpu_release.unpickling import Trust

RUN, NEXT = "20261121-101500-0123abcd", "20261121-101501-0123abcd"
ROWS = 400_000


def stored(store: Path, run: str, value: Any) -> tuple[Path, str]:
    path = create_run_folder(store, run).values
    dump = codec.dump({"x": value}, rebuild.NamespaceInfo({}, at_home=True))
    assert not dump.failed
    return path, write_graph(path, dump.stream, dump.buffers, durable=False)


def taken(path: Path, digest: str) -> Any:
    opened = open_graph(path, digest)
    realm = rebuild.NamespaceInfo({}, at_home=True)
    return codec.load(opened.stream, opened.buffers, realm, trust=Trust.OWN).values["x"]


def is_mapped(array: Any) -> bool:
    return mapping_at(memoryview(array).cast("B")) is not None


def numpy_array() -> Any:
    return np.arange(ROWS, dtype="f8")


def fortran_array() -> Any:
    return np.asfortranarray(np.arange(ROWS, dtype="f8").reshape(1000, -1))


def tensor() -> Any:
    return pytest.importorskip("torch").arange(ROWS, dtype=pytest.importorskip("torch").float64)


def frame() -> Any:
    return pytest.importorskip("pandas").DataFrame({"a": np.arange(ROWS), "b": np.arange(ROWS) / 7})


def dates() -> Any:
    pandas = pytest.importorskip("pandas")
    when = pandas.date_range("2020", periods=ROWS, freq="s")
    return pandas.DataFrame({"a": when, "b": when - when[7], "c": when.tz_localize("UTC")})


def arrow_frame() -> Any:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    numbers = pandas.array(range(ROWS), dtype="int64[pyarrow]")
    return pandas.DataFrame({"a": numbers, "s": pandas.array([f"text {n}" for n in range(ROWS)], "string[pyarrow]")})


def arrow_table() -> Any:
    return pytest.importorskip("pyarrow").table({"a": np.arange(ROWS), "b": np.arange(ROWS) / 7})


MADE: dict[str, tuple[Callable[[], Any], Callable[[Any], list[Any]]]] = {
    "numpy": (numpy_array, lambda x: [x]),
    "fortran": (fortran_array, lambda x: [x.T]),
    "torch": (tensor, lambda x: [x.numpy()]),
    "pandas": (frame, lambda x: [x["a"].to_numpy(), x["b"].to_numpy()]),
    "dates": (dates, lambda x: [x["a"].to_numpy().view("i8"), x["b"].to_numpy().view("i8")]),
    "pandas on arrow": (arrow_frame, lambda x: [b for name in x for b in _buffers(x[name].array._pa_array)]),
    "arrow": (arrow_table, lambda x: [b for name in x.column_names for b in _buffers(x[name])]),
}


def _buffers(column: Any) -> list[Any]:
    return [b for chunk in column.chunks for b in chunk.buffers() if b is not None and b.size > 1 << 20]


@pytest.mark.parametrize("kind", MADE)
def test_it_is_mapped_and_goes_on_without_being_written_or_read(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, memory_of = MADE[kind]
    path, digest = stored(tmp_path, RUN, make())
    value = taken(path, digest)
    assert memory_of(value)
    assert all(map(is_mapped, memory_of(value)))
    before = list(BlobStore(tmp_path / "blobs").list_blobs())
    assert sum(info.bytes for info in before) > 3_000_000
    with monkeypatch.context() as patch:
        patch.setattr("jupyter_gpu_release.store.blobs.digest_of", None)  # whoever hashes, fails
        again, _ = stored(tmp_path, NEXT, value)
    assert sorted(blobs_of(again)) == sorted(blobs_of(path))
    assert {info.digest for info in BlobStore(tmp_path / "blobs").list_blobs()} == {info.digest for info in before}


def _add(x: Any) -> Any:
    x += 1
    return x


def _sixth(x: Any) -> int:
    values = np.asarray(x["a"] if hasattr(x, "columns") else x)
    return int((values.view("i8") if values.dtype.kind == "M" else values).flat[5])


CHANGES: dict[str, Callable[[Any], Any]] = {
    "numpy": _add,
    "fortran": _add,
    "torch": lambda x: x.add_(1),
    "pandas": _add,
    "dates": lambda x: x.assign(a=x["a"] + np.timedelta64(1, x["a"].dt.unit)),
    "pandas on arrow": lambda x: x.assign(a=x["a"] + 1),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_it_can_be_changed_in_place_and_changes_no_file(tmp_path: Path, kind: str) -> None:
    path, digest = stored(tmp_path, RUN, MADE[kind][0]())
    value, other = taken(path, digest), taken(path, digest)
    blobs = BlobStore(tmp_path / "blobs")
    changed = CHANGES[kind](value)
    assert _sixth(changed) == _sixth(other) + 1
    for info in blobs.list_blobs():
        blobs.verify_blob(info.digest)
    again, new = stored(tmp_path, NEXT, changed)
    assert set(blobs_of(again)) != set(blobs_of(path))
    assert _sixth(taken(again, new)) == _sixth(changed)


def test_only_what_is_touched_of_a_cold_file_is_read(tmp_path: Path) -> None:
    size = 96 << 20
    path, digest = stored(tmp_path, RUN, np.ones(size, dtype="u1"))
    blob = BlobStore(tmp_path / "blobs").path_of(blobs_of(path)[0][0])
    with blob.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = _read_from_disk()
    value = taken(path, digest)
    assert value[size // 2] == 1
    assert _read_from_disk() - before < 24 << 20


def _read_from_disk() -> int:
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["read_bytes"])


@pytest.mark.parametrize("count", [0, 1, 3, 1000])
def test_dates_and_durations_come_back_as_they_were(count: int) -> None:
    """As numbers inside the stream and outside of it, in each order of memory, views as views."""
    when = np.arange(count).astype("M8[s]")
    fixed = when.copy()
    fixed.flags.writeable = False
    sent = {
        "when": when,
        "part": when[1:],
        "back": when[::-1],
        "fixed": fixed,
        "fortran": np.asfortranarray(np.tile(when, (3, 1))),
        "wide": np.tile(when, (4, 1))[:, ::2],
        "took": when.astype("i8").view("m8[ms]"),
        "other": when.astype(">M8[25s]"),
        "one": np.array(np.datetime64("NaT", "D")),
    }
    dump = codec.dump(sent, rebuild.NamespaceInfo({}, at_home=False))
    assert not dump.failed
    back = codec.load(
        dump.stream, [bytearray(b) for b in dump.buffers], rebuild.NamespaceInfo({}, at_home=True), trust=Trust.OWN
    ).values
    for name, array in sent.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape), name
        assert back[name].flags.writeable is array.flags.writeable, name
        np.testing.assert_array_equal(back[name], array)
    back["when"][1:] = np.datetime64("1999", "s")
    assert (back["part"] == back["when"][1:]).all()
    assert sum(buffer.nbytes for buffer in dump.buffers) == (88_000 if count == 1000 else 0)


def test_a_change_is_seen_wherever_in_its_file_it_lies(tmp_path: Path) -> None:
    value = taken(*stored(tmp_path, RUN, numpy_array()))
    parts = [value[: ROWS // 2], value[ROWS // 2 :]]

    def unchanged() -> list[bool]:
        found = [mapping_at(memoryview(part).cast("B")) for part in parts]
        return [
            at[0].unchanged(at[0].address + at[1], part.nbytes) for at, part in zip(found, parts, strict=True) if at
        ]

    assert unchanged() == [True, True]
    parts[1][-1] = -1
    assert unchanged() == [True, False]
    parts[1][-1] = ROWS - 1
    parts[0][0] = 7
    assert unchanged() == [False, True], "written, and what it was before"
