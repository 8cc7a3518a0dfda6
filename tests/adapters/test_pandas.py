"""Columns of Arrow texts, indexes that were written, attributes that others put into classes."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_release.adapters import pandas as adapter_module
from jupyter_gpu_release.adapters.pandas import ADAPTER
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


def _back(value: Any) -> Any:
    dump = codec.dump({"value": value}, NamespaceInfo({}, at_home=True))
    assert not dump.failed
    return codec.load(
        dump.stream, list(map(bytes, dump.buffers)), NamespaceInfo({}, at_home=False), trust=Trust.OWN
    ).values["value"]


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_column_of_several_pieces_comes_whole(pieces: int) -> None:
    piece = pandas.Series(["a", "bb", None], dtype="string[pyarrow]")
    column = pandas.concat([piece] * pieces, ignore_index=True)
    assert column.array._pa_array.num_chunks == pieces
    pandas.testing.assert_series_equal(_back(column), column)


def test_a_few_rows_of_a_large_column_travel_alone() -> None:
    column = pandas.Series(["x" * 100] * 10_000, dtype="string[pyarrow]")
    part = column.iloc[5:8]
    dump = codec.dump({"value": part}, NamespaceInfo({}, at_home=True))
    assert len(dump.stream) + sum(memoryview(buffer).nbytes for buffer in dump.buffers) < 100_000
    pandas.testing.assert_series_equal(_back(part), part)


def test_an_index_is_kept_unless_its_values_were_written() -> None:
    """Under pandas 2: ``df.columns.values[0] = "z"``. What is not kept is put there as it came."""
    old = pandas.Index(["a", "b"], name="before")
    assert ADAPTER.update_in_place(old, pandas.Index(["a", "b"], name="after"))
    assert old.name == "after"
    for other in (pandas.Index(["z", "b"]), pandas.Index(["a", "b"], dtype="category"), pandas.Index(["a"])):
        assert not ADAPTER.update_in_place(old, other)
    assert list(old) == ["a", "b"]


def test_a_property_that_can_only_be_set_is_an_extension_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    own = property(None, lambda _frame, _value: None)
    monkeypatch.setattr(pandas.DataFrame, "only_set", own, raising=False)
    assert list(ADAPTER.extensions()) == [(pandas.DataFrame, "only_set", own)]


def test_what_pandas_has_itself_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked around each cell; what is put there, and what replaces pandas' own, is found all the same."""
    assert list(ADAPTER.extensions()) == []
    looked_at: list[str] = []
    of = adapter_module._is_extension
    monkeypatch.setattr(adapter_module, "_is_extension", lambda *each: looked_at.append(each[1]) or of(*each))
    for name in ("total", "head"):
        monkeypatch.setattr(pandas.DataFrame, name, lambda _frame: 1, raising=False)
    assert {name for _, name, _ in ADAPTER.extensions()} == {"head", "total"}
    assert set(looked_at) - {"__slotnames__"} == {"head", "total"}  # Python's own note of a class that was pickled
