# ruff: noqa: E501 - a cell is one string
"""Entries of cached functions travel, and attributes of enums' members and of generators of random numbers."""

from __future__ import annotations

IMPORTS = "import dataclasses, enum, functools, random, sqlite3\nimport torch\n"
ROWS = {
    "globals of a class's own": (
        "ns = {}; exec('n = 0\\nclass K:\\n    def f(s):\\n        global n\\n        n += 1\\n        return n', ns); K = ns['K']; k = K()",
        "x = k.f(), K().f()",
        "x, ns['n'], k.f(), ns['K'] is K",
    ),
    "globals of its own": (
        "ns = {}; exec('n = 0\\nlog = []\\ndef f():\\n    global n\\n    n += 1\\n    log.append(n)\\n    return n', ns); f = ns['f']",
        "x = f(); f()",
        "x, ns['n'], ns['log'], f(), ns['f'] is f, f.__globals__ is ns",
    ),
    "globals of its own, named and changed": (
        "ns = {}; exec('n = 0\\nlog = []\\ndef f():\\n    global n\\n    n += 1\\n    log.append(n)\\n    return n', ns); f = ns['f']",
        "x = f(); ns['n'] += 5; f()",
        "x, ns['n'], ns['log'], f(), ns['f'] is f, f.__globals__ is ns",
    ),
    "globals of its own, without a name": (
        "ns = {}; exec('n = 0\\nlog = []\\ndef f():\\n    global n\\n    n += 1\\n    log.append(n)\\n    return n', ns); f = ns['f']; del ns",
        "x = f(); f()",
        "x, f(), f.__globals__['n'], f.__globals__['log']",
    ),
    "globals of its own, shared": (
        "ns = {}; exec('n = 0\\nlog = []\\ndef f():\\n    global n\\n    n += 1\\n    log.append(n)\\n    return n', ns); exec('def g(): return n, log', ns); f, g = ns['f'], ns['g']",
        "x = f()",
        "x, g(), f(), g(), f.__globals__ is g.__globals__",
    ),
    "globals of its own, made in the cell": (
        "a = 1",
        "ns = {}; exec('n = 0\\nlog = []\\ndef f():\\n    global n\\n    n += 1\\n    log.append(n)\\n    return n', ns); f = ns['f']; f()",
        "ns['n'], f(), ns['n'], f.__globals__ is ns",
    ),
    "globals of its own, a new one": (
        "ns = {}; exec('def f(v):\\n    global late\\n    late = v', ns); f = ns['f']",
        "f(3)",
        "ns['late']",
    ),
    "arguments of all kinds": (
        "@functools.lru_cache(maxsize=8, typed=True)\ndef f(*a, **k): return [a, k]\nf(1); f(1.0); f(1, x=2); f(y=(1, 2)); f((1, 2))",
        "f(1.0); f(2, x=3)",
        "f(1), f(1.0), f(1, x=2), f(2, x=3), f(y=(1, 2)), f((1, 2)), f.cache_info()",
    ),
    "the order in which entries go": (
        "@functools.lru_cache(maxsize=3)\ndef f(x): return [x]\nf(1); f(2); f(3); kept = f(1)",
        "f(4)",
        "f(1) is kept, f(3), f.cache_info(), f(2), f.cache_info()",
    ),
    "the one model": (
        "@functools.cache\ndef model():\n    torch.manual_seed(0)\n    return torch.nn.Linear(2, 2)\nnet = model()",
        "with torch.no_grad():\n    model().weight.fill_(3)\n",
        "net is model(), net.weight.tolist(), model.cache_info()",
    ),
    "methods": (
        "@dataclasses.dataclass(frozen=True)\nclass P:\n    x: int\n    @functools.cache\n    def sq(self): return [self.x]\n"
        "    @staticmethod\n    @functools.cache\n    def s(x): return [x]\n"
        "    @property\n    @functools.lru_cache()\n    def p(self): return [0]\np = P(2); kept = p.sq()",
        "p.sq().append(1); p.s(2); p.p.append(4)",
        "kept, p.sq() is kept, P.sq.cache_info(), P.s.cache_info(), p.p",
    ),
    "closures, and attributes of one's own": (
        "def memo(f):\n    calls = []\n    @functools.cache\n    def inner(x):\n        calls.append(x)\n        return f(x)\n    inner.calls = calls\n    return inner\n"
        "sq = memo(lambda x: x * x)\nsq(2)\nalias = [sq]",
        "sq(3); sq(2); sq.note = 'n'",
        "sq(2), sq.calls, sq.note, sq.cache_info(), alias[0] is sq",
    ),
    "classes, and a cache that was cleared": (
        "@functools.cache\nclass Single:\n    n = 0\none = Single()\n@functools.cache\ndef f(x): return x\nf(1)",
        "Single().n = 5\nf.cache_clear()",
        "one.n, Single() is one, Single.cache_info(), f.cache_info()",
    ),
    "members of enums": (
        "class C(enum.Enum):\n    A = (1, 2)\n    B = (3, 4)\n    def __init__(self, m, r): self.m = m\nC.A.note = 'x'; C.B.gone = 1; c = C.A",
        "C.A.note += 'y'; c.m += 1; C.B.other = [c]; del C.B.gone",
        "C.A.note, C.A.m, C.B.other[0] is C.A is c, hasattr(C.B, 'gone'), C((3, 4)).m",
    ),
    "generators of a class of one's own": (
        "class R(random.Random):\n    __slots__ = ('k',)\n    def __init__(self, seed):\n        super().__init__(seed)\n        self.drawn = 0\n"
        "    def draw(self):\n        self.drawn += 1\n        return self.gauss(0, 1)\nr = R(3); r.k = [2]; kept = r.k; same = r; r.draw(); own = random.SystemRandom()",
        "got = r.draw(); r.k.append(3); own.random();",
        "r.drawn, got, r.draw(), r.random(), r.k is kept, kept, r is same",
    ),
    "names of functions": (
        "def f(x): return x\ndef g(y): return y\nheld = [f]",
        "f.__name__ = 'h'; f.__qualname__ = 'K.h'; f.__module__ = 'elsewhere'; f.__annotations__['x'] = int\nfunctools.update_wrapper(g, f)",
        "f.__name__, f.__qualname__, f.__module__, f.__annotations__, g.__name__, g.__qualname__, g.__wrapped__ is f, held[0] is f, f(3), g(4)",
    ),
    "a class behind a function that wraps it": (
        "def singleton(cls):\n    made = {}\n    @functools.wraps(cls)\n    def get(*a, **k):\n        if cls not in made: made[cls] = cls(*a, **k)\n        return made[cls]\n    return get\n"
        "@singleton\nclass Only:\n    limit = 3\n    def __init__(self): self.n = 0\none = Only()",
        "Only().n += 1; same = Only() is one; Only.note = 'n'",
        "one.n, same, Only() is one, Only.note, Only.limit, sorted(vars(Only)), Only.__wrapped__ is type(one)",
    ),
}
