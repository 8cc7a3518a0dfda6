# ruff: noqa: E501 - a cell is one string
"""Classes and functions that the cell does not name are in the rank's ``__main__`` all the same."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from round_trip import Notebook

_DEFINITIONS = """
import torch
class Block(torch.nn.Linear):
    pass
class Net(torch.nn.Module):
    class Options:
        width = 2
    def __init__(self):
        super().__init__()
        self.block, self.options, self.act = Block(2, 2), Net.Options(), act
def act(x):
    return x * factor
factor = 3
"""


def test_a_model_is_pickled_in_a_cell_that_does_not_name_its_class(nb: Notebook, tmp_path: Path) -> None:
    nb.cell(f"{_DEFINITIONS}model = Net()")
    trip = nb.ok(
        "import pickle, torch, joblib, multiprocessing\n"
        "with open('model.pkl', 'wb') as f: pickle.dump(model, f)\n"
        "torch.save(model, 'model.pt'); joblib.dump(model, 'model.joblib')\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool: moved = pool.map(abs, [-1]) and pool.map(type, [model.options])\n"
    )
    assert "Net" in {info.name for info in trip.prepared.sent}
    assert "Net" not in trip.results  # they are the notebook's
    with nb._as_main(), (tmp_path / "model.pkl").open("rb") as file:
        assert type(pickle.load(file)) is nb.ns["Net"]
    script = tmp_path / "script.py"
    script.write_text(f"{_DEFINITIONS}model = torch.load('model.pt', weights_only=False)\nassert type(model) is Net")
    subprocess.run([sys.executable, script.name], cwd=tmp_path, check=True)
    assert nb.ns["moved"] == [nb.ns["Net"].Options]


def test_what_the_notebook_calls_otherwise_is_not_put_there(nb: Notebook) -> None:
    nb.cell("class Old: pass\nthing = Old()\nclass Old: pass\ndef f(): pass\ng = [f]\ndel f")
    trip = nb.gpu("import pickle\nr = ('f' in globals(), globals().get('Old') is type(thing))\npickle.dumps(thing)")
    assert "PicklingError" in trip.error
    assert nb.ns["r"] == (False, False)


@pytest.mark.parametrize("choice", [{"include": ["thing"]}, {"skip": ["Mine"]}])
def test_only_skip_keeps_a_definition_out(nb: Notebook, choice: dict[str, list[str]]) -> None:
    nb.cell("class Mine: pass\nthing = Mine()")
    trip = nb.gpu("import pickle\nthere = 'Mine' in dir()\npickle.dumps(thing)", **choice)
    assert nb.ns["there"] is ("skip" not in choice), trip.error


def test_what_is_registered_with_abstract_classes_is_so_here_and_there(nb: Notebook) -> None:
    nb.cell(
        "import abc, numbers\n"
        "from collections.abc import Sequence\n"
        "class Shape(abc.ABC): pass\n"
        "class Square: pass\n"
        "class Circle: pass\n"
        "class Deck: pass\n"
        "class Money: pass\n"
        "Shape.register(Square)\n"
        "Sequence.register(Deck)\n"
    )
    nb.ok("seen = isinstance(Square(), Shape), isinstance(Circle(), Shape), isinstance(Deck(), Sequence)")
    assert nb.ns["seen"] == (True, False, True)
    nb.ok("Shape.register(Circle)\nShape.register(int)")
    nb.ok("numbers.Number.register(Money)")
    asked = "seen = isinstance(Circle(), Shape), isinstance(3, Shape), isinstance(Money(), numbers.Number)"
    nb.cell(asked)
    assert nb.ns["seen"] == (True, True, True)
    nb.ok(asked)
    assert nb.ns["seen"] == (True, True, True)
    assert set(nb.ok("seen = isinstance(Square(), Shape)").results) == {"seen"}, "nothing else has changed"
