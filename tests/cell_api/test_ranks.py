"""``gpu_release.ranks`` where there is no gang: a script, a notebook, a cell of one process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator

import pytest

import jupyter_gpu_release as gpu_release
from jupyter_gpu_release.cell_api.ranks import RankContext, set_rank_context
from jupyter_gpu_release.errors import OptionError, RankError


@pytest.fixture
def alone_again() -> Iterator[None]:
    """Whatever a test says of this process is forgotten."""
    yield
    set_rank_context(RankContext())


def test_alone_it_meets_itself_and_travels_by_reference() -> None:
    ranks = gpu_release.ranks
    assert (ranks.rank, ranks.size, ranks.local_rank, ranks.node, ranks.nodes, ranks.role) == (0, 1, 0, 0, 1, "rank")
    ranks.barrier(timeout=0)
    with pytest.raises(OptionError, match="timeout soon"):
        ranks.barrier(timeout="soon")
    ranks.initialize_jax()  # jax is not even looked for
    value = object()
    assert ranks.broadcast(value) is value
    with pytest.raises(RankError, match="the ranks are 0 to 0"):
        ranks.broadcast(value, src=1)
    assert pickle.loads(pickle.dumps(ranks)) is ranks


@pytest.mark.usefixtures("alone_again")
@pytest.mark.parametrize(
    ("place", "said"),
    [
        (RankContext(size=2, role="ps"), r"a ps process does not take part in barrier\(\)"),
        (RankContext(size=2, pid=os.getppid()), r"barrier\(\) was called in a process that the cell started"),
    ],
)
def test_who_is_no_rank_meets_nobody(place: RankContext, said: str) -> None:
    set_rank_context(place)
    with pytest.raises(RankError, match=said):
        gpu_release.ranks.barrier()
