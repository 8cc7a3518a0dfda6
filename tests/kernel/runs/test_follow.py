from __future__ import annotations

import pytest

from jupyter_gpu_release.client.results import is_usable
from jupyter_gpu_release.presentation.run_display import describe_run
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import Outcome, RunView


def view(state: str, **facts: object) -> RunView:
    return RunView(run="r", user="u", state=state, simulated=True, **facts)


INLINE, FILE = Outcome("ok", values=Graph(stream=b"x")), Outcome("ok", values=Graph(file="values.graph"))


@pytest.mark.parametrize(
    ("seen", "usable"),
    [
        (view("running"), False),
        (view("releasing", outcome=INLINE), False),
        (view("persisting", gone_at=1.0, outcome=INLINE), True),
        (view("persisting", gone_at=1.0, outcome=Outcome("error")), True),
        (view("persisting", gone_at=1.0, outcome=FILE), False),
        (view("persisting", gone_at=1.0), False),
        (view("succeeded", gone_at=1.0, outcome=FILE), True),
        (view("cancelled"), True),
        (view("lost"), True),
    ],
)
def test_a_cell_returns_when_its_names_are_usable_and_its_lease_is_gone(seen: RunView, usable: bool):
    assert is_usable(seen) is usable


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (view("submitted"), "queued for 1 simulated GPU"),
        (
            view("queued", gpus=2, position=3, reason="1 of 2 free"),
            "queued for 2 simulated GPUs · place 3 · 1 of 2 free",
        ),
        (view("starting", hosts=["a"]), "starting · 1 simulated GPU"),
        (
            view("running", hosts=["a", "b"], gpu_ids=["0", "3"], gpus=2),
            "running on a, b · 2 simulated GPUs · GPU 0, 3",
        ),
        (view("running", hosts=["a"], gpus=0), "running on a · no GPU"),
        (view("releasing", hosts=["a"]), "releasing on a · 1 simulated GPU"),
        (
            view("queued", gpus=0, position=1, reason="needs 16 CPUs, 4 free"),
            "queued for CPU cores · place 1 · needs 16 CPUs, 4 free",
        ),
        (view("persisting", gone_at=1.0, gpus=0), "persisting · CPU cores free again · writing the results …"),
        (view("persisting", gone_at=1.0), "persisting · 1 simulated GPU free again · writing the results …"),
    ],
)
def test_states_in_words(seen: RunView, words: str):
    assert describe_run(seen) == words
