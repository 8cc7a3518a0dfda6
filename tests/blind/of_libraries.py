CASES = {
# ---------- numpy ----------
"np view of view base write": (
"import numpy as np\nbig = np.arange(24.0).reshape(4, 6)\ncol = big[:, 2]\nrev = col[::-1]\n",
"rev[0] = -1\nrev.sort()\n",
"(big[:, 2].tolist(), col.tolist(), rev.base is big.base, np.shares_memory(rev, big))"),
"np sliding window writeable": (
"import numpy as np\nfrom numpy.lib.stride_tricks import sliding_window_view\nx = np.arange(8)\nw = sliding_window_view(x, 3, writeable=True)\n",
"w[0, 2] = 100\n",
"(w.tolist(), x.tolist(), w.strides, np.shares_memory(w, x))"),
"np structured field view": (
"import numpy as np\nrec = np.zeros(3, dtype=[('id', 'i4'), ('pos', 'f8', (2,))])\npos = rec['pos']\nfirst = rec[0]\n",
"first['id'] = 7\npos[:, 1] = [1, 2, 3]\n",
"(rec.tolist(), first['id'].item(), first.item()[0], np.shares_memory(pos, rec))"),
"np generator shared bit generator": (
"import numpy as np\nbg = np.random.PCG64(5)\ng1 = np.random.Generator(bg)\ng2 = np.random.Generator(bg)\n",
"a = g1.integers(0, 1000, 3)\n",
"(a.tolist(), g2.integers(0, 1000, 3).tolist(), g1.integers(0, 1000, 3).tolist(), g1.bit_generator is g2.bit_generator)"),
"np legacy RandomState gauss cache": (
"import numpy as np\nnp.random.seed(3)\nlegacy = np.random.mtrand._rand\n",
"v = np.random.randn()\n",
"(float(v), float(legacy.randn()), float(np.random.randn()), legacy is np.random.mtrand._rand)"),
"np seedsequence spawn counter": (
"import numpy as np\nss = np.random.SeedSequence(11)\nrng = np.random.default_rng(ss)\n",
"kids = rng.spawn(2)\n",
"(ss.n_children_spawned, rng.bit_generator.seed_seq is ss, int(ss.spawn(1)[0].generate_state(1)[0]), int(kids[1].integers(10**6)))"),
"np readonly flag after body": (
"import numpy as np\ntable = np.arange(5)\nalias = table\nv = table[1:3]\n",
"table.flags.writeable = False\nw = table[2:]\n",
"(alias.flags.writeable, v.flags.writeable, w.flags.writeable, w.base is table)"),
"np subclass with array_finalize attribute": (
"import numpy as np\nclass Unit(np.ndarray):\n    made = []\n    def __new__(cls, d, unit):\n        o = np.asarray(d, float).view(cls); o.unit = unit; return o\n    def __array_finalize__(self, o):\n        self.unit = getattr(o, 'unit', None)\n        Unit.made.append(self.unit)\nu = Unit([1, 2, 3], 'm')\nn0 = len(Unit.made)\n",
"half = u[:2]\nhalf.unit = 'km'\ndbl = u * 2\n",
"(Unit.made[n0:n0+4], half.unit, u.unit, dbl.unit, len(Unit.made), half.base is u)"),
"np masked array shared mask": (
"import numpy as np\nm = np.ma.array([1, 2, 3, 4], mask=[0, 1, 0, 0])\ns = m[1:3]\n",
"s[1] = np.ma.masked\nm.harden_mask()\ns[0] = 50\n",
"(m.tolist(), s.tolist(), m.hardmask, s.hardmask, m.data.tolist(), m.sharedmask, s.sharedmask, np.shares_memory(m.mask, s.mask))"),
"np object array self containing": (
"import numpy as np\ncell = np.empty(3, dtype=object)\nshared = {'n': 0}\ncell[0] = shared; cell[1] = cell; cell[2] = cell[:1]\n",
"cell[2][0]['n'] += 1\ncell[1][1][0]['m'] = 2\n",
"(shared, cell[1] is cell, cell[2].base is cell, cell[0] is shared)"),
"np errstate call handler": (
"import numpy as np\nlog = []\nold = np.seterrcall(lambda kind, flag: log.append(kind))\n_ = np.seterr(divide='call')\n",
"r = np.ones(2) / np.zeros(2)\nnp.seterr(over='ignore')\n",
"(log, np.geterr()['divide'], np.geterr()['over'], (np.array([1.0]) / 0).tolist(), log)"),
"np printoptions legacy in body": (
"import numpy as np\narr = np.array([1/3, 2/3, 1e-9])\n",
"np.set_printoptions(precision=2, suppress=True, formatter={'bool': lambda b: 'Y' if b else 'N'})\n",
"(str(arr), str(np.array([True, False])), np.get_printoptions()['precision'])"),
"np nditer half consumed": (
"import numpy as np\na = np.arange(6).reshape(2, 3)\nit = a.flat\nnext(it)\n",
"next(it); it[5] = 77\n",
"(next(it).item(), it.index, it.base is a, a.tolist(), [int(i) for i in it])"),
"np dtype metadata and fortran": (
"import numpy as np\ndt = np.dtype('f8', metadata={'unit': 'eV'})\ne = np.zeros((2, 3), dtype=dt, order='F')\n",
"e += 1.5\nf = e.T\n",
"(e.dtype.metadata, e.flags.f_contiguous, f.base is e, e.dtype is dt, f.flags.c_contiguous, e.sum().item())"),
"np memory from bytearray": (
"import numpy as np\nbuf = bytearray(8)\narr = np.frombuffer(buf, dtype='<u2')\nmv = memoryview(buf)[2:4]\n",
"arr[1] = 0x0201\nbuf[7] = 9\n",
"(bytes(buf), arr.tolist(), bytes(mv), mv.obj is buf)"),
# ---------- pandas ----------
"pd index name shared between frames": (
"import pandas as pd\nidx = pd.Index([1, 2, 3], name='k')\ndf = pd.DataFrame({'a': [1, 2, 3]}, index=idx)\ndf2 = pd.DataFrame({'b': [4, 5, 6]}, index=idx)\nsame0 = df.index.is_(df2.index)\n",
"df['c'] = 1\nidx.name = 'renamed'\n",
"(same0, df.index.name, df2.index.name, idx.name, df.index.is_(idx), df2.index.is_(idx), list(df))"),
"pd accessor cached on series": (
"import pandas as pd\n@pd.api.extensions.register_series_accessor('tally')\nclass Tally:\n    def __init__(self, s):\n        self.s = s; self.calls = 0\n    def hit(self):\n        self.calls += 1; return self.calls\nser = pd.Series([1, 2])\nser.tally.hit()\n",
"ser.tally.hit()\nother = ser.tally\n",
"(ser.tally.hit(), other is ser.tally, other.s is ser, other.calls)"),
"pd attrs aliasing": (
"import pandas as pd\nmeta = {'src': ['raw']}\ndf = pd.DataFrame({'a': [1, 2]})\ndf.attrs['meta'] = meta\n",
"meta['src'].append('clean')\nh = df.head(1)\nh.attrs['meta']['src'].append('h')\n",
"(df.attrs, h.attrs, meta, df.attrs['meta'] is meta, h.attrs['meta'] is meta)"),
"pd categories order and cat identity": (
"import pandas as pd\nct = pd.CategoricalDtype(['lo', 'mid', 'hi'], ordered=True)\ns = pd.Series(['lo', 'hi'], dtype=ct)\nraw = s.array\n",
"raw[0] = 'mid'\nt = s.cat.add_categories(['max'])\n",
"(s.tolist(), list(raw), s.dtype is ct, raw.dtype is ct, list(t.cat.categories), (s < 'hi').tolist())"),
"pd subclass metadata propagation": (
"import pandas as pd\nclass Trial(pd.DataFrame):\n    _metadata = ['site']\n    registry = []\n    @property\n    def _constructor(self):\n        return Trial\nt = Trial({'x': [1, 2, 3]})\nt.site = 'Oslo'\nTrial.registry.append(t)\n",
"t['y'] = t.x * 2\nsub = t[t.x > 1]\nsub.site = 'Bergen'\nTrial.registry.append(sub)\n",
"([(type(r).__name__, r.site, r.shape) for r in Trial.registry], Trial.registry[0] is t, Trial.registry[1] is sub)"),
"pd option context entered across cells": (
"import pandas as pd\nctx = pd.option_context('display.max_rows', 4, 'display.precision', 1)\nctx.__enter__()\ndf = pd.DataFrame({'a': [1/3]})\n",
"pd.set_option('display.precision', 3)\ns1 = str(df)\nctx.__exit__(None, None, None)\n",
"(s1, str(df), pd.get_option('display.max_rows'), pd.get_option('display.precision'))"),
"pd groupby object with lazily cached frame": (
"import pandas as pd\ndf = pd.DataFrame({'g': list('aab'), 'v': [1, 2, 3]})\ngb = df.groupby('g')\n",
"df.loc[0, 'v'] = 100\nfirst = gb.get_group('a')\n",
"(gb['v'].sum().to_dict(), gb.obj is df, first.v.tolist(), df.v.tolist())"),
"pd rolling expanding iterator": (
"import pandas as pd\ns = pd.Series([1, 2, 3, 4])\nrows = pd.DataFrame({'a': [1, 2, 3], 'b': [4, 5, 6]}).itertuples(name='Row')\nwins = iter(s.rolling(2))\nnext(rows)\n",
"r = next(rows)\nw = next(wins); w2 = next(wins)\n",
"(r.a, type(r).__name__, type(next(rows)) is type(r), w2.tolist(), next(wins).tolist())"),
"pd to_numpy readonly cow": (
"import pandas as pd, numpy as np\nbase = np.array([1.0, 2.0, 3.0])\ns = pd.Series(base, copy=False)\nview = s.to_numpy()\n",
"base[0] = 10\ns.iloc[1] = 20\n",
"(base.tolist(), s.tolist(), view.tolist(), view.flags.writeable, np.shares_memory(base, view), np.shares_memory(base, s.to_numpy()))"),
"pd column attribute instance monkeypatch": (
"import pandas as pd\ndf = pd.DataFrame({'a': [3, 1]})\n",
"import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    df.note = ['memo']\nobject.__setattr__(df, 'describe', lambda: 'patched')\npd.DataFrame.double = lambda self: self * 2\n",
"(df.note, df.describe(), df.double().a.tolist(), 'note' in df.columns, hasattr(df.copy(), 'note'))"),
"pd offset alias timestamps singleton": (
"import pandas as pd\nmissing = [pd.NA, pd.NaT, None]\ndf = pd.DataFrame({'t': pd.to_datetime(['2024-01-31', None]), 'i': pd.array([1, None], dtype='Int64')})\n",
"missing.append(df.i.iloc[1]); missing.append(df.t.iloc[1])\nseen = {pd.NA: 'na'}\n",
"([m is pd.NA for m in missing], [m is pd.NaT for m in missing], seen[df.i.iloc[1]])"),
# ---------- torch ----------
"torch tied weights and optimizer": (
"import torch\ntorch.manual_seed(0)\nenc = torch.nn.Linear(3, 3, bias=False); dec = torch.nn.Linear(3, 3, bias=False)\ndec.weight = enc.weight\nopt = torch.optim.SGD(enc.parameters(), lr=0.1, momentum=0.9)\n",
"x = torch.ones(2, 3)\nfor _ in range(2):\n    opt.zero_grad(); dec(enc(x)).sum().backward(); opt.step()\n",
"(dec.weight is enc.weight, opt.param_groups[0]['params'][0] is enc.weight, list(opt.state)[0] is dec.weight, [round(v, 5) for v in enc.weight.flatten().tolist()], enc.weight.grad is not None)"),
"torch forward hook handle removal": (
"import torch\ncap = []\nlin = torch.nn.Linear(2, 1)\nwith torch.no_grad():\n    lin.weight.fill_(1); lin.bias.zero_()\nh = lin.register_forward_hook(lambda m, i, o: cap.append(o.item()))\n",
"lin(torch.ones(2))\nh2 = lin.register_forward_hook(lambda m, i, o: o * 10)\n",
"(lin(torch.ones(2)).item(), h.remove(), lin(torch.ones(2)).item(), h2.remove(), lin(torch.ones(2)).item(), cap)"),
"torch scheduler wraps optimizer step": (
"import torch\np = torch.nn.Parameter(torch.zeros(1))\nopt = torch.optim.Adam([p], lr=1.0)\nsch = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)\n",
"for _ in range(3):\n    p.grad = torch.ones(1); opt.step(); sch.step()\n",
"(sch.optimizer is opt, opt.param_groups[0]['lr'], sch.get_last_lr(), p.grad.item(), round(p.item(), 4), int(opt.state[p]['step']), sch.step(), opt.param_groups[0]['lr'])"),
"torch graph alive across cells": (
"import torch\nw = torch.tensor([2.0], requires_grad=True)\ny = w ** 2\n",
"z = y * 3\nz.retain_grad()\n",
"(z.backward(), w.grad.tolist(), z.grad.tolist(), z.grad_fn.next_functions[0][0] is y.grad_fn)"),
"torch view storage sharing expand": (
"import torch\nbase = torch.arange(6.).reshape(2, 3)\nrow = base[1]\nt = base.t()\nnp_side = base.numpy()\n",
"row.mul_(10)\nt[0, 0] = -5\n",
"(base.tolist(), np_side.tolist(), row.data_ptr() - base.data_ptr(), t.stride(), row._base is base, base._version == row._version, base._version)"),
"torch parametrization weight norm": (
"import torch\nfrom torch.nn.utils import parametrize\nclass Sym(torch.nn.Module):\n    calls = 0\n    def forward(self, X):\n        Sym.calls += 1\n        return X.triu() + X.triu(1).T\nl = torch.nn.Linear(2, 2, bias=False)\nwith torch.no_grad():\n    l.weight.copy_(torch.tensor([[1., 2.], [3., 4.]]))\n",
"parametrize.register_parametrization(l, 'weight', Sym())\nsnap = Sym.calls\n",
"(l.weight.tolist(), type(l).__name__, type(l) is torch.nn.Linear, Sym.calls - snap, [n for n, _ in l.named_parameters()])"),
"torch generator and global seed": (
"import torch\ng = torch.Generator().manual_seed(7)\ntorch.manual_seed(1)\nloader = torch.utils.data.DataLoader(list(range(6)), batch_size=2, shuffle=True, generator=g)\n",
"first = [b.tolist() for b in loader]\nr = torch.rand(1).item()\n",
"(first, [b.tolist() for b in loader], r, torch.rand(1).item(), torch.randint(100, (2,), generator=g).tolist(), loader.generator is g)"),
"torch default dtype and grad mode": (
"import torch\nlog = [torch.get_default_dtype()]\n",
"torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\ntorch.set_printoptions(precision=2)\n",
"(torch.tensor(1/3), torch.is_grad_enabled(), (torch.ones(1, requires_grad=True) * 2).requires_grad, log[0])"),
"torch tensor python attributes": (
"import torch\nt = torch.zeros(2)\nt.tag = {'owner': 'me'}\nalias = t\nk = t[:1]\n",
"t.tag['n'] = 1\nt.add_(1)\nk.role = 'slice'\nk.parent = t\n",
"(alias.tag, alias.tolist(), k.role, k.parent is alias, k.tolist())"),
"torch grad hook and accumulated grad": (
"import torch\np = torch.nn.Parameter(torch.ones(2))\nseen = []\nhandle = p.register_hook(lambda g: (seen.append(g.sum().item()), g * 0.5)[1])\n",
"(p * 4).sum().backward()\ng0 = p.grad\n",
"((p * 2).sum().backward(), p.grad.tolist(), g0 is p.grad, seen)"),
"torch batchnorm buffers and train flag": (
"import torch\nbn = torch.nn.BatchNorm1d(2)\nrm = bn.running_mean\nsd = bn.state_dict()\n",
"bn(torch.tensor([[1., 2.], [3., 4.]])); bn.eval()\nbn.register_buffer('seen', torch.tensor(2), persistent=False)\n",
"(rm is bn.running_mean, [round(v, 3) for v in sd['running_mean'].tolist()], sd['num_batches_tracked'].item(), bn.training, list(bn.state_dict()), bn.seen.item())"),
"torch flattened params rnn": (
"import torch\ntorch.manual_seed(2)\nlstm = torch.nn.LSTM(2, 2)\nfw = lstm._flat_weights\nw0 = lstm.weight_ih_l0\n",
"with torch.no_grad():\n    lstm.weight_ih_l0.fill_(0.25)\nout, (hn, cn) = lstm(torch.ones(1, 1, 2))\n",
"(fw is lstm._flat_weights, fw[0] is w0, w0 is lstm.weight_ih_l0, fw[0].flatten()[0].item(), round(out.sum().item(), 5))"),
"torch autograd Function with class counter": (
"import torch\nclass Clip(torch.autograd.Function):\n    backs = 0\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x); return x.clamp(0, 1)\n    @staticmethod\n    def backward(ctx, g):\n        Clip.backs += 1\n        x, = ctx.saved_tensors\n        return g * (x < 1)\nx = torch.tensor([.5, 2.], requires_grad=True)\nloss = Clip.apply(x).sum()\n",
"loss.backward()\n",
"(x.grad.tolist(), Clip.backs, loss.grad_fn is not None, loss.requires_grad)"),
"torch saved graph freed error kept": (
"import torch\na = torch.tensor(3., requires_grad=True)\nb = a * a\nb.backward()\ndef again():\n    try:\n        b.backward(); return 'ok'\n    except RuntimeError as e:\n        return 'freed'\n",
"s1 = again()\na.grad.zero_()\nc = b.detach()\nc += 1\n",
"(s1, again(), b.item(), c.item(), a.grad.item(), c._base is None)"),
# ---------- sklearn / scipy / statsmodels ----------
"sklearn random_state instance shared": (
"import numpy as np\nfrom sklearn.model_selection import ShuffleSplit\nfrom sklearn.utils import check_random_state\nrs = np.random.RandomState(0)\nsp = ShuffleSplit(n_splits=1, test_size=2, random_state=rs)\n",
"first = next(sp.split(range(8)))[1].tolist()\n",
"(first, next(sp.split(range(8)))[1].tolist(), sp.random_state is rs, int(rs.randint(1000)))"),
"sklearn global config": (
"import sklearn\nfrom sklearn.preprocessing import StandardScaler\nimport pandas as pd\ndf = pd.DataFrame({'a': [1., 2., 3.]})\nsc = StandardScaler()\n",
"sklearn.set_config(transform_output='pandas', print_changed_only=False)\nout = sc.fit_transform(df)\n",
"(type(sc.transform(df)).__name__, sklearn.get_config()['print_changed_only'], repr(sc), list(out))"),
"sklearn partial fit warm start aliasing": (
"import numpy as np\nfrom sklearn.linear_model import SGDRegressor\nfrom sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler\nX = np.arange(6.).reshape(6, 1); y = X.ravel() * 2\nreg = SGDRegressor(random_state=0)\npipe = make_pipeline(StandardScaler(), reg)\n",
"pipe.fit(X, y)\nreg.partial_fit(X, y)\n",
"(pipe[-1] is reg, pipe.named_steps['sgdregressor'] is reg, reg.t_, pipe.steps[1][1].coef_ is reg.coef_, round(float(reg.coef_[0]), 6))"),
"sklearn function transformer closure memo": (
"import numpy as np\nfrom sklearn.preprocessing import FunctionTransformer\nseen = []\ndef note(X):\n    seen.append(X.shape)\n    return X * scale\nscale = 2\nft = FunctionTransformer(note)\n",
"a = ft.fit_transform(np.ones((2, 1)))\nscale = 5\n",
"(a.tolist(), ft.transform(np.ones((1, 1))).tolist(), seen, ft.func is note)"),
"sklearn metadata routing set_fit_request on instance": (
"import sklearn\nsklearn.set_config(enable_metadata_routing=True)\nfrom sklearn.linear_model import LogisticRegression\nfrom sklearn.base import clone\nlr = LogisticRegression()\n",
"lr.set_fit_request(sample_weight=True)\nlr.extra_note = 'mine'\nc2 = clone(lr)\n",
"(lr._metadata_request.fit.requests, c2.get_metadata_routing().fit.requests, hasattr(c2, 'extra_note'), lr.extra_note, sklearn.get_config()['enable_metadata_routing'])"),
"scipy frozen dist random_state": (
"import numpy as np\nfrom scipy import stats\nrng = np.random.default_rng(1)\nfz = stats.norm(0, 1); fz.random_state = rng\nstats.uniform.random_state = 4\n",
"a = fz.rvs(); b = stats.uniform.rvs()\n",
"(float(a), float(fz.rvs()), float(rng.normal()), float(b), float(stats.uniform.rvs()), fz.random_state is rng)"),
"scipy csr shared data arrays": (
"import numpy as np\nfrom scipy import sparse\ndat = np.array([1., 2., 3.]); ind = np.array([0, 2, 1], dtype=np.int32); ptr = np.array([0, 2, 3], dtype=np.int32)\nA = sparse.csr_matrix((dat, ind, ptr), shape=(2, 3))\nB = A.T\n",
"dat *= 10\nA.data[0] = -1\n",
"(A.toarray().tolist(), B.toarray().tolist(), dat.tolist(), np.shares_memory(A.data, dat), np.shares_memory(B.data, dat))"),
"scipy sobol sampler state and ode": (
"from scipy.stats import qmc\nfrom scipy.integrate import RK45\nsob = qmc.Sobol(2, scramble=False)\ncalls = []\nsolver = RK45(lambda t, y: (calls.append(t), -y)[1], 0, [1.0], 1.0, max_step=0.5)\nn0 = len(calls)\n",
"p = sob.random(2); solver.step()\n",
"(p.tolist(), sob.random(2).tolist(), sob.num_generated, round(float(solver.t), 6), len(calls) - n0, solver.step(), len(calls) - n0, solver.nfev == len(calls))"),
"statsmodels results cached attributes": (
"import numpy as np, statsmodels.api as sm\nX = sm.add_constant(np.arange(5.)); y = np.array([1., 3., 5., 7., 10.])\nmodel = sm.OLS(y, X)\nres = model.fit()\n",
"r1 = res.resid\nres2 = model.fit()\nmodel.tag = 'edited'\n",
"(res.model is model, res2.model is model, res.resid is r1, res2.model.tag, np.shares_memory(res.model.endog, model.endog), [round(v, 6) + 0.0 for v in res2.params.tolist()])"),
# ---------- matplotlib ----------
"mpl current figure and axes continuity": (
"import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\nfig, (ax1, ax2) = plt.subplots(1, 2)\n(line,) = ax1.plot([1, 2])\n",
"plt.sca(ax1); plt.plot([3, 4])\nline.set_color('red')\n",
"(plt.gca() is ax1, plt.gcf() is fig, len(ax1.lines), ax1.lines[0] is line, line.get_color(), line.axes is ax1, ax1.lines[1].get_color(), plt.get_fignums())"),
"mpl rcParams alias and cycler": (
"import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\nfrom cycler import cycler\nrc = plt.rcParams\n",
"plt.style.use('ggplot'); plt.rcParams['axes.prop_cycle'] = cycler(color=['k', 'y'])\nmatplotlib.colormaps.register(matplotlib.colors.ListedColormap(['r', 'b'], name='duo'))\n",
"(rc is matplotlib.rcParams, rc['axes.facecolor'], [d['color'] for d in rc['axes.prop_cycle']], matplotlib.colormaps['duo'].colors, plt.plot([1])[0].get_color())"),
"mpl event callback on canvas": (
"import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\nhits = []\nfig, ax = plt.subplots()\ncid = ax.callbacks.connect('xlim_changed', lambda a: hits.append(tuple(float(v) for v in a.get_xlim())))\n",
"ax.set_xlim(0, 5)\nax2 = ax.twinx()\n",
"(hits, ax.set_xlim(1, 2), hits, ax2.get_xlim() == ax.get_xlim(), ax.get_shared_x_axes().joined(ax, ax2), ax.callbacks.disconnect(cid), ax.set_xlim(3, 4), len(hits))"),
"mpl norm shared by two images": (
"import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt, numpy as np\nfrom matplotlib.colors import Normalize\nnorm = Normalize(0, 1)\nfig, axs = plt.subplots(1, 2)\nims = [a.imshow(np.eye(2), norm=norm) for a in axs]\nchg = []\nnorm.callbacks.connect('changed', lambda: chg.append(norm.vmax))\n",
"norm.vmax = 4\ncb = fig.colorbar(ims[0])\n",
"(ims[0].norm is norm, ims[1].norm is norm, ims[1].get_clim(), chg, cb.mappable is ims[0], ims[0].colorbar is cb, len(fig.axes))"),
# ---------- networkx / sympy ----------
"nx subgraph view live": (
"import networkx as nx\nG = nx.path_graph(4)\nG.graph['opts'] = opts = {'w': 1}\nview = G.subgraph([0, 1, 2])\nd = G[0][1]\n",
"G.add_edge(0, 2, w=9)\nG[1][0]['w'] = 5\nopts['w'] = 2\n",
"(sorted(view.edges(data='w'), key=str), d, G[1][0] is d, G.adj[0][1] is d, G.graph['opts'] is opts, view._graph is G)"),
"nx cached adj property and node identity": (
"import networkx as nx\nclass City:\n    def __init__(self, n): self.n = n\n    def __repr__(self): return self.n\na, b = City('a'), City('b')\nG = nx.DiGraph([(a, b)])\nadj = G.adj; nodes = G.nodes\n",
"a.pop = 10\nc = City('c'); G.add_edge(b, c)\nG.nodes[a]['seen'] = True\n",
"(adj is G.adj, nodes is G.nodes, list(adj), list(G)[0] is a, a in G, b in G._pred[c], nodes[a], list(G)[0].pop)"),
"sympy symbol identity and dummy": (
"import sympy as sp\nx = sp.Symbol('x', positive=True); d1 = sp.Dummy('x'); f = sp.Function('f')\nexpr = d1 + x\n",
"e2 = expr.subs(d1, 3)\ne3 = f(x) + d1\nd2 = sp.Dummy('x')\n",
"(e2 - x, e3.has(d1), d1 == d2, (e3 - f(x)) is d1, d2 == sp.Dummy('x'), e3.func is sp.Add, f(x) == sp.Function('f')(x), sp.sqrt(x**2) is x)"),
"sympy assumptions global context": (
"import sympy as sp\nfrom sympy.assumptions import global_assumptions, Q, ask\ny = sp.Symbol('y')\n",
"global_assumptions.add(Q.positive(y))\nr = ask(Q.negative(y))\nsp.init_printing(pretty_print=False)\n",
"(r, ask(Q.positive(y)), len(global_assumptions), global_assumptions.remove(Q.positive(y)), ask(Q.positive(y)))"),
"sympy mutable matrix alias and wild class": (
"import sympy as sp\nM = sp.zeros(2, 2); N = M; I = M.as_immutable()\nclass sq(sp.Function):\n    evals = 0\n    @classmethod\n    def eval(cls, a):\n        cls.evals += 1\n        if a.is_Integer: return a * a\nt = sp.Symbol('t')\nh = sq(t)\nk0 = sq.evals\n",
"M[0, 1] = sq(3)\nM[1, 1] = h\nafter = sq.evals\n",
"(N is M, N[0, 1], N[1, 1] is h, I[0, 1], h.func is sq, h.subs(t, 4), sq.evals > after, after - k0)"),
# ---------- polars / pyarrow ----------
"polars lazyframe with python udf": (
"import polars as pl\ncount = {'n': 0}\ndef f(v):\n    count['n'] += 1\n    return v + bias\nbias = 10\nlf = pl.LazyFrame({'a': [1, 2, 3]}).with_columns(pl.col('a').map_batches(lambda s: f(s), return_dtype=pl.Int64).alias('b'))\n",
"out = lf.collect()['b'].to_list()\nbias = 100\n",
"(out, lf.collect()['b'].to_list(), count)"),
"polars config and namespace registry": (
"import polars as pl\ndf = pl.DataFrame({'a': [1.23456]})\nalias = df\n",
"pl.Config.set_float_precision(2)\n@pl.api.register_dataframe_namespace('mine')\nclass Mine:\n    def __init__(self, df): self._df = df\n    def total(self): return self._df['a'].sum()\ndf.insert_column(1, pl.Series('b', [2]))\n",
"(df.mine.total(), '1.23' in str(df) and '1.2346' not in str(df), alias.columns, alias is df, pl.DataFrame.mine is Mine or type(pl.DataFrame.__dict__['mine']).__name__)"),
"pyarrow zero copy buffer to numpy": (
"import numpy as np, pyarrow as pa\nsrc = np.arange(4, dtype='int64')\narr = pa.array(src)\nbuf = pa.py_buffer(src)\nback = np.frombuffer(buf, dtype='int64')\nwrapped = pa.Array.from_buffers(pa.int64(), 4, [None, buf])\n",
"src[0] = 99\n",
"(wrapped.to_pylist(), back.tolist(), np.shares_memory(back, src), np.shares_memory(wrapped.to_numpy(), src))"),
"pyarrow stream reader position and extension type": (
"import pyarrow as pa\nclass Deg(pa.ExtensionType):\n    def __init__(self): super().__init__(pa.float64(), 'adv.deg')\n    def __arrow_ext_serialize__(self): return b''\n    @classmethod\n    def __arrow_ext_deserialize__(cls, st, ser): return cls()\nsink = pa.BufferOutputStream()\n",
"pa.register_extension_type(Deg())\narr = pa.ExtensionArray.from_storage(Deg(), pa.array([1.0, 2.0]))\ntb = pa.table({'d': arr})\nn = sink.write(b'abc')\n",
"(type(tb.schema.field('d').type) is Deg, sink.tell(), sink.write(b'de'), sink.getvalue().to_pybytes(), pa.unregister_extension_type('adv.deg'))"),
# ---------- jax ----------
"jax jit tracing counter and cache": (
"import jax, jax.numpy as jnp\ntraces = []\n@jax.jit\ndef step(x):\n    traces.append(x.shape)\n    return x * k\nk = 2.0\nstep(jnp.ones(2))\n",
"r = step(jnp.ones(2)); k = 5.0\nq = step(jnp.ones(3))\n",
"(r.tolist(), q.tolist(), step(jnp.ones(2)).tolist(), traces, step._cache_size())"),
"jax pytree registration and x64": (
"import jax, jax.numpy as jnp\nclass Pt:\n    made = 0\n    def __init__(self, x, y):\n        Pt.made += 1; self.x, self.y = x, y\npt = Pt(1.0, 2.0)\n",
"jax.tree_util.register_pytree_node(Pt, lambda p: ((p.x, p.y), 'aux'), lambda aux, ch: Pt(*ch))\njax.config.update('jax_enable_x64', True)\np2 = jax.tree_util.tree_map(lambda v: v + 1, pt)\n",
"(Pt.made, jax.tree_util.tree_leaves(p2), jnp.ones(1).dtype.name, type(p2) is Pt, len(jax.tree_util.tree_leaves(pt)))"),
# ---------- optuna / pydantic / attrs / msgspec ----------
"optuna sampler state and study attrs": (
"import optuna\noptuna.logging.set_verbosity(optuna.logging.ERROR)\nsam = optuna.samplers.RandomSampler(seed=0)\nstudy = optuna.create_study(sampler=sam)\ntrace = []\ndef obj(t):\n    v = t.suggest_float('x', 0, 1); trace.append(round(v, 6)); return v\nstudy.optimize(obj, n_trials=1)\n",
"study.optimize(obj, n_trials=2, callbacks=[lambda s, t: s.set_user_attr('last', t.number)])\n",
"(len(study.trials), study.user_attrs, trace, study.sampler is sam, study.optimize(obj, n_trials=1), trace, len(study.trials), optuna.logging.get_verbosity())"),
"pydantic private attr and computed cache": (
"from functools import cached_property\nfrom pydantic import BaseModel, PrivateAttr, computed_field\nlog = []\nclass M(BaseModel):\n    xs: list[int]\n    opt: int = 3\n    _hist: list = PrivateAttr(default_factory=list)\n    @cached_property\n    def total(self):\n        log.append('calc'); return sum(self.xs)\nm = M(xs=[1, 2])\n",
"m.total; m._hist.append(m.xs); m.xs.append(10); m.opt = 3\n",
"(m.total, log, m._hist[0] is m.xs, sorted(m.model_fields_set), m == M(xs=[1, 2, 10]), m.model_copy()._hist is m._hist)"),
"pydantic model rebuilt forward reference": (
"from __future__ import annotations\nfrom pydantic import BaseModel\nclass Node(BaseModel):\n    val: int\n    leaf: 'Leaf | None' = None\nready0 = Node.__pydantic_complete__\n",
"class Leaf(BaseModel):\n    name: str\nNode.model_rebuild(_types_namespace={'Leaf': Leaf})\nn = Node(val=1, leaf={'name': 'z'})\n",
"(ready0, Node.__pydantic_complete__, type(n.leaf) is Leaf, type(n) is Node, Node(val=2, leaf={'name': 'q'}).leaf == Leaf(name='q'), Node.__subclasses__())"),
"attrs slots weakref converter counter": (
"import attr, itertools, weakref\nctr = itertools.count(1)\n@attr.s(slots=True, weakref_slot=True, auto_attribs=True, eq=False)\nclass Run:\n    name: str\n    uid: int = attr.Factory(lambda: next(ctr))\n    kids: list = attr.Factory(list)\nr = Run('base')\nref = weakref.ref(r)\n",
"kid = attr.evolve(r, name='kid'); r.kids.append(Run('new'))\nr.name = 'changed'\n",
"(ref() is r, ref().name, kid.uid, kid.kids is r.kids, r.kids[0].uid, next(ctr))"),
"msgspec struct frozen cache hash and decoder": (
"import msgspec\nclass Pt(msgspec.Struct, frozen=True, cache_hash=True, weakref=True):\n    x: int\n    tags: list = msgspec.field(default_factory=list)\n    def __post_init__(self): made.append(self.x)\nmade = []\np = Pt(1); dec = msgspec.json.Decoder(Pt)\n",
"q = dec.decode(b'{\"x\": 2}')\np.tags.append('t'); msgspec.structs.force_setattr(p, 'x', 9)\n",
"(type(q) is Pt, made, p, dec.type is Pt, type(dec.decode(b'{\"x\":3}')) is Pt, made)"),
# ---------- sqlalchemy ----------
"sqlalchemy identity map in memory session": (
"from sqlalchemy import create_engine, String, event\nfrom sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, Session\nfrom sqlalchemy.pool import StaticPool\nclass Base(DeclarativeBase): pass\nclass User(Base):\n    __tablename__ = 'u'\n    id: Mapped[int] = mapped_column(primary_key=True)\n    name: Mapped[str] = mapped_column(String(20))\neng = create_engine('sqlite://', poolclass=StaticPool)\nBase.metadata.create_all(eng)\nses = Session(eng)\nu = User(id=1, name='ann'); ses.add(u); ses.commit()\n",
"u.name = 'bob'\nv = User(id=2, name='cy'); ses.add(v); ses.flush()\n",
"(ses.get(User, 1) is u, ses.get(User, 2) is v, u.name, v in ses, ses.rollback(), u.name, v in ses)"),
"sqlalchemy events and instance state detached": (
"from sqlalchemy import event, inspect\nfrom sqlalchemy.orm import declarative_base, relationship\nfrom sqlalchemy import Column, Integer, ForeignKey\nB = declarative_base()\nclass Par(B):\n    __tablename__ = 'par'; id = Column(Integer, primary_key=True)\n    kids = relationship('Kid', back_populates='par')\nclass Kid(B):\n    __tablename__ = 'kid'; id = Column(Integer, primary_key=True); pid = Column(ForeignKey('par.id'))\n    par = relationship(Par, back_populates='kids')\nlog = []\n@event.listens_for(Par.kids, 'append')\ndef _app(t, v, ini): log.append((t.id, v.id))\np = Par(id=1); lst = p.kids\n",
"k = Kid(id=5); p.kids.append(k)\nk2 = Kid(id=6, par=p)\n",
"(log, lst is p.kids, k.par is p, len(lst), lst.append(Kid(id=7)), lst[-1].par is p, log, inspect(p).attrs.kids.history.added == lst)"),
# ---------- requests / PIL / tqdm / ipywidgets ----------
"requests session hooks cookies adapters": (
"import requests\ns = requests.Session()\ns.headers['X-Run'] = '1'\nhdr = s.headers\ndef auth(r):\n    r.headers['Signed'] = str(len(r.url)); stamps.append(r.method); return r\nstamps = []\ns.auth = auth\nad = s.get_adapter('https://x')\n",
"s.cookies.set('tok', 'abc', domain='h.io'); hdr['x-run'] = '2'\ns.hooks['response'].append(auth)\nprep = s.prepare_request(requests.Request('GET', 'http://h.io/a', params={'q': 1}))\n",
"(s.headers is hdr, s.get_adapter('https://x') is ad, prep.headers['Signed'], prep.headers['Cookie'], stamps, s.hooks['response'][0] is auth, s.headers['X-RUN'], s.auth is auth)"),
"pil image pixel access alias and palette": (
"from PIL import Image, ImageDraw\nim = Image.new('RGB', (3, 2))\npx = im.load(); dr = ImageDraw.Draw(im)\nim.info['notes'] = notes = []\n",
"px[0, 0] = (1, 2, 3); dr.point((2, 1), fill=(9, 9, 9)); im.info['notes'].append('x')\n",
"(im.getpixel((0, 0)), px[2, 1], notes, im.info['notes'] is notes, px.__setitem__((1, 1), (4, 4, 4)), im.getpixel((1, 1)), dr.point((1, 0), fill=(7, 7, 7)), im.getpixel((1, 0)))"),
"tqdm bar half advanced": (
"import io\nfrom tqdm import tqdm\nsinkio = io.StringIO()\ndata = iter(range(10))\nbar = tqdm(data, total=10, file=sinkio, mininterval=1e9)\ngen = iter(bar)\nnext(gen)\n",
"a = next(gen); bar.set_postfix(loss=1, refresh=False)\nbar.update(0)\n",
"(a, next(gen), next(data), bar.postfix, bar.fp is not None, len(tqdm._instances), bar in tqdm._instances, bar.close(), bar.n)"),
"ipywidgets link and observers": (
"import ipywidgets as W\nsl = W.IntSlider(value=1, max=20); tx = W.IntText(value=1)\nlog = []\ndef on(ch): log.append((ch['old'], ch['new']))\nsl.observe(on, 'value')\nbox = W.VBox([sl, tx])\n",
"lk = W.link((sl, 'value'), (tx, 'value'))\nsl.value = 7\n",
"(tx.value, log, setattr(tx, 'value', 9), sl.value, log, box.children[0] is sl, lk.unlink(), setattr(tx, 'value', 2), sl.value)"),
# ---------- mixtures ----------
"default args hold arrays and caches": (
"import numpy as np, functools\nbuf = np.zeros(3)\ndef push(v, buf=buf, seen=[]):\n    buf[:-1] = buf[1:]; buf[-1] = v; seen.append(v); return len(seen)\n@functools.lru_cache(maxsize=None)\ndef slow(n): return np.full(2, n)\nm = slow(1)\n",
"push(4); push(5); slow(1)[0] = 42; slow(2)\n",
"(buf.tolist(), push.__defaults__[0] is buf, push(6), m.tolist(), slow(1) is m, slow.cache_info())"),
"singledispatch registration over library types": (
"import functools, numpy as np, pandas as pd\n@functools.singledispatch\ndef size(o): return 'any'\n@size.register\ndef _(o: np.ndarray): return ('arr', o.size)\nkeep = size\n",
"@size.register(pd.Series)\ndef _(o): return ('ser', len(o))\nclass MyArr(np.ndarray): pass\nr = size(np.zeros(2).view(MyArr))\n",
"(r, size(pd.Series([1])), keep is size, size.dispatch(MyArr) is size.dispatch(np.ndarray), len(size.registry))"),
"warnings once registry numpy deprecation": (
"import warnings, numpy as np\nwarnings.resetwarnings(); warnings.simplefilter('ignore'); warnings.filterwarnings('once', category=np.exceptions.RankWarning)\nseen = []\nwarnings.showwarning = lambda m, c, *a, **k: seen.append(c.__name__)\ndef fit(): np.polyfit([1, 1, 1], [1, 2, 3], 1)\nfit()\n",
"fit()\nwarnings.filterwarnings('error', category=RuntimeWarning, message='divide')\n",
"(seen, fit(), seen, warnings.filters[0][0], len(warnings.filters))"),
"dataset subclass with deepcopy hook": (
"import copy, numpy as np\nfrom torch.utils.data import Dataset, Subset\nclass DS(Dataset):\n    copies = 0\n    def __init__(self): self.a = np.arange(4); self.hits = {}\n    def __len__(self): return 4\n    def __getitem__(self, i): self.hits[i] = self.hits.get(i, 0) + 1; return int(self.a[i])\n    def __getstate__(self):\n        DS.copies += 1\n        d = dict(self.__dict__); d['hits'] = {}; return d\nds = DS(); ds[0]\nsub = Subset(ds, [2, 3])\n",
"sub[0]; ds.a[3] = 30; dup = copy.deepcopy(ds)\n",
"(DS.copies, ds.hits, sub.dataset is ds, sub[1], dup.hits, ds.hits)"),
"torch tensor subclass torch_function log": (
"import torch\nclass Tracked(torch.Tensor):\n    ops = []\n    @classmethod\n    def __torch_function__(cls, func, types, args=(), kwargs=None):\n        name = getattr(func, '__name__', '?')\n        if name in ('add', 'mul', 'sum'): cls.ops.append(name)\n        return super().__torch_function__(func, types, args, kwargs or {})\nplain = torch.ones(2)\nt = plain.as_subclass(Tracked)\n",
"u = torch.add(t, 1)\nplain[0] = 5\nv = u.sum()\n",
"(Tracked.ops, type(u) is Tracked, float(t[0]), float(v), t.data_ptr() == plain.data_ptr())"),
}
