# ruff: noqa: E501 - a cell is one string
"""Objects of Python and of the notebook's classes: containers, subclasses, modules, weak references, and who else has them."""

from __future__ import annotations

IMPORTS = "import collections, copy, dataclasses, datetime, decimal, enum, fractions, functools, heapq, io, itertools, json, math, operator, os, pathlib, random, re, string, struct, sys, types, typing, weakref, array\n"
ROWS = {
    "str subclass attr": (
        "class S(str): pass\ns = S('a'); s.tag = [1]; d = {s: 1}",
        "s.tag.append(2); u = S('b'); u.tag = s.tag",
        "s, s.tag, u.tag is s.tag, d['a'], next(iter(d)) is s, type(u) is S",
    ),
    "int subclass": (
        "class N(int):\n    def __add__(s, o): return N(int(s) + int(o) + 100)\nn = N(1); l = [n]",
        "m = n + 1; n.extra = 'e'",
        "m, type(m) is N, l[0] is n, l[0].extra",
    ),
    "tuple subclass": (
        "class T(tuple):\n    def __new__(c, *a): return super().__new__(c, a)\nt = T(1, [2]); t.note = []",
        "t[1].append(3); t.note.append('n'); u = T(4)",
        "t, t.note, u, type(u) is T, t[1]",
    ),
    "dict subclass missing": (
        "class D(dict):\n    def __missing__(s, k): s[k] = k * 2; return s[k]\nd = D(); e = d",
        "x = d['ab']; d.hits = 1",
        "x, d, e is d, e.hits",
    ),
    "user dict": (
        "class U(collections.UserDict):\n    def __setitem__(s, k, v): super().__setitem__(k, v * 2)\nu = U(a=1); raw = u.data",
        "u['b'] = 3",
        "dict(u), raw is u.data, raw",
    ),
    "user list": (
        "u = collections.UserList([1]); raw = u.data",
        "u.append(2); u.data.append(3)",
        "list(u), raw is u.data",
    ),
    "set subclass": (
        "class S(set):\n    def add(s, x): super().add(x); s.n = getattr(s, 'n', 0) + 1\ns = S(); t = s",
        "s.add(1); s.add(2)",
        "sorted(s), t is s, s.n",
    ),
    "ndarray subclass": (
        "import numpy as np\nclass A(np.ndarray):\n    def __array_finalize__(s, o): s.unit = getattr(o, 'unit', None)\na = np.arange(3.).view(A); a.unit = 'm'; b = a[1:]",
        "a += 1; a.unit = 'k'; c = a[:2]",
        "a.tolist(), a.unit, b.tolist(), b.unit, c.unit, type(c) is A",
    ),
    "frame subclass": (
        "import pandas as pd\nclass F(pd.DataFrame):\n    _metadata = ['src']\n    @property\n    def _constructor(s): return F\nf = F({'a': [1, 2]}); f.src = 'x'; g = f",
        "f['b'] = 3; f.src = 'y'; h = f[f.a > 1]",
        "f.to_dict('list'), g is f, g.src, h.src, type(h) is F",
    ),
    "tensor subclass": (
        "import torch\nclass T(torch.Tensor): pass\nt = torch.ones(2).as_subclass(T); u = t[:1]",
        "t.mul_(3); v = t + 1",
        "t.tolist(), u.tolist(), type(v) is T, type(t) is T",
    ),
    "module with plain list": (
        "import torch\nclass M(torch.nn.Module):\n    def __init__(s):\n        super().__init__(); s.log = []; s.w = torch.nn.Parameter(torch.ones(1)); s.register_buffer('b', torch.zeros(1), persistent=False)\n    def forward(s, x): s.log.append(1); s.b += 1; return x * s.w\nm = M(); log = m.log; w = m.w",
        "m(torch.ones(1)).sum().backward()",
        "log, m.log is log, w.grad.tolist(), m.b.tolist(), m.w is w",
    ),
    "init subclass kwargs": (
        "class B:\n    kinds = {}\n    def __init_subclass__(cls, *, key, **k): super().__init_subclass__(**k); cls.kinds[key] = cls\nclass C(B, key='c'): pass",
        "class D(C, key='d'): pass\nx = sorted(B.kinds)",
        "x, sorted(B.kinds), B.kinds['c'] is C, B.kinds['d'] is D",
    ),
    "class getitem": (
        "class G:\n    def __class_getitem__(cls, k): return type(f'G_{k}', (cls,), {'k': k})\nA = G['a']; a = A()",
        "B = G['b']; b = B(); a.n = B.k",
        "type(a) is A, type(b) is B, issubclass(B, G), a.n, A.__name__",
    ),
    "type made": (
        "T = type('T', (), {'x': 1, 'f': lambda s: s.x}); t = T()",
        "T.x = 5; U = type('U', (T,), {'y': T()}); u = U()",
        "t.f(), u.f(), type(u.y) is T, U.__mro__[1] is T",
    ),
    "instance method patched": (
        "class C:\n    def f(s): return 1\nc = C(); d = C()",
        "c.f = types.MethodType(lambda s: (2, s is c), c); C.g = lambda s: s.f()",
        "c.f(), d.f(), c.g(), d.g()",
    ),
    "function code changed": (
        "def f(): return 1\ndef g(): return 2\nh = f",
        "f.__code__ = g.__code__",
        "f(), h(), h is f",
    ),
    "function defaults changed": (
        "def f(a=1, *, b=2): return a, b\nh = f",
        "f.__defaults__ = (5,); f.__kwdefaults__['b'] = 7; f.__doc__ = 'd'",
        "h(), h is f, h.__doc__",
    ),
    "del class attr": (
        "class C: x = 1; y = 2\nclass D(C): x = 3\nd = D()",
        "del D.x; del C.y",
        "d.x, hasattr(d, 'y'), 'x' in vars(D)",
    ),
    "slots weakref": (
        "class S:\n    __slots__ = ('a', '__weakref__')\ns = S(); s.a = [1]; r = weakref.ref(s); l = s.a",
        "s.a.append(2); x = r() is s",
        "x, r() is s, s.a is l, l",
    ),
    "slots unset": (
        "class S:\n    __slots__ = ('a', 'b')\ns = S(); s.a = 1; t = s",
        "del s.a; s.b = 2",
        "hasattr(t, 'a'), t.b",
    ),
    "slots and dict": (
        "class S:\n    __slots__ = ('a', '__dict__')\nclass T(S): pass\nt = T(); t.a = [1]; t.z = t.a",
        "t.z.append(2); t.q = 3; del t.z",
        "t.a, t.q, hasattr(t, 'z'), vars(t)",
    ),
    "exception chain": (
        "try:\n    try: 1 / 0\n    except ZeroDivisionError as e: raise ValueError('v') from e\nexcept ValueError as e: err = e\ncause = err.__cause__",
        "err.add_note('n'); x = err.__cause__ is cause; err.extra = [1]",
        "x, err.__notes__, err.__cause__ is cause, err.extra, err.args",
    ),
    "exception class": (
        "class E(Exception):\n    def __init__(s, code, msg='m'): super().__init__(msg); s.code = code\ne = E(5)",
        "e.code += 1; f = E(7, 'x')",
        "e.code, e.args, f.code, f.args, type(f) is E",
    ),
    "context var": (
        "import contextvars\nv = contextvars.ContextVar('v', default=[]); v.set([1]); c = contextvars.copy_context()",
        "v.get().append(2)",
        "v.get()",
    ),
    "string template": (
        "t = string.Template('$a b'); f = string.Formatter()",
        "x = t.substitute(a=1), f.format('{}', 2)",
        "x, t.template",
    ),
    "struct iter": ("s = struct.Struct('<hi'); b = bytearray(6)", "s.pack_into(b, 0, 1, 2)", "s.unpack(b), s.size"),
    "logger adapter": (
        "import logging\nlg = logging.getLogger('h32.x'); ad = logging.LoggerAdapter(lg, {'u': []})",
        "ad.extra['u'].append(1); lg.setLevel(15); ok = ad.logger is lg",
        "ok, ad.extra, lg.level, ad.logger is lg",
        "lg.setLevel(0)",
    ),
    "log record": (
        "import logging\nclass F(logging.Filter):\n    def __init__(s): super().__init__(); s.n = 0\n    def filter(s, r): s.n += 1; return False\nf = F(); lg = logging.getLogger('h32.y'); lg.addFilter(f)",
        "lg.warning('x'); lg.warning('y')",
        "f.n, f in lg.filters",
        "lg.removeFilter(f)",
    ),
    "random subclass": (
        "class R(random.Random):\n    def random(s): s.n = getattr(s, 'n', 0) + 1; return super().random()\nr = R(3); a = r.random()",
        "b = r.random()",
        "a, b, r.random(), r.n",
    ),
    "random state legacy": (
        "import numpy as np\nrs = np.random.RandomState(4); st = rs.get_state(legacy=False)",
        "x = rs.rand(); rs.set_state(st)",
        "x == rs.rand(), rs.randint(9)",
    ),
    "seed sequence": (
        "import numpy as np\nss = np.random.SeedSequence(5); kids = ss.spawn(1)",
        "more = ss.spawn(2); g = np.random.default_rng(more[1]); x = g.random()",
        "x, ss.n_children_spawned, ss.spawn(1)[0].spawn_key",
    ),
    "lru cache": (
        "calls = []\n@functools.lru_cache(maxsize=2)\ndef f(x): calls.append(x); return [x]\na = f(1)",
        "b = f(1); c = f(2); d = f(3)",
        "calls, a is b, f(3) is d, f.cache_info()",
    ),
    "cached property class": (
        "class C:\n    n = 0\n    @functools.cached_property\n    def v(s): C.n += 1; return [C.n]\nc = C(); v = c.v",
        "c.v.append(9); w = c.v",
        "c.v is v, v, C.n, w is v",
    ),
    "total ordering": (
        "@functools.total_ordering\nclass V:\n    def __init__(s, n): s.n = n\n    def __eq__(s, o): return s.n == o.n\n    def __lt__(s, o): return s.n < o.n\nv = V(1)",
        "x = v >= V(0), max([v, V(3)]).n",
        "x, v <= V(1)",
    ),
    "reduce ex": (
        "class P:\n    def __init__(s, n): s.n = n; s.cache = {}\n    def __reduce__(s): return P, (s.n,)\np = P(1); p.cache['x'] = 1",
        "y = p.n; p.n = 5",
        "y, p.n",
    ),
    "reduce without state, counter and log": (
        "class C:\n    def __init__(s, n): s.n = n; s.count = 0; s.log = []\n    def __reduce__(s): return C, (s.n,)\no = C(1); o.count = 5; o.log.append('a')",
        "x = o.count, list(o.log); o.count += 1; o.log.append('b'); p = C(2); p.count = 7; p.log.append(1)",
        "x, o.count, o.log, p.count, p.log",
    ),
    "reduce without state, deleted": (
        "class C:\n    def __init__(s, n): s.n = n; s.cache = {}\n    def __reduce__(s): return C, (s.n,)\no = C(1); del o.cache",
        "x = hasattr(o, 'cache'); p = C(2); del p.cache; o.n = 3",
        "x, vars(o), vars(p)",
    ),
    "reduce without state, order": (
        "class C:\n    def __init__(s, n): s.n = n; s.b = 0\n    def __reduce__(s): return C, (s.n,)\no = C(1); o.a = 1; del o.n; o.n = 4",
        "x = list(vars(o)); o.z = 1",
        "x, vars(o)",
    ),
    "reduce without state, slots": (
        "class C:\n    __slots__ = ('n', 'count')\n    def __init__(s, n): s.n = n; s.count = 0\n    def __reduce__(s): return C, (s.n,)\no = C(1); o.count = 5",
        "x = o.count; o.count += 1; p = C(2); p.count = 7",
        "x, o.count, p.count",
    ),
    "reduce without state, lock": (
        "import threading\nclass C:\n    def __init__(s, n): s.n = n; s.lock = threading.Lock(); s.count = 0\n    def __reduce__(s): return C, (s.n,)\no = C(1); o.count = 5",
        "with o.lock: o.count += 1\np = C(2); p.count = 7",
        "o.count, p.count, p.lock.locked()",
    ),
    "reduce without state, nested": (
        "import threading\nclass C:\n    def __init__(s, n): s.n = n; s.lock = threading.Lock(); s.count = 0\n    def __reduce__(s): return C, (s.n,)\nclass D:\n    def __init__(s, n): s.n = n; s.inner = C(n); s.inner.count = 3\n    def __reduce__(s): return D, (s.n,)\no = D(1); o.inner.count = 5; o.back = [o]",
        "x = o.inner.count; o.inner.count += 1",
        "x, o.inner.count, o.back[0] is o",
    ),
    "counter with an attribute": (
        "import collections\nc = collections.Counter('aab'); c.tag = 'x'",
        "x = c.tag; c['z'] += 1; d = collections.Counter(); d.tag = 3",
        "x, c, c.tag, d.tag",
    ),
    "defaultdict of a class with an attribute": (
        "import collections\nclass K(collections.defaultdict): pass\nc = K(int); c.tag = 'x'",
        "x = c.tag; c['z'] += 1; d = K(int); d.tag = 3",
        "x, c, c.tag, d.tag",
    ),
    "copyreg without state": (
        "import copyreg\nclass C:\n    def __init__(s, n): s.n = n; s.count = 0\ncopyreg.pickle(C, lambda c: (C, (c.n,)))\no = C(1); o.count = 5",
        "x = o.count; o.count += 1; p = C(2); p.count = 7",
        "x, o.count, p.count",
    ),
    "reduce with items": (
        "class L(list):\n    def __init__(s, n): s.n = n; s.count = 0\n    def __reduce__(s): return L, (s.n,), None, iter(s)\no = L(1); o.count = 5; o.append(1)",
        "x = o.count, list(o); o.count += 1; o.append(2); p = L(2); p.count = 7",
        "x, o.count, o, p.count",
    ),
    "reduce without state, as a key": (
        "class C:\n    def __init__(s, n): s.n = n; s.count = 0\n    def __hash__(s): return hash(s.n)\n    def __eq__(s, o): return s.n == o.n\n    def __reduce__(s): return C, (s.n,)\no = C(1); o.count = 5; d = {o: 1}",
        "x = next(iter(d)).count; o.count += 1; d[C(1)] += 1",
        "x, o.count, d[C(1)], next(iter(d)) is o",
    ),
    "reduce without state, frozen": (
        "class C:\n    def __init__(s, n): object.__setattr__(s, 'n', n); object.__setattr__(s, 'memo', {})\n    def __setattr__(s, k, v): raise TypeError('frozen')\n    def __reduce__(s): return C, (s.n,)\no = C(1); o.memo['a'] = 1",
        "x = dict(o.memo); o.memo['b'] = 2; p = C(2); p.memo['z'] = 1",
        "x, o.memo, p.memo",
    ),
    "reduce without state, arrays": (
        "import numpy as np\nclass M:\n    def __init__(s, n): s.n = n; s.w = np.zeros(n)\n    def __reduce__(s): return M, (s.n,)\nm = M(200); m.w += 1; v = m.w[:3]",
        "x = m.w.sum(); m.w += 1; q = M(100); q.w += 5",
        "x, m.w.sum(), q.w.sum(), v.tolist()",
    ),
    "reduce without state, chance": (
        "import uuid\nclass C:\n    def __init__(s, n): s.n = n; s.uid = uuid.uuid4()\n    def __reduce__(s): return C, (s.n,)\no = C(1); u = [o.uid]",
        "x = o.uid == u[0]; o.n = 2",
        "x, o.uid == u[0]",
    ),
    "logger with an attribute": (
        "import logging\nlog = logging.getLogger('tagged'); log.tag = 'x'",
        "x = log.tag; log.tag = 'y'",
        "x, log.tag",
    ),
    "eq array": (
        "import numpy as np\nclass E:\n    def __init__(s): s.a = np.zeros(2)\n    def __eq__(s, o): return s.a == o.a\n    def __hash__(s): return 1\ne = E(); d = {e: [1]}",
        "e.a[0] = 5; d[e].append(2)",
        "e.a.tolist(), d[e]",
    ),
    "bool raising": (
        "class B:\n    def __bool__(s): raise RuntimeError('no')\n    def __len__(s): raise RuntimeError('no')\n    def __init__(s): s.v = 1\nb = B(); l = [b]",
        "b.v = 2",
        "b.v, l[0] is b",
    ),
    "repr raising": (
        "class B:\n    def __repr__(s): raise RuntimeError('no')\n    v = 0\nb = B(); l = [b]",
        "b.v = 2; l.append(1)",
        "b.v, l[0] is b, len(l)",
    ),
    "proxy": (
        "class P:\n    def __init__(s, o): object.__setattr__(s, '_o', o)\n    def __getattr__(s, n): return getattr(object.__getattribute__(s, '_o'), n)\n    def __setattr__(s, n, v): setattr(s._o, n, v)\nclass T: x = 1\nt = T(); p = P(t)",
        "p.x = 5; y = p.x",
        "y, t.x, p._o is t",
    ),
    "cycle parent child": (
        "class N:\n    def __init__(s, up=None):\n        s.up = weakref.proxy(up) if up else None; s.kids = []\n        if up: up.kids.append(s)\nroot = N(); kid = N(root)",
        "kid.up.kids.append('x'); N(root)",
        "len(root.kids), root.kids[0] is kid, kid.up.kids is root.kids",
    ),
    "tree of dicts": (
        "def tree(): return collections.defaultdict(tree)\nt = tree(); t['a']['b'] = 1; sub = t['a']",
        "t['a']['c']['d'] = 2; t['z']",
        "json.dumps(t), sub is t['a'], t.default_factory is tree",
    ),
    "interned strings": (
        "a = 'hello world!'; b = a; l = [a]",
        "c = a is b; d = l[0] is a; e = sys.intern('x' * 5)",
        "c, d, a is b, l[0] is a",
    ),
    "frozenset elems": (
        "class K: pass\nk = K(); f = frozenset([k, 1]); d = {f: 'x'}",
        "x = k in f; k.v = [1]; y = d[f]",
        "x, y, k in f, d[f], k.v",
    ),
    "range slice ellipsis": (
        "r = range(3, 9, 2); s = slice(1, None); e = (..., s)",
        "x = list(r), [1, 2, 3][s], e[0] is ...",
        "x, e[1] is s, r == range(3, 9, 2)",
    ),
    "star args": (
        "def f(*a, k=[], **kw): k.append(len(a)); return k\nz = f(1)",
        "y = f(1, 2, q=3)",
        "z is y, f(), f.__kwdefaults__['k'] is z",
    ),
    "walrus comp": (
        "data = [1, 2, 3]",
        "out = [y for x in data if (y := x * 2) > 2]; first, *rest = data",
        "out, y, first, rest",
    ),
    "global del and rebind": ("x = [1]; y = x; z = {'x': x}", "x.append(2); del x; x = [9]", "x, y, z['x'] is y"),
    "swap aliases": ("a = [1]; b = [2]; c = (a, b)", "a, b = b, a; a.append('a')", "a, b, c[1] is a, c[0] is b"),
    "tuple alias kept": (
        "t = ([1], 2); u = t; d = {'t': t}",
        "t[0].append(3)",
        "u is t, d['t'] is t, d['t'][0] is u[0], t",
    ),
    "deque rotate": (
        "d = collections.deque([1,2,3], maxlen=5); alias = [d]",
        "d.rotate(1); d.append(4); d.appendleft(0)",
        "d, alias[0] is d, d.maxlen",
    ),
    "counter update": (
        "c = collections.Counter('aab'); box = {'c': c}",
        "c.update('b'); c.subtract('a'); c['z'] += 1",
        "c, box['c'] is c, c.most_common(1)",
    ),
    "ordered move": (
        "o = collections.OrderedDict(a=1, b=2, c=3); alias = o",
        "o.move_to_end('a'); o.popitem(last=False)",
        "list(o), alias is o",
    ),
    "chainmap": (
        "a = {'x': 1}; b = {'y': 2}; m = collections.ChainMap(a, b)",
        "m['x'] = 5; m.maps[1]['y'] = 6; n = m.new_child({'z': 1})",
        "a, b, m['x'], m.maps[0] is a, n.maps[1] is a",
    ),
    "heap": (
        "h = [5, 3, 8]; heapq.heapify(h); alias = h",
        "heapq.heappush(h, 1); x = heapq.heappop(h)",
        "h, x, alias is h",
    ),
    "nested tuple of lists": (
        "l = [1]; t = (l, (l, [2])); k = {t[1][1][0]: t}",
        "t[0].append(3); t[1][1].append(4)",
        "t, l, t[0] is t[1][0] is l, k[2] is t",
    ),
    "dict keyed by objects": (
        "class K: pass\nk = K(); d = {k: [1]}; k.d = d",
        "d[k].append(2); k.x = 1",
        "d[k], k.x, k.d is d, list(d)[0] is k",
    ),
    "a key of a dict changes": (
        "class K:\n    def __init__(self, n): self.n = n\n    def __repr__(self): return self.n\n"
        "a = {K(x): 0 for x in 'abc'}; k0 = next(iter(a)); od = collections.OrderedDict((k, 1) for k in a); cnt = collections.Counter(a); t = {(k, 1): 0 for k in a}",
        "k0.v = 1; a[k0] += 1; od[k0] = 5; cnt[k0] += 1; t[k0, 1] = 4; a[K('d')] = 1",
        "list(a), list(od), list(cnt), list(t), next(iter(a)) is k0, next(iter(t))[0] is k0, od.popitem(), od",
    ),
    "elements of a set change": (
        "class E:\n    def __init__(self, n): self.n, self.v = n, 0\n    def __hash__(self): return self.n * 8\n"
        "    def __eq__(self, o): return self.n == o.n\n    def __repr__(self): return str(self.n)\n"
        "s = {E(n) for n in (3, 1, 4, 5, 9, 2, 6)}; s.remove(E(9)); first = next(iter(s))",
        "for each in s: each.v += 1\ns.add(E(7))",
        "list(s), next(iter(s)) is first, first.v",
    ),
    "list of itself": ("l = [1]; l.append(l)", "l.append(2); l[1].append(3)", "l[0], l[1] is l, l[2:]"),
    "array module grows": (
        "a = array.array('i', [1, 2]); alias = [a]",
        "a.append(3); a.extend([4])",
        "a, alias[0] is a",
    ),
    "simplenamespace": (
        "n = types.SimpleNamespace(a=[1], b=2); m = n; l = n.a",
        "n.a.append(2); n.c = n.a; del n.b",
        "n, m is n, n.a is l, n.c is l",
    ),
    "dataclass frozen": (
        "@dataclasses.dataclass(frozen=True)\nclass F:\n    x: list\n    y: int = 1\nf = F([1]); s = {id(f): f}; l = f.x",
        "f.x.append(2); g = dataclasses.replace(f, y=3)",
        "f, g, f.x is l, g.x is l, type(g) is F",
    ),
    "dataclass slots order": (
        "@dataclasses.dataclass(slots=True, order=True)\nclass P:\n    x: int\n    tags: list = dataclasses.field(default_factory=list)\na = P(1); b = [a]",
        "a.x = 5; a.tags.append('t'); c = max(a, P(2))",
        "a, b[0] is a, c is a, dataclasses.asdict(a)",
    ),
    "typing namedtuple": (
        "class P(typing.NamedTuple):\n    x: int\n    l: list\n    def total(self): return self.x + sum(self.l)\np = P(1, [2])",
        "p.l.append(3); t = p.total(); q = P(*p)",
        "p, t, q.l is p.l, type(q) is P, P._field_defaults",
    ),
    "class attribute mutable": (
        "class C: log = []\nclass D(C): pass\nc = C(); d = D()",
        "c.log.append(1); D.log = [5]; C.n = 3",
        "C.log, D.log, d.log, c.n, d.n, c.log is C.log",
    ),
    "class counter": (
        "class C:\n    count = 0\n    def __init__(self):\n        type(self).count += 1\n        self.i = C.count\nfirst = C()",
        "more = [C() for _ in range(3)]",
        "C.count, [m.i for m in more], first.i, type(more[0]) is C",
    ),
    "property setter": (
        "class T:\n    def __init__(s): s._c = 0; s.log = []\n    @property\n    def c(s): return s._c\n    @c.setter\n    def c(s, v): s.log.append(v); s._c = v\nt = T()",
        "t.c = 5; t.c += 1",
        "t.c, t.log, T.c.fset.__name__",
    ),
    "class method registry": (
        "class Reg:\n    items = {}\n    @classmethod\n    def add(cls, f): cls.items[f.__name__] = f; return f\n@Reg.add\ndef one(): return 1",
        "@Reg.add\ndef two(): return one() + 1",
        "sorted(Reg.items), Reg.items['two'](), Reg.items['one'] is one, Reg.items['two'] is two",
    ),
    "descriptor set_name": (
        "class Typed:\n    def __set_name__(s, o, n): s.n = '_' + n\n    def __get__(s, i, o=None): return s if i is None else getattr(i, s.n, None)\n    def __set__(s, i, v): setattr(i, s.n, int(v))\nclass A: x = Typed()\na = A(); a.x = '3'",
        "a.x = '7'; b = A(); b.x = 9.5",
        "a.x, b.x, A.x.n, vars(b)",
    ),
    "super chain": (
        "class A:\n    def f(s): return ['A']\nclass B(A):\n    def f(s): return ['B'] + super().f()\nb = B()",
        "class C(B):\n    def f(s): return ['C'] + super().f()\nr = C().f(); A.g = lambda s: 'g'",
        "r, C().f(), b.g(), C.__mro__[1] is B",
    ),
    "metaclass call count": (
        "class M(type):\n    made = []\n    def __call__(cls, *a):\n        M.made.append(cls.__name__); return super().__call__(*a)\nclass X(metaclass=M): pass\nx = X()",
        "y = X(); class_name = type(y).__name__",
        "M.made, class_name, type(X) is M, type(y) is X",
    ),
    "enum flags": (
        "class P(enum.Flag):\n    R = enum.auto(); W = enum.auto()\n    RW = R | W\np = P.R",
        "p |= P.W; q = {P.R: 1}; n = P(3)",
        "p, p is P.RW, q[P.R], n is P.RW, P.R in p",
    ),
    "enum with methods": (
        "class S(str, enum.Enum):\n    A = 'a'; B = 'b'\n    @property\n    def up(self): return self.value.upper()\ns = S.A; d = {S.A: 1}",
        "d[S('b')] = 2; s = S.B; t = s.up",
        "d, s is S.B, t, d['b'], json.dumps(d)",
    ),
    "getattr class": (
        "class Lazy:\n    def __init__(s): s.calls = []\n    def __getattr__(s, n):\n        if n.startswith('__'): raise AttributeError(n)\n        s.calls.append(n); return n.upper()\nz = Lazy(); z.abc",
        "w = z.xyz; z.calls.append('c')",
        "z.calls, w, z.q",
    ),
    "inner classes": (
        "class Out:\n    class In:\n        n = 1\n        def f(s): return s.n\n    def make(s): return Out.In()\no = Out()",
        "i = o.make(); Out.In.n = 5; j = Out.In()",
        "i.f(), j.f(), type(i) is Out.In, Out.In.__qualname__",
    ),
    "closure counter": (
        "def make():\n    n = 0\n    def inc():\n        nonlocal n; n += 1; return n\n    def get(): return n\n    return inc, get\ninc, get = make(); kept = get",
        "inc(); inc()",
        "get(), inc(), kept()",
    ),
    "decorator with state": (
        "def count(fn):\n    @functools.wraps(fn)\n    def w(*a):\n        w.calls += 1; return fn(*a)\n    w.calls = 0; return w\n@count\ndef sq(x): return x * x",
        "r = [sq(i) for i in range(3)]",
        "r, sq.calls, sq(5), sq.calls, sq.__name__, sq.__wrapped__(2)",
    ),
    "partialmethod": (
        "class C:\n    def f(s, a, b): return a, b\n    g = functools.partialmethod(f, 1)\n    @functools.cached_property\n    def v(s): s.n = getattr(s, 'n', 0) + 1; return s.n\nc = C()",
        "x = c.g(2); y = c.v; z = c.v",
        "x, y, z, c.n, vars(c)",
    ),
    "single dispatch method": (
        "class F:\n    @functools.singledispatchmethod\n    def show(self, x): return 'any'\n    @show.register\n    def _(self, x: int): return 'int'\nf = F()",
        "@F.show.register\ndef _(self, x: str): return 'str'\nr = f.show(1), f.show('a'), f.show(1.)",
        "r, f.show('z')",
    ),
    "NaT and NA": (
        "import numpy as np\nimport pandas as pd\ns = pd.Series([pd.NaT, pd.Timestamp('2024')]); n = pd.NA; l = [pd.NA, pd.NaT, None, np.nan, ...]",
        "x = [each is other for each, other in zip(l, [pd.NA, pd.NaT, None, np.nan, ...])]; l.append(NotImplemented)",
        "x, l[-1] is NotImplemented, n is pd.NA, s[0] is pd.NaT, l[3] is np.nan",
    ),
    "decimal contexts": (
        "c = decimal.Context(prec=3); d = decimal.Decimal(1) / 3",
        "e = c.divide(decimal.Decimal(1), decimal.Decimal(3)); c.prec = 5",
        "d, e, c.prec, c.flags[decimal.Inexact]",
    ),
    "dates": (
        "t = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc); d = [t]",
        "u = t + datetime.timedelta(days=1); tz = u.tzinfo is datetime.timezone.utc",
        "u, tz, d[0] is t",
    ),
    "broadcast": (
        "import numpy as np\na = np.arange(3.); b = np.broadcast_to(a, (2, 3)); c = a[::-1]",
        "a[0] = 9",
        "b.tolist(), c.tolist(), b.flags.writeable",
    ),
    "object array": (
        "import numpy as np\nl = [1]; a = np.array([l, None, 'x'], dtype=object); b = a[:1]",
        "a[0].append(2); a[1] = a[0]",
        "l, a[1] is l, b[0] is l",
    ),
    "structured": (
        "import numpy as np\na = np.zeros(2, [('x', 'f8'), ('y', 'i4')]); x = a['x']",
        "a['x'] = [1, 2]; a[0]['y'] = 5",
        "a.tolist(), x.tolist()",
    ),
    "matrix memmap": (
        "import numpy as np\nm = np.memmap('mm.dat', dtype='f4', mode='w+', shape=3); m[:] = 1; m.flush()",
        "m[0] = 5; m.flush(); t = float(m.sum())",
        "t, m.tolist(), np.fromfile('mm.dat', 'f4').tolist()",
    ),
    "parameter tying": (
        "import torch\ne = torch.nn.Embedding(3, 2); l = torch.nn.Linear(2, 3, bias=False); l.weight = e.weight",
        "with torch.no_grad(): e.weight.fill_(2.)",
        "l.weight is e.weight, l.weight.tolist()",
    ),
    "optimizer groups": (
        "import torch\nm = torch.nn.Linear(1, 1); o = torch.optim.SGD(m.parameters(), lr=1.); s = torch.optim.lr_scheduler.StepLR(o, 1, .5)",
        "o.step(); s.step(); g = o.param_groups[0]['lr']",
        "g, o.param_groups[0]['lr'], s.optimizer is o, s.last_epoch, o.param_groups[0]['params'][0] is m.weight",
    ),
    "frame attrs and flags": (
        "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]}); df.attrs['u'] = ['m']; s = df.a",
        "df.attrs['u'].append('k'); df.flags.allows_duplicate_labels = True",
        "df.attrs, s.tolist(), df.flags.allows_duplicate_labels",
    ),
    "groupby kept": (
        "import pandas as pd\ndf = pd.DataFrame({'k': ['a', 'b', 'a'], 'v': [1, 2, 3]}); g = df.groupby('k')",
        "t = g.v.sum().to_dict(); df.loc[0, 'v'] = 10",
        "t, df.v.tolist(), g.obj is df",
    ),
    "multi index frame": (
        "import pandas as pd\nix = pd.MultiIndex.from_product([['a'], [1, 2]], names=['x', 'y']); df = pd.DataFrame({'v': [1, 2]}, index=ix)",
        "df.loc[('a', 2), 'v'] = 9; l = df.index.get_level_values('y').tolist()",
        "df.v.tolist(), l, df.index is ix, df.index.names",
    ),
    "own generators": (
        "import numpy as np\nimport torch\nr = random.Random(1); g = np.random.default_rng(1); t = torch.Generator().manual_seed(1); l = [r, g]",
        "x = r.random(), g.random(), torch.rand(1, generator=t).item()",
        "x, r.random(), g.random(), torch.rand(1, generator=t).item(), l[0] is r, l[1] is g",
    ),
    "a weak reference whose target others hold": (
        "class A: pass\na = A(); r = weakref.ref(a); box = [a]",
        "del a; n = r() is None",
        "n, r() is None, r() is box[0]",
    ),
    "a module of the notebook's own": (
        "m = types.ModuleType('own'); m.x = 1; m.l = []; l = m.l; alias = [m]",
        "m.y = 2; m.x += 1; z = m.x; l.append(1); del m.l",
        "z, m.x, m.y, alias[0] is m, l, hasattr(m, 'l')",
    ),
    "what many cells of a column hold": (
        "import pandas as pd\nrow = [1]; df = pd.DataFrame({'a': [row] + [[i] for i in range(6000)]})",
        "df.a[0].append(2); df['n'] = 1",
        "row, df.a[0], df.a[0] is row",
    ),
    "a code and a text of a function": (
        "def f(): return 1\ndef g(): return 2\nh = f",
        "f.__code__ = g.__code__; f.__doc__ = 'two'",
        "f(), h(), h is f, h.__doc__",
    ),
}
