"""The rank's side alone: what is loaded, what counts as changed, what is kept alive, why a GPU was not touched."""

from __future__ import annotations

import gc
import pickle
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optional_libraries import torch

from jupyter_gpu_release.adapters.torch.adapter import ADAPTER
from jupyter_gpu_release.errors import LoadError
from jupyter_gpu_release.node.values import frameworks
from jupyter_gpu_release.node.values.collected_values import Collected
from jupyter_gpu_release.node.values.namespace import RankValues
from jupyter_gpu_release.protocol.cell import RESULT, CellPayload
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.graph_file import open_graph, write_graph
from jupyter_gpu_release.unpickling import Trust

#: those of numpy and torch come home whenever they are loaded
RANDOM_STATES_BYTES = 16 << 10


class Box:
    """Anything a cell may hold."""

    def __init__(self, content: Any = None) -> None:
        self.content = content


def rank(
    names: dict[str, Any], path: Path | None = None, *, has_gpu: bool = False, **payload: Any
) -> tuple[RankValues, dict[str, Any]]:
    """A rank that has loaded ``names`` (through a file when ``path`` is given), and its namespace."""
    space: dict[str, Any] = {"__name__": "__main__", "shell_thing": object()}
    dump = codec.dump(names, NamespaceInfo({}, at_home=True))
    assert not dump.failed
    stream, buffers = dump.stream, [bytes(buffer) for buffer in dump.buffers]
    if path is not None:
        stream, buffers = open_graph(path, write_graph(path, dump.stream, dump.buffers))
    values = RankValues(space, CellPayload(source="", **payload), stream, buffers, has_gpu=has_gpu)
    values.load()
    return values, space


def home(collected: Collected) -> codec.Loaded:
    return codec.load(
        collected.stream, [bytes(b) for b in collected.buffers], NamespaceInfo({}, at_home=True), trust=Trust.OWN
    )


def changed(values: RankValues) -> list[str]:
    return home(values.collect()).facts["inplace"]


INPUTS: dict[str, Any] = {
    "number": 5,
    "text": "abc",
    "nothing": None,
    "pair": (1, (2, "x")),
    "items": [1, [2]],
    "mapping": {"a": {"b": 1}},
    "some": {3, 1, 2},
    "data": bytearray(b"abc"),
    "array": np.arange(2000.0),
    "view": np.arange(20.0)[3:5],
    "strings": np.array(["a", "b"]),
    "objects": np.array([1, "a", None], dtype=object),
    "tensor": torch.arange(2000.0),
    "parameter": torch.nn.Parameter(torch.ones(3)),
    "model": torch.nn.Linear(3, 3),
    "box": Box([1]),
    "function": len,
    "partial": Box(Box(np.zeros(5000))),
    "frozen": frozenset({1}),
}


@pytest.mark.parametrize("through_file", [False, True])
def test_untouched_inputs_do_not_go_home(tmp_path: Path, through_file: bool) -> None:
    values, _space = rank(INPUTS, tmp_path / "in.graph" if through_file else None)
    collected = values.collect()
    assert collected.results == []
    assert sum(buffer.nbytes for buffer in collected.buffers) <= RANDOM_STATES_BYTES
    loaded = home(collected)
    assert loaded.values == {}
    assert loaded.facts["inplace"] == loaded.facts["deleted"] == []


CHANGES: dict[str, str] = {
    "items": "items[1].append(3)",
    "mapping": "mapping['a']['b'] = 2",
    "some": "some.add(9)",
    "data": "data += b'x'",
    "array": "array[7] = -1",
    "view": "view[0] = -1",
    "strings": "strings[0] = 'z'",
    "objects": "objects[2] = 1",
    "tensor": "tensor[3] = -1",
    "parameter": "parameter.data[0] = 5",
    "model": "model.bias.data.zero_()",
    "box": "box.content[0] = 2",
    "partial": "partial.content.content[4999] = 1",
}


