"""Columns of Arrow texts: in one piece, in several, and a few rows of a large one."""

from __future__ import annotations

from typing import Any

import pytest

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
