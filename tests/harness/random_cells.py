# ruff: noqa: E501 - lines of cells
"""Random notebooks: cells of a few lines over a few names, which alias, change, drop and bind anew what they hold."""

from __future__ import annotations

import random
from typing import NamedTuple

NAMES = tuple("abcdef")

_IMPORTS = """
import collections, copy, functools, random, types
import numpy as np, pandas as pd, torch
from sklearn.linear_model import LinearRegression
from torch import nn
torch.manual_seed(0); np.random.seed(0); random.seed(0)
class Thing:
    total = []
    def __init__(self, **parts): self.log = []; vars(self).update(parts)
    def hit(self): self.log.append(len(Thing.total))
def adder(q):
    def add(v=None): q.append(v); return len(q)
    return add
def counter():
    n = 0
    def step(): nonlocal n; n += 1; return n
    return step
"""
#: ``picture()``: what the names hold, which of it is one object, and which arrays share memory
_PICTURE = """
def picture():
    seen, arrays = {}, []
    def one(v):
        if isinstance(v, (int, float, str, bool, type(None))):
            return repr(v)
        if isinstance(v, tuple):
            return "(" + ", ".join(map(one, v)) + ")"
        if id(v) in seen:
            return f"#{seen[id(v)][0]}"
        seen[id(v)] = len(seen), v
        return f"#{seen[id(v)][0]} {type(v).__name__} " + parts(v)
    def parts(v):
        if isinstance(v, (np.ndarray, torch.Tensor)):
            arrays.append((seen[id(v)][0], v if isinstance(v, np.ndarray) else v.detach().numpy()))
            return repr(np.round(arrays[-1][1], 5).tolist()) + one(getattr(v, "requires_grad", None))
        if isinstance(v, (pd.DataFrame, pd.Series)):
            return repr(v.to_dict()) + repr(list(v.index))
        if isinstance(v, nn.Module):
            return one(dict(v.named_parameters(remove_duplicate=False))) + one([p.grad for p in v.parameters()]) + one(dict(v.named_children())) + str(v.training)
        if isinstance(v, torch.optim.Optimizer):
            return one([(g["params"], g["lr"]) for g in v.param_groups]) + one(list(v.state.values()))
        if isinstance(v, random.Random):
            return str(hash(v.getstate()))
        if isinstance(v, np.random.Generator):
            return repr(v.bit_generator.state)
        if isinstance(v, torch.Generator):
            return repr(v.get_state().sum().item())
        if isinstance(v, types.FunctionType):
            return v.__name__ + one([cell.cell_contents for cell in v.__closure__ or ()])
        if isinstance(v, types.MethodType):
            return v.__name__ + one(v.__self__)
        if isinstance(v, functools.partial):
            return one(v.func) + one(v.args)
        if isinstance(v, (list, collections.deque)):
            return "[" + ", ".join(map(one, v)) + "]"
        if isinstance(v, dict):
            return "{" + ", ".join(f"{key!r}: {one(part)}" for key, part in v.items()) + "}"
        if isinstance(v, set):
            return repr(sorted(v, key=repr))
        return one(vars(v)) if isinstance(v, (Thing, LinearRegression)) else ""
    lines = [f"{name} = " + (one(globals()[name]) if name in globals() else "-") for name in NAMES]
    lines.append("total = " + one(Thing.total))
    shared = [(a, b) for at, (a, x) in enumerate(arrays) for b, y in arrays[at + 1 :] if np.shares_memory(x, y)]
    return "\\n".join([*lines, f"shared memory: {shared}"])
"""
SETUP = f"{_IMPORTS}{_PICTURE}NAMES = {NAMES!r}\n"


class _Lines(NamedTuple):
    """Lines that make something, that link what is there, and that change or drop it; x, y, z are names."""

    making: list[str]
    linking: list[str]
    changing: list[str]


