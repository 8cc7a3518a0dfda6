# ruff: noqa: E501 - a cell is one string
"""Objects of libraries that a cell changes, and what else holds them."""

from __future__ import annotations

IMPORTS = "import collections, copy, dataclasses, datetime, decimal, enum, fractions, functools, heapq, io, itertools, json, math, operator, os, pathlib, random, re, string, struct, sys, types, typing, weakref, array\n"
ROWS = {
    "sklearn pipeline": (
        "import numpy as np\nfrom sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler\nfrom sklearn.linear_model import LinearRegression\np = make_pipeline(StandardScaler(), LinearRegression()); sc = p[0]; X = np.arange(6.).reshape(3, 2); y = np.arange(3.)",
        "p.fit(X, y); r = p.predict(X).round(3).tolist();",
        "r, p[0] is sc, sc.mean_.tolist(), p.predict(X).round(3).tolist()",
    ),
    "sklearn warm": (
        "import numpy as np\nfrom sklearn.ensemble import RandomForestClassifier\nm = RandomForestClassifier(2, warm_start=True, random_state=np.random.RandomState(0)); rs = m.random_state; X = np.arange(20.).reshape(10, 2); y = [0, 1] * 5; m.fit(X, y); first = m.estimators_[0]",
        "m.n_estimators = 3; m.fit(X, y);",
        "len(m.estimators_), m.estimators_[0] is first, m.random_state is rs, m.predict(X).tolist(), rs.rand()",
    ),
    "scipy sparse": (
        "import scipy.sparse as sp\nm = sp.lil_matrix((2, 2)); d = m.data; c = m.tocsr()",
        "m[0, 1] = 5; c2 = m.tocsr(); c = c + c2",
        "m.toarray().tolist(), m.data is d, c.toarray().tolist()",
    ),
    "scipy interpolate": (
        "from scipy.interpolate import CubicSpline\nf = CubicSpline([0, 1, 2], [0, 1, 4]); g = f",
        "v = float(f(1.5)); h = f.derivative()",
        "v, g is f, float(h(1))",
    ),
    "scipy frozen": (
        "import numpy as np\nfrom scipy import stats\nd = stats.norm(2, 3); np.random.seed(1)",
        "x = d.rvs(2).tolist(), d.cdf(2)",
        "x, d.rvs(1).tolist(), d.args",
    ),
    "networkx": (
        "import networkx as nx\ng = nx.path_graph(3); adj = g.adj; h = g; nx.set_node_attributes(g, [1], 'w'); w = g.nodes[0]['w']",
        "g.add_edge(0, 2, l=1); g.nodes[0]['w'].append(2); n = nx.shortest_path_length(g, 0, 2)",
        "n, sorted(g.edges), h is g, w, g.nodes[0]['w'] is w, sorted(adj[0])",
    ),
    "sympy": (
        "import sympy as sy\nx, y = sy.symbols('x y'); e = x**2 + y; d = {x: 1}",
        "f = sy.diff(e, x); s = e.subs(d); same = f.free_symbols == {x}",
        "f, s, same, f / 2 is x or f / 2 == x, list(f.free_symbols)[0] is x",
    ),
    "pillow": (
        "from PIL import Image\nim = Image.new('L', (2, 2), 5); al = [im]",
        "im.putpixel((0, 0), 9); r = im.rotate(90)",
        "list(im.getdata()), al[0] is im, r.size",
    ),
    "polars": (
        "import polars as pl\ndf = pl.DataFrame({'a': [1, 2]}); al = df",
        "df = df.with_columns(b=pl.col('a') * 2); s = df['b'].sum()",
        "df.to_dict(as_series=False), s, al.columns",
    ),
    "pyarrow": (
        "import pyarrow as pa\nt = pa.table({'a': [1, 2]}); al = t",
        "u = t.append_column('b', pa.array([3, 4])); n = t.num_rows",
        "u.to_pydict(), n, al is t, t.schema.names",
    ),
    "attrs": (
        "import attr\n@attr.s(auto_attribs=True)\nclass A:\n    x: int\n    l: list = attr.Factory(list)\na = A(1); l = a.l",
        "a.l.append(2); b = attr.evolve(a, x=5)",
        "a, b, a.l is l, b.l is l, type(b) is A",
    ),
    "attrs frozen slots": (
        "import attrs\n@attrs.frozen\nclass A:\n    x: int\n    l: list\na = A(1, []); al = [a]",
        "a.l.append(2); b = attrs.evolve(a, x=5); h = hash(A) == hash(type(b))",
        "a, b, al[0] is a, h, type(b) is A",
    ),
    "pydantic": (
        "import pydantic\nclass M(pydantic.BaseModel):\n    x: int = 1\n    l: list[int] = []\n    model_config = {'validate_assignment': True}\nm = M(); al = [m]; l = m.l",
        "m.x = '5'; m.l.append(2); n = m.model_copy(update={'x': 9})",
        "m, n, al[0] is m, m.l is l, type(n) is M, m.model_fields_set",
    ),
    "pydantic private": (
        "import pydantic\nclass M(pydantic.BaseModel):\n    x: int\n    _seen: list = pydantic.PrivateAttr(default_factory=list)\n    @pydantic.computed_field\n    @property\n    def twice(self) -> int: return self.x * 2\nm = M(x=1)",
        "m._seen.append(1); m.x = 4; d = m.model_dump()",
        "d, m._seen, m.twice",
    ),
    "msgspec": (
        "import msgspec\nclass P(msgspec.Struct):\n    x: int\n    l: list = []\np = P(1); al = [p]",
        "p.x = 2; p.l.append(3); q = msgspec.json.decode(msgspec.json.encode(p), type=P)",
        "p, q, al[0] is p, type(q) is P",
    ),
    "yaml class tags": (
        "import yaml\nclass Y(yaml.YAMLObject):\n    yaml_tag = '!Y'\n    def __init__(s, n): s.n = n\ny = Y(3)",
        "t = yaml.dump(y); z = yaml.load(t, yaml.Loader)",
        "t, z.n, type(z) is Y",
    ),
    "jax pytrees": (
        "import jax, jax.numpy as jnp\np = {'w': jnp.ones(2), 'b': [jnp.zeros(1)]}; al = p['b']; k = jax.random.PRNGKey(0)",
        "p['b'][0] = p['b'][0] + 1; k, s = jax.random.split(k); n = len(jax.tree.leaves(p))",
        "p['b'] is al, al[0].tolist(), n, jax.random.normal(k, (1,)).round(4).tolist()",
    ),
    "jax functions with derivatives of their own": (
        "import jax, jax.numpy as jnp\n@jax.custom_vjp\ndef f(x): return x * 2\nf.defvjp(lambda x: (f(x), None), lambda _, g: (g * 5,))\n@jax.custom_jvp\ndef h(x): return x * 3\nh.defjvps(lambda t, out, x: t * 7)",
        "made = jax.grad(f)(1.0).item(), jax.grad(h)(1.0).item(); own = f\n@jax.custom_vjp\ndef k(x): return x\nk.defvjp(lambda x: (x, None), lambda _, g: (g * 9,))",
        "made, own is f, jax.grad(f)(1.0).item(), jax.grad(k)(1.0).item(), f.__name__, f.__doc__",
    ),
    "jax jit": (
        "import jax, jax.numpy as jnp\n@jax.jit\ndef f(x): return x * 2\nf(1.)",
        "y = f(jnp.arange(3)); g = jax.grad(lambda x: x ** 2)",
        "y.tolist(), float(f(4.)), float(g(3.))",
    ),
    "matplotlib cmap": (
        "import matplotlib.colors as mc\nc = mc.ListedColormap(['r', 'b'], name='h32c'); n = mc.Normalize(0, 2)",
        "v = c(n(1)); n.vmax = 4",
        "v, n.vmax, c.N",
    ),
    "optuna": (
        "import optuna\noptuna.logging.set_verbosity(optuna.logging.ERROR)\ns = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)); s.optimize(lambda t: t.suggest_float('x', 0, 1), n_trials=1); al = s",
        "s.optimize(lambda t: t.suggest_float('x', 0, 1), n_trials=2)",
        "len(s.trials), al is s, [round(t.value, 4) for t in s.trials]",
    ),
    "torch dataset": (
        "import torch\nclass D(torch.utils.data.Dataset):\n    def __init__(s): s.reads = []\n    def __len__(s): return 4\n    def __getitem__(s, i): s.reads.append(i); return i\nd = D(); dl = torch.utils.data.DataLoader(d, 2, shuffle=True); torch.manual_seed(0)",
        "b = [x.tolist() for x in dl]",
        "b, sorted(d.reads), dl.dataset is d, torch.rand(1).item()",
    ),
    "torch distributions": (
        "import torch\nfrom torch import distributions as td\nd = td.Normal(torch.zeros(1, requires_grad=True), 1.); loc = d.loc; torch.manual_seed(2)",
        "x = d.sample().item(); lp = d.log_prob(torch.ones(1)).item()",
        "x, lp, d.sample().item(), d.loc is loc",
    ),
    "torch state dict": (
        "import torch\nm = torch.nn.Linear(1, 1); sd = m.state_dict(); best = copy.deepcopy(sd)",
        "with torch.no_grad(): m.weight.fill_(3.)\nbest['bias'].zero_()",
        "sd['weight'].item(), best['bias'].item(), best['weight'].item() != 3., list(sd) == list(best)",
    ),
    "torch amp scaler": (
        "import torch\ns = torch.amp.GradScaler('cpu', enabled=False); e = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(1, 1)); n = e.n_averaged",
        "e.update_parameters(torch.nn.Linear(1, 1))",
        "int(e.n_averaged), e.n_averaged is n",
    ),
    "torch grad fn": (
        "import torch\nw = torch.ones(2, requires_grad=True); o = torch.optim.Adam([w], lr=.1)",
        "(w * torch.tensor([1., 2.])).sum().backward(); o.step(); o.zero_grad()",
        "[round(x, 4) for x in w.tolist()], w.grad, o.state[w]['step'].item(), o.param_groups[0]['params'][0] is w",
    ),
    "torch named params": (
        "import torch\nnet = torch.nn.ModuleDict({'a': torch.nn.Linear(1, 1), 'b': torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1))])}); p = net['b'][0]",
        "net['c'] = torch.nn.Identity(); net['b'].append(torch.nn.Parameter(torch.ones(1)))",
        "list(net), len(net['b']), net['b'][0] is p",
    ),
    "np random global obj": (
        "import numpy as np\nrng = np.random.mtrand._rand; f = np.random.rand; np.random.seed(3)",
        "x = f(), rng.rand()",
        "x, f(), rng is np.random.mtrand._rand",
    ),
    "np poly": (
        "import numpy as np\np = np.polynomial.Polynomial([1, 2]); q = np.poly1d([1, 2])",
        "p.coef[0] = 5; r = p(1), q(1); q[0] = 9",
        "r, p.coef.tolist(), q.c.tolist()",
    ),
    "np errstate vectorize": (
        "import numpy as np\ncalls = []\ndef f(x): calls.append(x); return x + 1\nv = np.vectorize(f, otypes=[int], cache=False)",
        "r = v([1, 2]).tolist()",
        "r, calls, v(5).item()",
    ),
    "np strings": (
        "import numpy as np\ns = np.array(['a', 'bb']); t = np.char.array(['x']); u = np.array(['v'], dtype=np.dtypes.StringDType()) if hasattr(np.dtypes, 'StringDType') else s",
        "s[0] = 'zzz'; w = np.char.upper(s).tolist()",
        "s.tolist(), w, u.tolist()",
    ),
    "np datetime": (
        "import numpy as np\nd = np.array(['2024-01-01', 'NaT'], 'M8[D]'); v = d[:1]",
        "d += np.timedelta64(1, 'D'); n = int(np.isnat(d).sum())",
        "d.astype(str).tolist(), v.astype(str).tolist(), n",
    ),
    "np masked shared": (
        "import numpy as np\nm = np.ma.array([1., 2.], mask=[0, 1]); d = m.data; k = m.mask",
        "m[0] = 5; m[1] = np.ma.masked; x = m[1] is np.ma.masked",
        "x, m.tolist(), d.tolist(), k.tolist()",
    ),
    "np rec": (
        "import numpy as np\nr = np.rec.fromarrays([[1, 2], ['a', 'b']], names='n,s'); c = r.n",
        "r.n[0] = 7; r[1].s = 'z'",
        "r.tolist(), c.tolist(), r.s.tolist()",
    ),
    "pd eval": (
        "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]}); k = 3",
        "df.eval('b = a * @k', inplace=True); q = df.query('b > @k').index.tolist()",
        "df.to_dict('list'), q",
    ),
    "pd string index": (
        "import pandas as pd\ndf = pd.DataFrame({'k': ['b', 'a'], 'v': [1, 2]}).set_index('k'); ix = df.index; g = df.loc['a']",
        "df.loc['c'] = 5; df = df.sort_index()",
        "df.v.to_dict(), list(ix), g.v",
    ),
    "pd rolling": (
        "import pandas as pd\ns = pd.Series([1., 2., 3.]); r = s.rolling(2); e = s.ewm(alpha=.5)",
        "s.iloc[0] = 10.; a = r.mean().tolist(); b = e.mean().round(2).tolist()",
        "str(a), b, s.tolist()",
    ),
    "pd style": (
        "import pandas as pd\ndf = pd.DataFrame({'a': [1]}); st = df.style",
        "x = st.data is df",
        "x, st.data is df",
    ),
    "asyncio": (
        "import asyncio\nq = asyncio.Queue(); q.put_nowait([1])",
        "n = q.qsize(); q.put_nowait(2)",
        "n, q.qsize(), q.get_nowait()",
    ),
    "event": (
        "import threading\nclass H:\n    def __init__(s): s.n = 0; s.loc = 1\nh = H(); ev = []",
        "def work(): h.n += 1; ev.append(threading.current_thread().name.startswith('Thread'))\nt = threading.Thread(target=work); t.start(); t.join(); del t",
        "h.n, ev",
    ),
    "time zones": (
        "import zoneinfo\nz = zoneinfo.ZoneInfo('Europe/Berlin'); t = datetime.datetime(2024, 7, 1, tzinfo=z); d = {z: 1}",
        "u = t.utcoffset(); same = t.tzinfo is z, z is zoneinfo.ZoneInfo('Europe/Berlin'); d[z] += 1",
        "u, same, d[zoneinfo.ZoneInfo('Europe/Berlin')]",
    ),
    "uuid ipaddress": (
        "import uuid, ipaddress\nu = uuid.UUID(int=5); n = ipaddress.ip_network('10.0.0.0/30'); d = {u: n}",
        "x = d[uuid.UUID(int=5)] is n, list(n.hosts())[0] in n; d[u] = 3",
        "x, d[u]",
    ),
    "argparse": (
        "import argparse\np = argparse.ArgumentParser(prog='p'); p.add_argument('--n', type=int, default=3); ns = p.parse_args([])",
        "ns.n += 1; p.add_argument('--m', default='x'); more = p.parse_args(['--n', '5'])",
        "ns, more, p.parse_args([]).m",
    ),
    "configparser": (
        "import configparser\nc = configparser.ConfigParser(); c['a'] = {'x': '1'}; s = c['a']",
        "c['a']['x'] = '2'; c.add_section('b')",
        "c['a']['x'], c.sections(), s['x'], s.parser is c",
    ),
    "etree": (
        "import xml.etree.ElementTree as et\nr = et.fromstring('<a><b/></a>'); b = r[0]",
        "r[0].set('k', 'v'); et.SubElement(r, 'c')",
        "et.tostring(r), b.get('k'), r[0] is b",
    ),
    "callable class": (
        "class F:\n    def __init__(s): s.n = 0\n    def __call__(s, x): s.n += x; return s.n\nf = F(); h = [f.__call__, f]",
        "r = list(map(f, [1, 2])); h[0](3)",
        "r, f.n, h[1] is f, h[0].__self__ is f",
    ),
    "bound method alias": (
        "class C:\n    def __init__(s): s.n = 0\n    def up(s): s.n += 1; return s.n\nc = C(); up = c.up; subs = [up, c.up]",
        "up(); subs[1]()",
        "c.n, up(), up.__self__ is c, subs[0].__self__ is c",
    ),
    "static and class methods": (
        "class C:\n    n = 0\n    @staticmethod\n    def s(): return C.n\n    @classmethod\n    def k(cls): cls.n += 1; return cls.n\ns, k = C.s, C.k",
        "x = k(); y = s()",
        "x, y, C.n, k.__self__ is C, s()",
    ),
    "operator getters": (
        "g = operator.itemgetter(1, 0); a = operator.attrgetter('x.y'); m = operator.methodcaller('upper'); d = [g, a, m]",
        "x = g([1, 2]), m('a'); e = operator.itemgetter(slice(None))",
        "x, d[0] is g, e([3])",
    ),
    "contextlib": (
        "import contextlib\n@contextlib.contextmanager\ndef cm(l): l.append('in'); yield l; l.append('out')\nl = []; st = contextlib.ExitStack(); st.enter_context(cm(l)) if 0 else None",
        "with cm(l) as z: z.append('body')",
        "l, z is l",
    ),
    "typing things": (
        "T = typing.TypeVar('T'); A = typing.Annotated[int, 'm']; L = typing.Literal['a']; d = {A: 1, L: 2}",
        "x = d[typing.Annotated[int, 'm']], typing.get_args(L); class_ok = typing.get_type_hints(lambda: 0)\nclass B(typing.Generic[T]): pass\nb = B[int]()",
        "x, type(b) is B, B.__parameters__ == (T,)",
    ),
    "statistics bisect": (
        "import bisect\nl = [1, 3]; al = l",
        "bisect.insort(l, 2); i = bisect.bisect(l, 2)",
        "l, i, al is l",
    ),
    "sklearn custom": (
        "import numpy as np\nfrom sklearn.base import BaseEstimator, TransformerMixin\nclass T(BaseEstimator, TransformerMixin):\n    def __init__(self, k=1): self.k = k\n    def fit(self, X, y=None): self.m_ = np.mean(X); return self\n    def transform(self, X): return X - self.m_ * self.k\nt = T(); h = [t]",
        "Z = t.fit_transform(np.array([1., 3.])); t.set_params(k=2);",
        "Z.tolist(), h[0] is t, t.get_params(), repr(t)",
    ),
}
