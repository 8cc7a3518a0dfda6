# ruff: noqa: E501 - a cell is one string
"""Objects that a cell changes and then drops (pops, rebinds, deletes): changed for whoever else holds them."""

from __future__ import annotations

IMPORTS = "import collections, contextlib, random, types\nimport numpy as np, pandas as pd, torch\n"
JOBS = "class Job:\n    def __init__(self, n):\n        self.n, self.done, self.log, self.part = n, False, [], types.SimpleNamespace(v=0)\njobs = [Job(1), Job(2)]; "
#: parts that a cell takes out of its inputs
PARTS = {
    "a work list": (
        JOBS + "todo = collections.deque(jobs)",
        "while todo: todo.popleft().done = True",
        "[j.done for j in jobs], len(todo)",
    ),
    "a part of a part": (
        JOBS + "todo = list(jobs)",
        "while todo:\n    j = todo.pop(); j.log.append(j.n); j.part.v = 7",
        "[(j.log, j.part.v) for j in jobs]",
    ),
    "moved to another list": (
        JOBS + "todo = list(jobs)",
        "done = []\nwhile todo:\n    j = todo.pop(); j.done = True; done.append(j)",
        "[j.done for j in jobs], [d is j for d, j in zip(done, jobs[::-1])]",
    ),
    "nothing changed": (
        JOBS + "todo = list(jobs)",
        "n = len([todo.pop() for _ in range(2)])",
        "[j.done for j in jobs], n",
    ),
    "a list": ("inner = [1]; box = [inner]", "box.pop().append(2)", "inner, box"),
    "a dict": ("inner = {'x': 1}; d = {'a': inner}", "d.pop('a')['x'] = 2", "inner, d"),
    "an attribute": ("inner = [1]; a = types.SimpleNamespace(l=inner)", "a.l.append(2); a.l = [5]", "inner, a.l"),
    "a callback": ("log = []; es = contextlib.ExitStack(); es.callback(log.append, 1)", "es.close()", "log"),
    "an array": ("x = np.zeros(3); box = [x]", "w = box.pop(); w += 1", "x, box, w is x"),
    "a tensor": ("t = torch.zeros(2); box = [t]", "box.pop().add_(1)", "t.tolist()"),
    "a frame": ("df = pd.DataFrame({'a': [1]}); box = [df]", "box.pop()['b'] = 2", "list(df.columns)"),
    "a model": (
        "m = torch.nn.Linear(2, 2); box = {'m': m}",
        "torch.nn.init.zeros_(box.pop('m').weight)",
        "m.weight.tolist()",
    ),
    "generators": (
        "r = random.Random(1); g = np.random.default_rng(1); box = [r, g]",
        "box.pop().normal(); box.pop().random()",
        "r.random(), g.normal()",
    ),
    "a generator whose seed is held": (
        "g = np.random.default_rng(1); seed = g.bit_generator.seed_seq; box = {'g': g, 's': seed}",
        "box.pop('s').spawn(1); box.pop('g').normal()",
        "g.normal(), box",
    ),
    "a generator of a class": (
        "class A: total = []\ng = np.random.default_rng(1); A.total = g",
        "d = {'k': A.total}; A.total = None; d.pop('k').normal()",
        "g.normal(), A.total, d",
    ),
}
#: inputs whose names are bound anew
NAMES = {
    "all of a name": (
        JOBS + "todo = list(jobs)",
        "for j in todo: j.done = True\ntodo = None",
        "[j.done for j in jobs], todo",
    ),
    "a list": ("x = [1]; y = x", "x.append(2); x = []", "x, y"),
    "deleted": ("x = [1]; y = x", "x.append(2); del x", "y"),
    "in a function": ("x = [1]; y = x\ndef f():\n    global x\n    x.append(2)\n    x = []", "f()", "x, y"),
    "to a tuple": ("x = [3, 1]; y = x", "x.sort(); x = tuple(x)", "x, y"),
    "two exchanged": ("x = [1]; y = [2]; z = [x, y]", "x.append(3); x, y = y, x", "x, y, z, z[0] is y"),
    "in a loop": (
        "acc = []; out = {'acc': acc}",
        "for i in range(3):\n    acc.append(i)\n    acc = acc[:]",
        "out, acc",
    ),
    "a set": ("c = {1}; d = c", "c.add(2); c = frozenset(c)", "c, d"),
    "an object": ("a = types.SimpleNamespace(v=1); b = [a]", "a.v = 2; a = types.SimpleNamespace(v=3)", "a.v, b[0].v"),
    "a frame": (
        "raw = df = pd.DataFrame({'a': [3, 1]})",
        "df['b'] = 1\ndf = df[df.a > 1]",
        "raw.to_dict(), df.to_dict()",
    ),
    "an array": ("a = np.arange(4.); b = a", "a *= 2; a = a[:2]", "a.tolist(), b.tolist(), np.shares_memory(a, b)"),
    "a view": ("b = np.arange(4.); a = b[1:]", "a *= 2; a = a + 1", "a.tolist(), b.tolist()"),
    "a tensor": ("a = torch.arange(4.); b = [a]", "a.mul_(2); a = a + 1", "a.tolist(), b[0].tolist()"),
    "a wrapped model": (
        "m = torch.nn.Linear(1, 1); n = m",
        "torch.nn.init.zeros_(m.weight); m = torch.nn.Sequential(m)",
        "n.weight.tolist(), m[0] is n",
    ),
    "an optimizer's model": (
        "m = torch.nn.Linear(1, 1); torch.nn.init.ones_(m.weight); s = torch.optim.SGD(m.parameters(), .5)",
        "m(torch.ones(1, 1)).sum().backward(); s.step(); m = torch.nn.Linear(2, 1)",
        "s.param_groups[0]['params'][0].item()",
    ),
    "not changed": ("x = [1]; y = x", "z = len(x); x = []", "x, y, z"),
}

_FILE = """
import os, tempfile
class File:
    def __init__(self): self.path = tempfile.mkstemp()[1]; self.n, self.log = 0, []
    def __del__(self): os.path.exists(self.path) and os.remove(self.path)
class Slotted(File): __slots__ = ('slot',)
class Lines(list):
    def __init__(self): self.path = tempfile.mkstemp()[1]
    __del__ = File.__del__
"""
#: objects that let something go when they end
ENDS = {
    "changed": (_FILE + "f = File(); box = [f]", "f.n += 1", "f.n, box[0] is f, os.path.exists(f.path)"),
    "what it holds changed": (_FILE + "f = File(); box = [f]", "f.log.append(1)", "f.log, os.path.exists(f.path)"),
    "in what changed": (_FILE + "f = File(); box = [f]", "box.append(1)", "box[0] is f, os.path.exists(f.path)"),
    "with slots": (_FILE + "f = Slotted(); f.slot = 0", "f.slot = 1", "f.slot, os.path.exists(f.path)"),
    "with slots alone": (
        _FILE
        + "ended = []\nclass Bare:\n    __slots__ = ('n',)\n    def __init__(self): self.n = 0\n    def __setattr__(self, name, value): object.__setattr__(self, name, value)\n"
        "    def __init_subclass__(cls): ended.append('child')\n    def __del__(self): ended.append(self.n)\nf = Bare(); box = [f]",
        "f.n = 5",
        "f.n, box[0] is f, ended, type(f) is Bare",
    ),
    "a list": (_FILE + "f = Lines()", "f.append(1)", "list(f), os.path.exists(f.path)"),
    "deleted": (_FILE + "f = File(); path = f.path", "del f", "os.path.exists(path)"),
}
