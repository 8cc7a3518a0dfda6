# ruff: noqa: E501 - a cell is one string
"""Methods, functions in classes and classes in classes remember: by defaults, attributes, variables around them."""

from __future__ import annotations

IMPORTS = "import dataclasses, enum, functools\n"
_COUNTER = "def make_counter():\n    n = 0\n    def count(*_):\n        nonlocal n\n        n += 1\n        return n\n    return count\n"
_COUNTED = "def counted(f):\n    @functools.wraps(f)\n    def w(*a):\n        w.calls += 1\n        return f(*a)\n    w.calls = 0\n    return w\n"
ROWS = {
    "defaults of methods": (
        "class Fib:\n    def get(self, n, memo={}):\n        memo[n] = n * n\n        return memo[n]\n"
        "    @staticmethod\n    def s(x, seen=[]):\n        seen.append(x); return len(seen)\n"
        "    @classmethod\n    def c(cls, x, *, seen={}):\n        seen[x] = 1; return len(seen)\n"
        "    @property\n    def p(self, seen=[]):\n        seen.append(1); return len(seen)\nf = Fib(); Fib.s(0); Fib.c(0); f.p; memo = Fib.get.__defaults__[0]",
        "r = f.get(10), Fib.s(1), Fib.c(1), f.p",
        "r, memo, Fib.get.__defaults__[0] is memo, Fib.s(2), Fib.c(2), f.p, f.get(3), memo",
    ),
    "a list that all instances share by a default": (
        "class Item:\n    def __init__(self, tags=[]):\n        tags.append(1); self.tags = tags\na = Item()",
        "b = Item()",
        "b.tags, a.tags is b.tags, Item().tags is a.tags, a.tags",
    ),
    "a default of a subclass of dict": (
        "class Registry(dict):\n    def add(self, name, known={}):\n        known[name] = self; self[name] = len(known)\nr = Registry(); r.add('a')",
        "r.add('b'); q = Registry(); q.add('c')",
        "dict(r), dict(q), sorted(Registry.add.__defaults__[0]), Registry.add.__defaults__[0]['c'] is q, Registry.add.__defaults__[0]['a'] is r",
    ),
    "attributes of methods": (
        "class M:\n    def run(self): M.run.calls += 1\n    run.calls = 0\n    def s(): pass\n    s.seen = []\n    s = staticmethod(s)\nm = M(); m.run(); run = M.run; seen = M.s.seen",
        "m.run(); m.run(); M.s.seen.append(1)",
        "M.run.calls, M.run is run, run.calls, M.s.seen, seen is M.s.seen",
    ),
    "methods that a decorator counts": (
        f"{_COUNTED}class K:\n    @counted\n    def m(self): return 1\n    @staticmethod\n    @counted\n    def s(): return 2\n"
        "    @property\n    @counted\n    def p(self): return 3\nk = K(); k.m(); K.s(); k.p; bound = k.m; plain = K.m",
        "k.m(); bound(); K.s(); k.p",
        "K.m.calls, bound.calls, plain is K.m, bound.__func__ is K.m, K.s.calls, K.p.fget.calls, k.m(), bound.calls",
    ),
    "variables around methods": (
        "def made():\n    total = 0\n    class A:\n        def add(self, n):\n            nonlocal total\n            total += n\n            return total\n"
        "        def look(self): return total\n    return A\nA = made(); a = A(); a.add(1)",
        "a.add(2); A().add(3)",
        "a.add(1), a.look(), A().look()",
    ),
    "a decorator's store": (
        "ran = []\ndef stored(f):\n    store = {}\n    @functools.wraps(f)\n    def w(self, n):\n        if n not in store: store[n] = f(self, n)\n        return store[n]\n    return w\n"
        "class N:\n    @stored\n    def sq(self, n):\n        ran.append(n); return n * n\nn = N(); n.sq(1)",
        "n.sq(2); n.sq(1)",
        "n.sq(2), n.sq(1), ran",
    ),
    "a counter as a static method": (
        f"{_COUNTER}class H:\n    inc = staticmethod(make_counter())\n    cb = staticmethod(lambda x, a=[]: (a.append(x), len(a))[1])\nh = H(); h.inc(); inc = H.inc; H.cb(0)",
        "h.inc(); h.cb(1)",
        "H.inc(), inc(), h.inc(), inc is H.inc, H.cb(2)",
    ),
    "a factory of a dataclass": (
        f"{_COUNTER}@dataclasses.dataclass\nclass R:\n    a: int = dataclasses.field(default_factory=make_counter())\nr = R()",
        "s = R(); t = R()",
        "r, s, t, R(), R.__dataclass_fields__['a'].default_factory()",
    ),
    "a counter as an attribute of an object": (
        f"{_COUNTER}class I: pass\ni = I(); i.inc = make_counter(); f = i.inc",
        "i.inc()",
        "f is i.inc, f(), i.inc()",
    ),
    "classes in classes": (
        "class Outer:\n    class Meta:\n        n = 0\n        log = []\n        class Deep:\n            seen = {}\n    def go(self):\n        self.Meta.n += 1; self.Meta.log.append(1); self.Meta.Deep.seen['x'] = 1; self.Meta.new = 5\no = Outer(); log = Outer.Meta.log; Meta = Outer.Meta",
        "o.go()",
        "Outer.Meta.n, log, Outer.Meta.new, Outer.Meta is Meta, Outer.Meta.log is log, Outer.Meta.Deep.seen",
    ),
    "methods of a list and a dict in a class": (
        "class Only:\n    seen = []\n    add = seen.append\n    keep = {}.setdefault\n",
        "Only.add(7); Only.keep('k', 1)",
        "Only.seen, Only.add.__self__ is Only.seen, Only.keep.__self__",
    ),
    "methods of enums": (
        "class E(enum.Enum):\n    A = 1\n    def see(self, seen=[]):\n        seen.append(self); return len(seen)\nE.A.see()",
        "E.A.see()",
        "E.A.see(), E.see.__defaults__[0][0] is E.A",
    ),
    "what is set at a method": (
        "class A:\n    def f(self, x=1): return x\n    def g(self): return 1\ndef other(self): return 2\nf = A.f",
        "A.f.__doc__ = 'said'; A.f.__annotations__ = {'x': int}; A.f.__defaults__ = (5,); A.g.__code__ = other.__code__",
        "A.f is f, f.__doc__, f.__annotations__, A().f(), A().g()",
    ),
    "super in a method, and a class that its methods name": (
        "class P:\n    def go(self, log=[]):\n        log.append(type(self).__name__); return len(log)\nclass Q(P):\n    def go(self):\n        return super().go() + len(__class__.__name__)\nq = Q(); q.go()",
        "r = q.go(); p = P().go()",
        "r, p, q.go(), Q.go.__closure__[0].cell_contents is Q",
    ),
}