_TABLES = _Lines(
    [
        "X = [1, 2]",
        "X = {'k': 1}",
        "X = np.arange(4.)",
        "X = np.arange(6.).reshape(2, 3)",
        "X = pd.Series([1., 2., 3.])",
        "X = pd.DataFrame({'u': [1., 2., 3.], 'v': [4., 5., 6.], 'w': ['p', 'q', 'r']})",
        "X = pd.DataFrame({'u': [1, 2], 'w': ['p', 'q']})",
        "X = torch.arange(4.)",
        "X = Thing(p=1, q=[])",
        "X = collections.deque([1, 2])",
        "X = {1, 2}",
        "X = torch.ones(1, 1)",
    ],
    [
        "X = Y",
        "X = [Y]",
        "X = {'k': Y}",
        "X = Thing(p=Y)",
        "X = (Y, Z)",
        "X = [Y, Z]",
        "X = Y[1:]",
        "X = Y['u']",
        "X = Y.p",
        "X = Y['k']",
        "X = Y[0]",
        "X = Y.reshape(-1)",
        "X = Y.T",
        "X = Y.to_numpy()",
        "X = Y.copy()",
        "X = collections.deque([Y])",
        "X = Y[['u']]",
        "X = Y.view(-1)",
    ],
    [
        "X.append(3)",
        "X.append(Y)",
        "X[0] = 9",
        "X['k'] = 5",
        "X['k'] = Y",
        "X += 1",
        "X *= 2",
        "X[:] = 0",
        "X['u'] = X['u'] * 2",
        "X['n'] = 1",
        "X.iloc[0, 0] = 7",
        "X.iloc[0] = 7",
        "X.loc[0, 'u'] = 8",
        "X.sort_values('u', ascending=False, inplace=True)",
        "del X['u']",
        "X.add_(1)",
        "X.p = Y",
        "X.p = 2",
        "X.q.append(1)",
        "X.pop()",
        "X = []",
        "X = X + 1",
        "X = X[:1]",
        "del X",
        "X, Y = Y, X",
        "X.add(5)",
        "X.zero_()",
        "X[0].append(4)",
        "X[0] += 1",
        "X['k'].append(4)",
        "X['k'] += 1",
        "X.p += 1",
        "X.p.append(1)",
        "X.pop().append(5)",
        "X.popleft()",
        "X.clear()",
        "X[0]['u'] = 3.",
        "X['k']['n'] = 2",
        "X.p['u'] = 0.",
        "X.insert(0, Y)",
        "X[0] = Y",
        "X.set_index('w', inplace=True)",
        "X['w'] = X['w'].str.upper()",
        "X.fill_(3)",
        "X.sort()",
        "X.rename(columns={'u': 'U'}, inplace=True)",
        "print(X)",
        "X = X.copy()",
    ],
)
_MODELS = _Lines(
    [
        "X = [1, 2]",
        "X = {'k': 1}",
        "X = np.arange(4.)",
        "X = nn.Linear(1, 1)",
        "X = nn.Linear(1, 1)",
        "X = nn.Sequential(nn.Linear(1, 1), nn.ReLU())",
        "X = random.Random(1)",
        "X = np.random.default_rng(1)",
        "X = counter()",
        "X = adder([])",
        "X = Thing()",
        "X = nn.Parameter(torch.ones(2))",
        "X = LinearRegression()",
        "X = torch.Generator()",
    ],
    [
        "X = Y",
        "X = [Y]",
        "X = {'k': Y}",
        "X = Thing(p=Y)",
        "X = (Y, Z)",
        "X = torch.optim.SGD(Y.parameters(), lr=.5, momentum=.9)",
        "X = torch.optim.Adam(Y.parameters())",
        "X = torch.optim.SGD([Y], lr=.1)",
        "X = adder(Y)",
        "X = functools.partial(Y, 1)",
        "X = Y.hit",
        "X = nn.Sequential(Y, Z)",
        "X = Y.weight",
        "X = list(Y.parameters())",
        "X = Y.state_dict()",
        "X = copy.deepcopy(Y)",
        "X = Y['k']",
        "X = Y[0]",
        "X = Y.log",
        "X = Y.p",
        "X = Thing.total",
        "X = Y.detach()",
        "X = list(Y.children())",
    ],
    [
        "X.append(Y)",
        "X()",
        "X(Y)",
        "X.hit()",
        "X.random()",
        "X.normal()",
        "X.step()",
        "X(torch.ones(1, 1)).sum().backward()",
        "X.zero_grad()",
        "nn.init.ones_(X.weight)",
        "X.weight.data.mul_(2)",
        "X.weight = nn.Parameter(torch.ones(1, 1))",
        "X.weight.requires_grad_(False)",
        "X.eval()",
        "X.load_state_dict(Y)",
        "X.p = Y",
        "Thing.total.append(2)",
        "Thing.total = [1]",
        "X[0] = Y",
        "X['k'] = Y",
        "X.pop()",
        "X.pop().hit()",
        "X[0].hit()",
        "del X",
        "X, Y = Y, X",
        "X = X[:1]",
        "X.fit([[0.], [1.]], [0., 1.])",
        "X.add_module('extra', Y)",
        "X.param_groups[0]['lr'] = .25",
        "X.p.hit()",
        "X['k']()",
        "X[0]()",
        "torch.manual_seed(3); X = torch.rand(2)",
        "X.log = []",
        "X.manual_seed(5)",
        "X.append(Y.pop())",
        "X.extend(Y)",
        "X[0].append(3)",
        "X.train()",
        "X = None",
        "X.requires_grad_(False)",
        "X.insert(0, nn.Linear(1, 1))",
    ],
)
VOCABULARIES = {"tables": _TABLES, "models": _MODELS}


def random_notebook(vocabulary: str, seed: int) -> list[tuple[bool, str]]:
    """(is it a GPU cell?, its source) of each cell. A line that fails is passed over by the cell itself."""
    lines, chance = VOCABULARIES[vocabulary], random.Random(seed)

    def cell(pools: list[list[str]], count: int) -> str:
        text = ""
        for _ in range(count):
            line = chance.choice(chance.choice(pools))
            for letter in "XYZ":
                line = line.replace(letter, chance.choice(NAMES))
            text += f"try:\n    {line}\nexcept Exception:\n    pass\n"
        return text

    first = cell([lines.making, lines.linking], 10)
    rest = [cell([lines.changing, lines.changing, lines.linking, lines.making], 4) for _ in range(chance.randint(2, 4))]
    return [(chance.random() < 0.6, source) for source in (first, *rest)]
