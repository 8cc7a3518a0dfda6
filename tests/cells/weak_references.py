# ruff: noqa: E501 - a cell is one string
"""Weak references, and what ends while a cell runs: `__del__` runs once."""

from __future__ import annotations

IMPORTS = "import weakref\nimport numpy as np\nclass A:\n    def __init__(self, n=0): self.n = n\nclass Ended(A):\n    def __del__(self): log.append(self.n)\nlog = []\ndef gone(_): log.append('gone')\n"
ROWS = {
    "both by name": ("a = A(); r = weakref.ref(a)", "r().n = 5; x = r() is a", "x, r() is a, a.n"),
    "with a callback": (
        "a = A(); r, p = weakref.ref(a, gone), weakref.proxy(a, gone); box = [r, p]",
        "a.n += 1; box.append(p.n); s = weakref.ref(a, gone)",
        "box[0]() is a, box[0] is r, r.__callback__ is not None, box[1] is p, p.n, box[2], s() is a, s is r, log",
        "box.clear(); del r, p, s",
    ),
    "a method": (
        "class B(A):\n    def get(self): return self.n\nb = B(1); m = weakref.WeakMethod(b.get, gone)",
        "x = m()(); b.n = 2; k = weakref.WeakMethod(b.get)",
        "x, m()(), m().__self__ is b, k() == m(), log",
        "del m",
    ),
    "of an array that has another shape": (
        "a = np.arange(6); box = [weakref.ref(a, gone)]",
        "a.shape = (2, 3)",
        "box[0]() is a, box[0].__callback__ is not None, log",
        "box.clear()",
    ),
    "a target whose name is bound anew": (
        "a, b = A(), A(); r = weakref.ref(a); w = weakref.WeakValueDictionary(k=a); s = weakref.WeakSet([b])",
        "a = A(5); b = None; x = r(), [*w], len(s); w['new'] = a",
        "x, r(), [*w], w['new'] is a, len(s)",
    ),
    "a target whose name is perhaps bound anew": (
        "a = A(); r = weakref.ref(a)",
        "if log: a = A(5)\nx = r() is a",
        "x, r() is a",
    ),
    "a proxy of what the cell deletes": (
        "a = A(1); p = weakref.proxy(a)",
        "del a\ntry: x = p.n\nexcept ReferenceError: x = 'gone'",
        "x",
    ),
    "an element of a list that ends": (
        "items = [Ended(1), Ended(2), Ended(3)]; kept = items[1]",
        "items[0].n = 7; del items[:2]; x = list(log)",
        "x, log, len(items), kept.n, type(kept) is Ended",
        "items.clear(); del kept",
    ),
    "values of a dict that end": (
        "class Lines(list):\n    def __del__(self): log.append(list(self))\n"
        "class Job:\n    def __init__(self, part): self.part = part\nd = {'x': Ended(1), 'y': Lines([2]), 'z': Job(Ended(3))}",
        "d.pop('x'); del d['y']; d['z'] = 0; x = list(log)",
        "x, log, d",
    ),
    "objects that a class counts": (
        "class Counted:\n    live = 0\n    def __init__(self): Counted.live += 1\n    def __del__(self): Counted.live -= 1\nitems = [Counted(), Counted()]",
        "items.pop(); x = Counted.live",
        "x, Counted.live",
        "items.clear()",
    ),
}
