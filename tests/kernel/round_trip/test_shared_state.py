# ruff: noqa: E501 - a cell is one string
"""Generators, hooks and classes of kinds that pickle forgets, shares or refuses: as after a plain cell."""

from __future__ import annotations

import pytest
from round_trip import Notebook

_IMPORTS = "import typing\nimport numpy as np\nimport torch\n"
#: cell, GPU cell, expression that tells what is so afterwards
_CASES = {
    "numpy's generators that something else holds": (
        "from sklearn.model_selection import KFold\nrs = np.random.RandomState(0)\nfolds = KFold(3, shuffle=True, random_state=rs)\n"
        "g = np.random.default_rng(3); bits = g.bit_generator; same = [g]; first = g.spawn(1)",
        "list(folds.split(np.arange(9))); g.random()",
        "folds.random_state is rs, rs.rand(), g.bit_generator is bits, same[0] is g, g.random(), g.spawn(1)[0].random()",
    ),
    "hooks on gradients": (
        "seen = []\nw = torch.ones(2, requires_grad=True); w.register_hook(lambda g: seen.append(g.tolist()))\n"
        "net = torch.nn.Linear(1, 1); net.weight.register_hook(lambda g: g * 0 + 7)",
        "(w * 2).sum().backward(); net(torch.ones(1, 1)).sum().backward(); net.bias.register_hook(lambda g: g * 0 + 5)",
        "seen, net.weight.grad.item(), (net.zero_grad(), net(torch.ones(1, 1)).sum().backward(), net.bias.grad.item(), net.weight.grad.item())",
    ),
    "typed dicts": (
        "class State(typing.TypedDict, total=False):\n    a: int\nPair = typing.TypedDict('Pair', {'x': int})\nclass More(State):\n    b: str",
        "s = More(a=1, b='b'); p: Pair = Pair(x=2)\nclass New(State):\n    c: int",
        "s, p, State.__total__, sorted(More.__annotations__), More.__optional_keys__ == {'a'}, sorted(New.__annotations__), type(New) is type(State)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", _CASES)
def test_it_is_as_after_a_plain_cell(nb: Notebook, what: str) -> None:
    nb.expect_as_plain(_IMPORTS, *_CASES[what])
