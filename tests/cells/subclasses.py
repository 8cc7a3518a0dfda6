# ruff: noqa: E501 - a cell is one string
"""Attributes of the notebook's own subclasses of library classes that say themselves what travels of their objects."""

from __future__ import annotations

IMPORTS = ""
_OPTIMIZER = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
def back(): net(torch.ones(1, 2)).sum().backward()
"""
ROWS = {
    "optimizer with a default": (
        _OPTIMIZER
        + "class C(torch.optim.Adam):\n    clip = None; count = 0\n    def __init__(s, ps, clip=None, **k): super().__init__(ps, **k); s.clip = clip\n    def step(s, closure=None):\n        s.count += 1\n        if s.clip: torch.nn.utils.clip_grad_norm_(s.param_groups[0]['params'], s.clip)\n        return super().step(closure)\no = C(net.parameters(), .001, lr=.1); back(); o.step()",
        "c = o.clip; back(); o.step(); o.new = [1]; p = C(net.parameters(), 5); p.step()",
        "c, o.clip, o.count, o.new, p.clip, p.count, net.weight.tolist(), net.weight.grad.norm().item()",
    ),
    "optimizer around another": (
        _OPTIMIZER
        + "class L(torch.optim.Optimizer):\n    k = 5\n    def __init__(s, base, k=2): s.base = base; s.k = k; s.n = 0; super().__init__(base.param_groups[0]['params'], {}); s.slow = [p.detach().clone() for p in base.param_groups[0]['params']]\n    def step(s, closure=None):\n        s.base.step(); s.n += 1\n        if s.n % s.k == 0:\n            for slow, p in zip(s.slow, s.param_groups[0]['params']): slow.lerp_(p.detach(), .5); p.data.copy_(slow)\nbase = torch.optim.SGD(net.parameters(), .1); o = L(base); back(); o.step()",
        "back(); o.step()",
        "o.n, o.k, o.base is base, o.slow[0].tolist(), net.weight.tolist(), o.param_groups[0]['params'][0] is net.weight",
    ),
    "optimizer of a scheduler": (
        _OPTIMIZER
        + "class L(torch.optim.Optimizer):\n    def __init__(s, ps, lr=.1): super().__init__(ps, dict(lr=lr)); s.hist = []; s.lr = lr; s._seen = 0\n    def step(s, closure=None): s.hist.append(s.param_groups[0]['lr']); s._seen += 1\no = L(net.parameters()); sch = torch.optim.lr_scheduler.StepLR(o, 1, .5); o.step(); sch.step(); h = o.hist",
        "o.step(); sch.step()\ndel o.lr",
        "o.defaults, o.hist, o._seen, h is o.hist, hasattr(o, 'lr'), o.step() or o.hist, sch.step(), sch.optimizer is o, hasattr(o.step, '_wrapped_by_lr_sched'), sorted(n for n in vars(o) if n[0] != '_')",
    ),
    "hooks of an optimizer": (
        _OPTIMIZER
        + "o = torch.optim.Adam(net.parameters()); seen = []; o.register_step_pre_hook(lambda *a: seen.append(1))",
        "o.step()",
        "o.step(), seen",
    ),
    "session": (
        "import requests\nclass S(requests.Session):\n    base = None; calls = 0\n    def __init__(s, base): super().__init__(); s.base = base; s.headers['X'] = '1'\n    def url(s, p): s.calls += 1; return f'{s.base}/{p}'\no = S('http://x')",
        "r = o.url('a'); o.timeout = 5",
        "r, o.url('b'), o.calls, o.timeout, o.headers['X'], sorted(vars(o)), len(o.adapters)",
    ),
    "date": (
        "import datetime\nclass D(datetime.date): label = ''; _n = 0\nclass T(datetime.datetime): label = ''\nclass P(datetime.timedelta): label = ''\nclass Z(datetime.tzinfo): label = ''\nclass I(datetime.time): label = ''\nd = D(2024, 1, 1); t = T(2024, 1, 1); p = P(1); i = I(3); z = Z()\nfor each in (d, t, p, i, z): each.label = 'a'; each._n = 4; each.year_ = 5",
        "x = [(each.label, each._n, each.year_) for each in (d, t, p, i, z)]\nfor each in (d, t, p, i, z): each.label += 'b'; each.more = [1]\nd2 = D(2025, 1, 1); d2.label = 'n'; d2._n = 3",
        "x, [(type(each).__name__, each, vars(each)) for each in (d, t, p, i)], z.label, vars(d2)",
    ),
    "names of the library's": (
        "import datetime, fractions, decimal, pathlib, uuid\nclass D(datetime.date): label = None\nclass F(fractions.Fraction): label = None\nclass E(decimal.Decimal): label = None\nclass P(type(pathlib.Path())): label = None\nclass U(uuid.UUID): label = None\nl = [D(2024, 1, 1), F(1, 2), E('1.5'), P('a/b')]; u = U(int=5)\nfor each in l: each.label = 'a'; each._own = 'b'; each.value = 3; each.name_ = 1",
        "x = [(each.label, each._own, each.value) for each in l], str(u)\nfor each in l: each.label = 'c'; each._own += 'd'",
        "x, [(str(each), each.label, each._own, each.value, type(each).__name__) for each in l]",
    ),
    "numbers and texts": (
        "class I(int): pass\nclass S(str): pass\nclass B(bytes): pass\nclass F(float): pass\nclass T(tuple): pass\nclass Z(frozenset): pass\nclass C(complex): pass\nl = [I(1), S('a'), B(b'a'), F(1.5), T((1,)), Z((1,)), C(1)]\nfor each in l: each.label = 'a'; each._own = 'b'",
        "x = [(each.label, each._own) for each in l]\nfor each in l: each.label = 'c'; each.more = [each.label]",
        "x, [(each, vars(each)) for each in l]",
    ),
    "containers": (
        "import collections\nclass D(dict): pass\nclass L(list): pass\nclass S(set): pass\nclass O(collections.OrderedDict): pass\nclass F(collections.defaultdict): pass\nclass C(collections.Counter): pass\nclass Q(collections.deque): pass\nclass B(bytearray): pass\nclass U(collections.UserDict): pass\nclass M(collections.ChainMap): pass\nl = [D(a=1), L([1]), S([1]), O(a=1), F(int, a=1), C('aab'), Q([1]), B(b'a'), U(a=1), M({'a': 1})]\nfor each in l: each.label = 'a'; each._own = 'b'; each.elements_ = 1",
        "x = [(each.label, each._own) for each in l]\nfor each in l: each.label = 'c'; each.more = [each.label]; del each.elements_",
        "x, [(each, each.label, each.more, each._own, hasattr(each, 'elements_')) for each in l]",
    ),
    "arguments of the notebook's constructor": (
        "import collections\nclass F(collections.defaultdict):\n    def __init__(s, name): super().__init__(list); s.name = name\nclass C(collections.Counter):\n    total_ = None\n    def __init__(s, *a, name=None): super().__init__(*a); s.name = name\nclass Q(collections.deque):\n    def __init__(s, name): super().__init__([1], 3); s.name = name\nl = [F('f'), C('aab', name='c'), Q('q')]",
        "x = [each.name for each in l]; l[0]['a'].append(1); l[1]['a'] += 1; l[2].append(2)\nfor each in l: each.name += '2'",
        "x, l, [each.name for each in l]",
    ),
    "slots": (
        "import collections, datetime\nclass D(datetime.date):\n    __slots__ = ('label', 'other')\nclass C(collections.OrderedDict):\n    __slots__ = ('label', 'other')\nclass F(collections.defaultdict):\n    __slots__ = ('label', 'other')\nl = [D(2024, 1, 1), C(a=1), F(int, a=1)]\nfor each in l: each.label = 'a'",
        "x = [each.label for each in l]\nfor each in l: each.label += 'b'; each.other = [1]",
        "x, l, [(each.label, each.other) for each in l]",
    ),
    "frames": (
        "import pandas as pd\nclass D(pd.DataFrame):\n    _metadata = ['unit']\n    @property\n    def _constructor(s): return D\nclass S(pd.Series):\n    _metadata = ['unit']\nclass O:\n    def __init__(s): s.n = 1\nd = D({'a': [1, 2]}); s = S([1]); d.unit = 'm'; s.unit = O()\nobject.__setattr__(d, 'extra', O()); object.__setattr__(d, '_own', 3); extra = d.extra",
        "x = d.unit, s.unit.n, d.extra.n, d._own; d.extra.n += 1; d.unit = 'km'; s.unit.n = 5; e = d[d.a > 1]; s.loc[0] = 7",
        "x, d.unit, s.unit.n, d.extra.n, d.extra is extra, e.unit, type(e) is D, s.tolist(), d._own",
    ),
    "arrays": (
        "import numpy as np\nclass A(np.ndarray):\n    def __array_finalize__(s, o): s.unit = getattr(o, 'unit', None)\na = np.arange(3.).view(A); a.unit = 'm'; a._own = [1]; own = a._own; m = np.ma.array([1, 2], mask=[0, 1]); m.unit = 's'\nclass M(np.ma.MaskedArray): pass\nk = np.ma.array([1, 2], mask=[0, 1]).view(M); k.unit = 'kg'",
        "x = a.unit, a._own, m.unit, k.unit; a[0] = 5; a._own.append(2); a.unit = 'km'; b = a[1:]; k.unit += 'x'; k[0] = 9",
        "x, a.tolist(), a.unit, a._own, own is a._own, b.unit, type(b) is A, k.unit, k.tolist(), type(k) is M",
    ),
    "tensors": (
        "import torch\nclass T(torch.Tensor): pass\nclass P(torch.nn.Parameter): pass\nt = torch.ones(2).as_subclass(T); t.unit = 'm'; t._own = [1]; p = P(torch.ones(1)); p.unit = 'a'",
        "x = t.unit, t._own, p.unit; t._own.append(2); t.unit = 'km'; t[0] = 5; p.unit = 'b'",
        "x, t.tolist(), t.unit, t._own, type(t) is T, p.unit, type(p) is P",
    ),
    "modules": (
        "import torch\nclass M(torch.nn.LSTM):\n    def __init__(s): super().__init__(1, 1); s.label = 'a'; s._own = []\nclass D(torch.utils.data.TensorDataset):\n    def __init__(s, *t): super().__init__(*t); s.label = 'a'\nclass G(torch.Generator): pass\nclass L(torch.utils.data.DataLoader): label = None\nm = M(); d = D(torch.ones(2)); l = L(d, 2); l.label = 'z'; l._own = 3",
        "x = m.label, d.label, l.label, l._own; m.label = 'b'; m._own.append(1); d.label = 'b'; l.label += 'y'; l._own += 1",
        "x, m.label, m._own, d.label, l.label, l._own",
    ),
    "schedulers": (
        "import torch\nclass N(torch.optim.lr_scheduler.LambdaLR):\n    def __init__(s, o): s.calls = 0; super().__init__(o, lambda e: .5 ** e); s.label = 'a'\n    def step(s, *a): s.calls += 1; return super().step(*a)\nw = torch.ones(1, requires_grad=True); o = torch.optim.SGD([w], .1); n = N(o); o.step(); n.step()",
        "x = n.calls, n.label; o.step(); n.step(); n.label = 'b'",
        "x, n.calls, n.label, n.get_last_lr()",
    ),
    "estimators": (
        "import numpy as np\nfrom sklearn.linear_model import LinearRegression\nfrom sklearn.tree import DecisionTreeRegressor\nfrom sklearn.base import BaseEstimator\nclass R(LinearRegression):\n    def fit(s, X, y): s.calls = getattr(s, 'calls', 0) + 1; s._own = [1]; return super().fit(X, y)\nclass T(DecisionTreeRegressor):\n    label = None\nclass B(BaseEstimator):\n    def __init__(s, a=1): s.a = a; s.log = []\nr = R().fit([[1.], [2.]], [1., 2.]); t = T(); t.label = 'a'; b = B()",
        "x = r.calls, r._own, t.label; r.fit([[1.], [2.]], [2., 4.]); t.label = 'b'; b.log.append(1); t.fit([[1.]], [2.])",
        "x, r.calls, r.coef_.round(3).tolist(), t.label, b.log, t.predict([[1.]]).tolist()",
    ),
    "errors": (
        "class E(ValueError):\n    label = None\nclass K(KeyError):\n    def __init__(s, a, b): super().__init__(a); s.b = b\nclass O(OSError): pass\nimport json\nclass J(json.JSONDecodeError):\n    note = None\nl = [E('a'), K('a', 'b'), O(2, 'x'), J('m', 'doc', 1)]\nfor each in l: each.label = 'a'; each._own = 3",
        "x = [(each.label, each._own) for each in l]\nfor each in l: each.label += 'b'; each.more = [1]",
        "x, [(repr(each), each.label, each._own, each.more) for each in l], l[1].b, l[3].pos",
    ),
    "threads and queues": (
        "import random, string, types, logging\nclass R(random.Random):\n    label = None; _n = 0\nclass N(types.SimpleNamespace): pass\nclass F(logging.Formatter):\n    label = None\nclass H(logging.Filter): label = None\nr = R(3); r.label = 'a'; n = N(a=1); n._own = 2; f = F('%(message)s'); f.label = 'f'; f._own = 1; h = H(); h.label = 'h'; r._n = 4",
        "x = r.label, r._n, r.random(), f.label, h.label, n._own; r.label = 'b'; f.label = 'g'; h.label += 'i'",
        "x, r.label, r._n, r.random(), f.label, f._own, h.label, n._own",
    ),
    "images and graphs": (
        "import networkx as nx\nfrom PIL import Image\nclass G(nx.DiGraph):\n    def __init__(s, *a, label=None, **k): super().__init__(*a, **k); s.label = label; s._own = []\nclass I(Image.Image):\n    label = None\ng = G([(1, 2)], label='a'); i = Image.new('L', (2, 2), 5); i.__class__ = I; i.label = 'a'; i._own = [1]",
        "x = g.label, i.label, i._own; g.label = 'b'; g._own.append(1); i.label = 'b'; i._own.append(2); i.putpixel((0, 0), 9)",
        "x, g.label, g._own, i.label, i._own, list(i.getdata()), type(i) is I",
    ),
    "plots": (
        "import matplotlib; matplotlib.use('agg')\nfrom matplotlib.figure import Figure\nfrom matplotlib.colors import Normalize, LinearSegmentedColormap\nclass F(Figure):\n    def __init__(s, *a, mark=None, **k): super().__init__(*a, **k); s.mark = mark; s._own = []\nclass N(Normalize):\n    def __init__(s, *a, mid=0): super().__init__(*a); s.mid = mid\nf = F(mark='a'); n = N(0, 1, mid=.5)",
        "x = f.mark, f._own, n.mid; f.mark = 'b'; f._own.append(1); n.mid = .7",
        "x, f.mark, f._own, n.mid",
    ),
    "enum members": (
        "import enum\nclass E(enum.Enum):\n    A = 1; B = 2\nclass I(enum.IntFlag):\n    A = 1; B = 2\nE.A.label = 'a'; E.B._own = [1]; I.A.label = 'z'",
        "x = E.A.label, E.B._own, I.A.label; E.A.label = 'b'; E.B._own.append(2); I.B.label = 'q'",
        "x, E.A.label, E.B._own, I.A.label, I.B.label",
    ),
}
