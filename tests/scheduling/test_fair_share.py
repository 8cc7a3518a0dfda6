"""Fair shares: guarantees first, the rest by weight, filled by demand, in whole GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.scheduling.queues.fair_share import Claim, divide, fair_shares
from jupyter_gpu_release.scheduling.queues.tree import Queue, QueueTree
from jupyter_gpu_release.scheduling.workload import GPU

claims = st.lists(
    st.builds(
        lambda demand, guaranteed, weight, priority: (demand * GPU, min(demand, guaranteed) * GPU, weight, priority),
        st.integers(0, 20),
        st.integers(0, 20),
        st.integers(0, 3),
        st.integers(0, 1),
    ),
    max_size=6,
)


@given(claims, st.integers(0, 60))
def test_nothing_is_left_that_somebody_wants_and_nobody_has_more(
    parts: list[tuple[int, int, int, int]], gpus: int
) -> None:
    siblings = [Claim(str(index), *part) for index, part in enumerate(parts)]
    given_to = divide(siblings, gpus * GPU)
    assert all(claim.guaranteed <= given_to[claim.name] <= claim.demand for claim in siblings)
    guaranteed = sum(claim.guaranteed for claim in siblings)
    total = sum(given_to.values())
    assert total <= max(gpus * GPU, guaranteed)
    hungry = any(claim.weight and given_to[claim.name] < claim.demand for claim in siblings)
    assert not hungry or total >= gpus * GPU
    assert all(share % GPU == 0 for share in given_to.values())


def test_parents_divide_what_they_get() -> None:
    tree = QueueTree(
        [Queue("a", guaranteed=2 * GPU), Queue("b", weight=2), Queue("a1", "a", weight=3), Queue("a2", "a")]
    )
    wants = {"a": 16 * GPU, "b": 16 * GPU, "a1": 8 * GPU, "a2": 8 * GPU}
    # 2 guaranteed, of the 9 others 3 and 6; of the 5 of `a` 3.75 and 1.25
    assert fair_shares(tree, wants, 11 * GPU) == {"a": 5 * GPU, "b": 6 * GPU, "a1": 4 * GPU, "a2": 1 * GPU}
    few = QueueTree([Queue("a", weight=11), Queue("b", weight=4)])  # 2.2 and 0.8
    assert fair_shares(few, {"a": 9 * GPU, "b": 9 * GPU}, 3 * GPU) == {"a": 2 * GPU, "b": 1 * GPU}


def test_the_rest_goes_to_siblings_of_the_highest_priority_first() -> None:
    tree = QueueTree([Queue("first", priority=1), Queue("second", weight=9)])
    wants = {"first": 6 * GPU, "second": 6 * GPU}
    assert fair_shares(tree, wants, 8 * GPU) == {"first": 6 * GPU, "second": 2 * GPU}


@pytest.mark.parametrize("queues", [[Queue("a"), Queue("a")], [Queue("a", "b")], [Queue("a", "a")]])
def test_a_tree_that_is_none_is_refused(queues: list[Queue]) -> None:
    with pytest.raises(OptionError):
        QueueTree(queues)