@pytest.mark.parametrize("through_file", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed_and_only_that(tmp_path: Path, name: str, through_file: bool) -> None:
    values, space = rank(INPUTS, tmp_path / "in.graph" if through_file else None)
    exec(CHANGES[name], space)
    assert changed(values) == [name]


@pytest.mark.parametrize(
    "change",
    [
        "model.train(False)",
        "model.bias.grad = model.bias.detach().clone()",
        "model.weight.requires_grad_(False)",
        "model.extra = 1",
        "model.bias.note = 'x'",
    ],
)
def test_changes_of_a_module_that_are_no_numbers(change: str) -> None:
    values, space = rank({"model": torch.nn.Linear(2, 2)})
    exec(change, space)
    assert changed(values) == ["model"]


def test_a_change_through_shared_memory_changes_both(tmp_path: Path) -> None:
    base = torch.zeros(100_000)
    values, space = rank({"base": base, "part": base[10:20], "other": torch.zeros(100_000)}, tmp_path / "in.graph")
    space["part"][0] = 1
    assert changed(values) == ["base", "part"]


def test_what_cannot_be_decided_counts_as_changed() -> None:
    values, space = rank({"box": Box(), "other": Box()})
    space["box"].content = (n for n in range(3))
    collected = values.collect()
    assert home(collected).values == {}
    assert any(note.startswith("`box.content`: cannot pickle 'generator'") for note in collected.notes)


def test_names_bound_deleted_rebound() -> None:
    values, space = rank({"a": [1], "b": [2], "c": 3, "d": 4})
    space.update(new=1, b=[2], c=1000, _own=1, _=5, _7=6, _i3="x", Out=8)
    space["In"] = space["_ih"] = [1]
    del space["a"]
    loaded = home(values.collect())
    assert loaded.values == {"new": 1, "b": [2], "c": 1000, "_own": 1, "Out": 8}
    assert loaded.facts["deleted"] == ["a"]
    assert loaded.facts["inplace"] == []


def test_modules_go_home_by_name() -> None:
    values, space = rank({"a": 1})
    space["json"] = sys.modules["json"]
    collected = values.collect()
    assert home(collected).modules == {"json": "json"}
    assert collected.results == []


def test_choice_of_results() -> None:
    values, space = rank({"a": [1]}, out=["a", "x", "lost"], skip=["y"])
    space.update(x=1, y=2, z=3)
    collected = values.collect()
    assert set(home(collected).values) == {"a", "x"}
    assert any("`lost` (--out) was not bound" in note for note in collected.notes)
    values, space = rank({"a": [1]}, skip=["y", "a"])
    space.update(x=1, y=2)
    space["a"].append(1)
    assert set(home(values.collect()).values) == {"x"}


def test_sizes_and_types_of_results() -> None:
    values, space = rank({})
    space["t"] = torch.zeros(1000)
    space["s"] = {"same": space["t"]}
    infos = {info.name: info for info in values.collect().results}
    assert infos["t"].type == "Tensor"
    assert infos["t"].bytes > 4000 > 200 > infos["s"].bytes


def test_results_point_at_live_memory() -> None:
    values, space = rank({})
    space["big"] = np.zeros(1 << 20)
    collected = values.collect()
    assert max(buffer.nbytes for buffer in collected.buffers) == 8 << 20
    space["big"][5] = 3
    assert memoryview(collected.buffers[0]).cast("d")[5] == 3


def test_inputs_that_the_cell_lets_go_are_freed() -> None:
    values, space = rank({"box": Box(Box()), "model": torch.nn.Linear(2, 2), "array": np.zeros(10), "many": [Box()]})
    alive = [
        weakref.ref(thing)
        for thing in (space["box"], space["box"].content, space["model"], space["array"], space["many"][0])
    ]
    space.clear()
    gc.collect()
    assert [reference() for reference in alive] == [None] * 5
    assert set(home(values.collect()).facts["deleted"]) >= {"box", "model", "array", "many"}


def test_the_same_objects_are_told_by_number() -> None:
    inner = Box([1])
    outer = Box(inner)
    dump = codec.dump({"outer": outer}, NamespaceInfo({}, at_home=True))
    space: dict[str, Any] = {}
    values = RankValues(space, CellPayload(source=""), dump.stream, [], has_gpu=False)
    values.load()
    space["outer"].content.content.append(2)
    loaded = home(values.collect())
    originals = dict(dump.memo.values())
    numbers, things = loaded.facts["same"]
    same = {id(originals[number]): thing for number, thing in zip(numbers, things, strict=True)}
    assert same[id(inner)] is loaded.values["outer"].content
    assert same[id(inner.content)] is loaded.values["outer"].content.content == [1, 2]


# -------------------------------------------------------------------------------- ambient, devices
def test_load_without_anything() -> None:
    space: dict[str, Any] = {}
    values = RankValues(space, CellPayload(source="x = 1"), b"", [], has_gpu=False)
    assert values.load() == []
    space["x"] = 1
    assert home(values.collect()).values == {"x": 1}


def test_forked_ranks_without_a_state_draw_different_numbers() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        rank({"a": 1}, ambient=pickle.dumps({"rng": {}}))
        drawn.append((float(torch.rand(1)), float(np.random.rand())))
    assert drawn[0][0] != drawn[1][0]
    assert drawn[0][1] != drawn[1][1]


def test_reevaluation_failures_are_notes() -> None:
    space: dict[str, Any] = {"device": "cpu"}
    payload = CellPayload(
        source="", reevaluate={"device": "'a' if nope.is_available() else 'b'", "home": "'cuda'", "n": "1 + 1"}
    )
    values = RankValues(space, payload, b"", [], has_gpu=False)
    notes = values.load()
    assert notes[0].startswith("`device` could not be evaluated again: NameError")
    assert (space["device"], space["n"], "home" in space) == ("cpu", 2, False)
    values = RankValues(space, payload, b"", [], has_gpu=True)
    assert "`home` was evaluated again for this cell: cuda" in values.load()


@pytest.mark.parametrize("error", [OSError("no"), AssertionError(), SystemExit(3), KeyboardInterrupt()])
def test_a_metric_that_is_no_number_in_any_way_is_left_to_the_sweep(error: BaseException) -> None:
    """The user's own ``__float__`` or mapping may raise anything; the trial has its outcome all the same."""

    class Odd(dict[str, Any]):
        def __float__(self) -> float:
            raise error

        def __getitem__(self, key: str) -> Any:
            raise error

    for function in ("", "train"):
        values, space = rank({}, metric="loss", function=function)
        space.update({"loss": Odd(), RESULT: Odd()})
        assert values.metric() == {}
        space.update({"loss": 0.5, RESULT: {"loss": 0.5}})
        assert values.metric() == {"loss": 0.5}


def test_device_words_come_home_as_cpu() -> None:
    values, space = rank({})
    space.update(device="cuda:0", dev="mps", DEVICE="cuda", label="cuda", device_note="cuda is fine")
    collected = values.collect()
    loaded = home(collected)
    assert loaded.values == {
        "device": "cpu",
        "dev": "cpu",
        "DEVICE": "cpu",
        "label": "cuda",
        "device_note": "cuda is fine",
    }
    assert loaded.facts["devices"] == {"device": "cuda:0", "dev": "mps", "DEVICE": "cuda"}
    assert space["device"] == "cuda:0"
    assert "`device` is cuda:0 in GPU cells and cpu in the notebook" in collected.notes


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"device": "cpu"}, "`device` is cpu"),
        ({"where": torch.device("cpu")}, "`where` is cpu"),
        ({"trainer": types.SimpleNamespace(device="cpu")}, "`trainer.device` is cpu"),
        ({"model": torch.nn.Linear(1, 1)}, "`model` was never moved to the GPU (`model.to('cuda')`)"),
        ({"x": 1}, "nothing was moved to the GPU"),
    ],
)
def test_why_a_gpu_was_not_touched(monkeypatch: pytest.MonkeyPatch, names: dict[str, Any], reason: str) -> None:
    values, space = rank({}, has_gpu=True)
    space.update(names)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert values.untouched_reason() == reason
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert values.untouched_reason() == ""


