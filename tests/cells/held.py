# ruff: noqa: E501 - a cell is one string
"""Iterators, errors and functions that several hold: whoever has one sees what the others have done with it."""

from __future__ import annotations

IMPORTS = "import collections, io, itertools, logging, weakref\nimport pandas as pd\n"
ROWS = {
    "iterators that others hold, too": (
        "L = [1, 2, 3, 4]; a = iter(L); b = iter('abcd'); c = iter(range(9)); r = reversed(L); t = iter((1, 2)); box = [a, r]\n"
        "o = type('O', (), {})(); o.b, o.c, o.t = b, c, t; next(a); next(c)",
        "n = next(box[0]), next(o.b), next(o.c), next(r), [*o.t]; L.append(5); kept = [a]",
        "n, next(a), next(b), next(c), next(box[1]), [*t], box[0] is a is kept[0], o.b is b, [*a], r.__length_hint__()",
    ),
    "iterators over iterators": (
        "a, b, c, d = (iter([1, 2, 3, 4]) for _ in range(4)); z = zip(a, 'abcd'); m = map(str, b); e = enumerate(c); i = itertools.chain(d, 'x')\n"
        "next(z); both = [e, c]",
        "n = next(z), next(m), next(e), next(c), next(i); f = filter(None, a)",
        "n, next(a), next(b), next(both[0]), next(both[1]), both[0] is e, next(d), [*i], next(f), [*z], [*m]",
    ),
    "iterators that go on to the next": (
        "a, b = [1], [2, 3]; c = itertools.chain(a, b); d = itertools.chain.from_iterable([[1], [2, 3], [4]]); next(c); box = [d]",
        "b.append(4); n = next(c), next(d), next(d)",
        "n, [*c], [*d], box[0] is d",
    ),
    "what a column of objects holds": (
        "row = [1]; more = {'x': 1}; df = pd.DataFrame({'a': [row, [2]], 'n': [1, 2]}); s = pd.Series([more, None]); last = df.a[1]",
        "df.a[0].append(3); df.a[1].append(4); df['n'] += 1; s[0]['y'] = 2; made = pd.DataFrame({'b': [row]})",
        "row, more, last, df.to_dict(), df.a[0] is row, df.a[1] is last, s[0] is more, made.b[0] is row",
    ),
    "what a slice holds": (
        "part = [1]; s = slice(part, None)",
        "s.start.append(2); t = slice(None, part)",
        "part, s.start is part, t.stop is part",
    ),
    "errors that are kept": (
        "class E(Exception):\n    def __init__(self, a, *, b):\n        super().__init__(a)\n        self.b = b\n"
        "errors = []\nfor make in (lambda: 1 / 0, lambda: open('/no/such'), lambda: [][1]):\n    try:\n        make()\n    except Exception as error:\n        errors.append(error)\n"
        "try:\n    raise E(1, b=[2]) from errors[0]\nexcept E as error:\n    own = error\nkept, first = [own], errors[0]",
        "errors.append(errors[1].errno); errors[0].add_note('n'); kept[0].b.append(3); kept[0].args = (7,); group = ExceptionGroup('g', [errors[2]])",
        "errors[0] is first, type(own.__cause__), first.__notes__, errors[3], own is kept[0], "
        "own.b, own.args, group.exceptions[0] is errors[2], str(errors[1])",
    ),
    "by what a defaultdict makes its values": (
        "class F:\n    n = 0\n    def make(self):\n        self.n += 1\n        return self.n\nf = F(); d = collections.defaultdict(f.make)",
        "d['a'], d['b']",
        "d['c'], f.n, d.default_factory.__self__ is f, dict(d)",
    ),
    "what weak containers hold": (
        "class A: pass\na, b = A(), A(); s = weakref.WeakSet([a]); v = weakref.WeakValueDictionary(a=a); k = weakref.WeakKeyDictionary({a: [1]}); part, box = k[a], [s]",
        "n = len(s), len(v), len(k), v['a'] in s\nfor x in s: x.n = 7\nfor y in k.values(): y.append(2)\nv['a'].m = 8; c = A(); s.add(c); v['c'] = c; k[c] = [a]\ndel x, y",
        "n, a.n, a.m, a in s, v['a'] is a, k[a] is part, part, c in s, v['c'] is c, k[c][0] is a, box[0] is s, len(s), [*v], len(k)",
    ),
    "objects that a class notes weakly": (
        "class Node:\n    made = weakref.WeakSet()\n    def __init__(self, up=None):\n        self.up, self.below = up, weakref.WeakSet()\n        Node.made.add(self)\n        if up is not None: up.below.add(self)\n"
        "top = Node(); one = Node(top)",
        "two = Node(top); n = len(Node.made), len(top.below)",
        "n, len(Node.made), len(top.below), one in top.below, two in Node.made, two.up is top",
    ),
    "a text that a handler writes to": (
        "text = io.StringIO(); own = logging.StreamHandler(text); own.setFormatter(logging.Formatter('%(levelname)s %(message)s')); log = logging.getLogger('to.text')\nlog.addHandler(own); log.propagate = False",
        "log.warning('in the cell'); print('printed', file=text); n = len(text.getvalue())",
        "log.error('after'), text.getvalue(), n, own in log.handlers, own.stream is text",
        "log.handlers.clear()",
    ),
    "in a long list or dict": (
        "import numpy as np\nm = np.arange(4); rows = [[i] for i in range(11_000)]; rows.append(m); table = dict.fromkeys(range(11_000)); table['m'] = m; part = {'m': m}",
        "part['m'].dtype = 'u8'",
        "m is part['m'], rows[-1] is m, table['m'] is m, m.dtype",
    ),
    "a handler that keeps records": (
        "import logging.handlers\nlog = logging.getLogger('to.memory'); log.propagate = False; text = io.StringIO()\nkept = logging.handlers.MemoryHandler(9, target=logging.StreamHandler(text)); log.addHandler(kept); log.warning('before')",
        "log.warning('in the cell'); n = len(kept.buffer)",
        "[each.msg for each in kept.buffer], log.error('after'), text.getvalue(), n, kept in log.handlers, len(kept.buffer)",
        "log.handlers.clear()",
    ),
}
