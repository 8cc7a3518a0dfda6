"""A decision tree of dataclasses."""

# %%
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

# %%
@dataclass
class Leaf:
    label: str


@dataclass
class Node:
    feature: int
    limit: float
    left: Node | Leaf
    right: Node | Leaf

# %%
rows = [(2.7, 1.0, 'a'), (1.3, 3.2, 'b'), (3.6, 0.8, 'a'), (0.9, 2.1, 'b'), (2.2, 2.9, 'c'), (2.9, 3.3, 'c')]


def impurity(rows):
    counts = Counter(row[-1] for row in rows)
    return 1 - sum((count / len(rows)) ** 2 for count in counts.values())


round(impurity(rows), 3)

# %%
def grow(rows):
    if impurity(rows) == 0:
        return Leaf(rows[0][-1])
    splits = []
    for feature in (0, 1):
        for limit in sorted({row[feature] for row in rows})[1:]:
            left = [row for row in rows if row[feature] < limit]
            right = [row for row in rows if row[feature] >= limit]
            cost = (len(left) * impurity(left) + len(right) * impurity(right)) / len(rows)
            splits.append((cost, feature, limit, left, right))
    _, feature, limit, left, right = min(splits, key=lambda split: split[:3])
    return Node(feature, limit, grow(left), grow(right))


tree = grow(rows)
tree

# %%
def predict(tree, row):
    while isinstance(tree, Node):
        tree = tree.left if row[tree.feature] < tree.limit else tree.right
    return tree.label


[predict(tree, row) for row in rows]

# %%
match tree:
    case Node(feature=f, limit=l):
        print('splits', f, 'at', l)
    case Leaf():
        print('a leaf')

# %%
tree.right = Leaf('z')
Node.__annotations__, predict(tree, (9, 9))
