"""``gpu_release.ranks`` where there is no gang: a script, a notebook, a cell of one process."""

from __future__ import annotations

import pickle

import pytest

import jupyter_gpu_release as gpu_release
from jupyter_gpu_release.errors import OptionError, RankError


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