def test_no_verdict_without_a_gpu_and_other_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    values, space = rank({})
    space["device"] = "cpu"
    assert values.untouched_reason() == ""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "torch sees no GPU" in frameworks.untouched_reason({})
    monkeypatch.setattr(frameworks, "loaded_frameworks", list)
    assert "no framework" in frameworks.untouched_reason({"device": "cpu"})


@pytest.mark.parametrize("busy", [False, True])
def test_the_frames_of_another_rank_do_not_wait_for_its_gpu(monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    """A collective that a dead rank never joins keeps a GPU busy for ever."""
    values, space = rank({}, has_gpu=True)
    monkeypatch.setattr(frameworks, "loaded_frameworks", lambda: [ADAPTER])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: types.SimpleNamespace(query=lambda: not busy))
    with pytest.raises(ValueError) as raised:
        exec("def step(batch, number):\n    raise ValueError\nstep([1], 2)", space)
    values.error = raised.value
    graph = values.frames_of_error()
    failed = codec.load(graph.stream, graph.buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN).facts["failed"]
    assert [frame.name for frame in failed.frames] == ["<module>", "step"]
    found = codec.load(failed.stream, failed.buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN).values
    assert failed.texts == ({"1 batch": "<builtins.list: its GPU was still at work>"} if busy else {})
    assert found == {"1 number": 2} | ({} if busy else {"1 batch": [1]})


def test_broken_inputs_name_their_value() -> None:
    dump = codec.dump({"fine": 1, "broken": torch.ones(3)}, NamespaceInfo({}, at_home=True))
    damaged = dump.stream.replace(b"rebuild_tensor", b"rebuild_tenzor")
    with pytest.raises(LoadError, match="`broken` cannot be rebuilt on the node: AttributeError"):
        RankValues({}, CellPayload(source=""), damaged, [], has_gpu=False).load()


class _Unmade:
    """Its own code fails where it is put together."""

    def __setstate__(self, state: object) -> None:
        self.missing.append(state)  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, int]:
        return {"a": 1}


def test_an_error_of_the_class_itself_is_not_said_to_be_one_of_versions() -> None:
    dump = codec.dump({"odd": _Unmade()}, NamespaceInfo({}, at_home=True))
    with pytest.raises(LoadError, match="'_Unmade' object has no attribute 'missing'") as raised:
        RankValues({}, CellPayload(source=""), dump.stream, dump.buffers, has_gpu=False).load()
    assert "what its class gives to pickle does not make it again" in raised.value.message
    assert "version" not in raised.value.hint
