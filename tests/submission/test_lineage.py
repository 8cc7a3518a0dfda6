"""What a run was made from has a digest, whatever its size: of the content, the same in any run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jupyter_gpu_release.protocol.lineage import UsedInput
from jupyter_gpu_release.protocol.runs import ValueInfo
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.run_folders import make_store
from jupyter_gpu_release.submission.capture import CapturedInputs
from jupyter_gpu_release.submission.lineage import ResultLineage, used_inputs
from jupyter_gpu_release.submission.request import _place_inputs


def digests(store: Path, number: int, **values: object) -> dict[str, str]:
    dump = codec.dump(values, NamespaceInfo({}, at_home=True))
    used = [UsedInput(name, "t", 1, digest="sent:known" if name == "small" else "") for name in values]
    prepared = CapturedInputs(
        stream=dump.stream, buffers=dump.buffers, total_bytes=dump.total_bytes, spans=dump.spans, used=used
    )
    _place_inputs(prepared, lambda: store, f"20260101-000000-{number:08x}")
    return {each.name: each.digest for each in prepared.used}


def test_large_inputs_have_digests_of_their_content(tmp_path: Path) -> None:
    make_store(tmp_path)
    array, text = np.arange(1 << 20, dtype=np.float64), "x" * (3 << 20)
    first = digests(tmp_path, 1, array=array, text=text, small=1)
    again = digests(tmp_path, 2, array=array.copy(), text=text, small=1)
    array[7] += 1
    changed = digests(tmp_path, 3, array=array, text=text, small=1)
    assert first == again
    assert (first["array"] != changed["array"], first["text"] == changed["text"]) == (True, True)
    assert {first[name].partition(":")[0] for name in ("array", "text")} == {"blobs"}
    assert first["small"] == "sent:known"


def test_many_small_buffers_count(tmp_path: Path) -> None:
    make_store(tmp_path)
    arrays = [np.full(50_000, number, dtype=np.float64) for number in range(6)]
    first = digests(tmp_path, 1, arrays=arrays)
    arrays[3][9] = -1
    assert first["arrays"].startswith("blobs:")
    assert first != digests(tmp_path, 2, arrays=arrays)


def test_small_inputs_have_digests_of_their_content_and_the_run_that_made_them() -> None:
    lineage, array, items = ResultLineage(), np.arange(1000.0), [1]

    def used(**values: object) -> list[UsedInput]:
        dump = codec.dump(values, NamespaceInfo({}, at_home=True))
        return used_inputs([ValueInfo(name, "t", dump.sizes[name]) for name in values], dump, lineage, values)

    lineage.note_results("run", ["array", "items"], {"array": array, "items": items})
    lineage.note_results("gone", ["other"], {"other": np.arange(3.0)})  # and its end is nobody else's
    first = used(array=array, items=items)
    assert [each.run for each in first] == ["run", "run"]
    array[7] += 1
    items.append(2)
    again = used(array=array, items=items)
    assert [each.run for each in again] == ["run", ""], "a list is known by its length, too"
    assert first[0].digest != again[0].digest == used(array=array.copy())[0].digest
