# ruff: noqa: E501 - a cell is one string
"""Generators, hooks and classes of kinds that pickle forgets, shares or refuses."""

from __future__ import annotations

IMPORTS = (
    "import contextvars, functools, types, typing\nimport numpy as np\nimport torch\n"
    "from torch.nn.utils import parametrizations, parametrize\n"
)
ROWS = {
    "classes that are trees to jax": (
        "import jax, jax.numpy as jnp, dataclasses\n@jax.tree_util.register_pytree_node_class\nclass P:\n    def __init__(s, a): s.a = a\n    def tree_flatten(s): return (s.a,), None\n    @classmethod\n    def tree_unflatten(c, _, x): return c(*x)\n@jax.tree_util.register_dataclass\n@dataclasses.dataclass\nclass D:\n    x: jax.Array\np = P(jnp.ones(2))",
        "l = jax.tree.map(lambda x: x + 1, p); d = jax.tree.map(lambda x: x * 3, D(jnp.ones(1)))\n@jax.tree_util.register_pytree_node_class\nclass Q(P): pass\nq = Q(2)",
        "l.a.tolist(), d.x.tolist(), jax.tree.leaves(q), jax.tree.leaves(p)[0].tolist(), type(l) is P",
    ),
    "weak types of jax": (
        "import jax.numpy as jnp\nx = jnp.asarray(2.0); y = jnp.ones(2, jnp.int8)",
        "z = jnp.asarray(3.); w = x * y",
        "x.weak_type, z.weak_type, (z * y).dtype, w.dtype, z.dtype",
    ),
    "classes that libraries keep in tables of their own": (
        "import copy, copyreg\nfrom torch.utils import _pytree as trees\nclass Pair:\n    def __init__(self, a): self.a, self.held = a, lambda: 0\n"
        "trees.register_pytree_node(Pair, lambda p: ([p.a], None), lambda parts, _: Pair(*parts))\ncopyreg.pickle(Pair, lambda p: (Pair, (p.a,)))\n"
        "class Late: pass\nlate = Late()",
        "p = Pair(3); leaves = trees.tree_leaves(p); copied = copy.copy(p).held is p.held; twice = trees.tree_map(lambda x: x * 2, p).a\n"
        "class New: pass\nfor kind in (Late, New):\n    trees.register_pytree_node(kind, lambda _: ([kind.__name__], None), lambda _parts, _: kind())",
        "leaves, copied, twice, trees.tree_leaves([late, New(), p]), New in trees.SUPPORTED_NODES, copy.copy(p).held is p.held",
    ),
    "styles of matplotlib": (
        "import matplotlib as mpl, matplotlib.pyplot as plt\nmpl.style.library['mine'] = {'lines.linewidth': 7}",
        "with plt.style.context('mine'):\n    seen = mpl.rcParams['lines.linewidth']\nmpl.style.library['yours'] = {'lines.linewidth': 8}; mpl.style.library['mine']['lines.linewidth'] = 9",
        "seen, mpl.style.library['yours'], mpl.style.library['mine']",
        "for name in ('mine', 'yours'):\n    mpl.style.library.pop(name, None)",
    ),
    "names of levels of logging": (
        "import logging\nlogging.addLevelName(25, 'NOTICE'); logging.addLevelName(20, 'TOLD')",
        "seen = logging.getLevelName(25), logging.getLevelName('NOTICE'), logging.getLevelName(20); logging.addLevelName(26, 'MORE')",
        "seen, logging.getLevelName(26), logging.getLevelName(20), logging.getLevelName(30)",
        "for number in (25, 26):\n    logging._nameToLevel.pop(logging._levelToName.pop(number, ''), None)\nlogging.addLevelName(20, 'INFO')",
    ),
    "what sqlite3 was told": (
        "import sqlite3\nclass Point:\n    def __init__(self, x): self.x = x\nsqlite3.register_adapter(np.int64, int); sqlite3.register_adapter(Point, lambda p: str(p.x))\np = Point(4)",
        "def ask(*things):\n    with sqlite3.connect(':memory:', detect_types=sqlite3.PARSE_COLNAMES) as base:\n        return base.execute('select ?, typeof(?), ? as \"p [point]\"', things).fetchall()\n"
        "got = ask(np.int64(3), np.int64(3), p); sqlite3.register_converter('point', lambda text: int(text) + 1)",
        "got, ask(np.int64(3), np.int64(3), p)",
        "for kind in (np.int64, Point):\n    sqlite3.adapters.pop((kind, sqlite3.PrepareProtocol), None)\nsqlite3.converters.pop('POINT', None)",
    ),
    "widgets": (
        "import ipywidgets as widgets\nslider = widgets.IntSlider(value=7); box = widgets.VBox([slider]); bar = widgets.IntProgress(max=3)\n"
        "kept = [bar, bar.layout]; number = bar.model_id",
        "x = slider.value, box.children[0] is slider\nfor i in range(3):\n    bar.value = i + 1\nbar.layout.width = '7px'\n"
        "own = widgets.IntSlider(value=3); own.value = 4; mine = own.model_id; made = widgets.HBox([slider, own])",
        "x, bar.value, kept[0] is bar, kept[1] is bar.layout, bar.layout.width, bar.model_id == number, own, own.model_id == mine, made.children[0] is slider, made.children[1] is own",
    ),
    "a module below a package that has a name": ("import xml", "import xml.dom.minidom", "xml.dom.minidom.__name__"),
    "numpy's generators that something else holds": (
        "from sklearn.model_selection import KFold\nrs = np.random.RandomState(0)\nfolds = KFold(3, shuffle=True, random_state=rs)\n"
        "g = np.random.default_rng(3); bits = g.bit_generator; same = [g]; first = g.spawn(1)",
        "list(folds.split(np.arange(9))); g.random()",
        "folds.random_state is rs, rs.rand(), g.bit_generator is bits, same[0] is g, g.random(), g.spawn(1)[0].random()",
    ),
    "hooks on gradients": (
        "seen = []\nw = torch.ones(2, requires_grad=True); w.register_hook(lambda g: seen.append(g.tolist()))\n"
        "net = torch.nn.Linear(1, 1); net.weight.register_hook(lambda g: g * 7)",
        "(w * 2).sum().backward(); net(torch.ones(1, 1)).sum().backward(); net.bias.register_hook(lambda g: g * 0 + 5);",
        "seen, net.weight.grad.item(), (net.zero_grad(), net(torch.ones(1, 1)).sum().backward(), net.bias.grad.item(), net.weight.grad.item())",
    ),
    "typed dicts": (
        "class State(typing.TypedDict, total=False):\n    a: int\nPair = typing.TypedDict('Pair', {'x': int})\nclass More(State):\n    b: str",
        "s = More(a=1, b='b'); p: Pair = Pair(x=2)\nclass New(State):\n    c: int",
        "s, p, State.__total__, sorted(More.__annotations__), More.__optional_keys__ == {'a'}, sorted(New.__annotations__), type(New) is type(State)",
    ),
    "what is registered with a single-dispatch function": (
        "@functools.singledispatch\ndef show(x): return 'any'\n@show.register\ndef _(x: int): return 'int'\nregistry = show.registry; kept = [show]",
        "@show.register\ndef _(x: str): return 'str'\nshow.register(float, lambda x: 'float')",
        "show(1), show('a'), show(1.5), sorted(each.__name__ for each in registry), kept[0] is show, registry is show.registry",
    ),
    "read-only views of dicts": (
        "d = {'a': 1}; v = types.MappingProxyType(d); alias = [v]",
        "d['b'] = 2; seen = v['b']; u = types.MappingProxyType(d)",
        "v, seen, u, alias[0] is v, d.update(c=3), u, v",
    ),
    "views of dicts": (
        "d = {'a': 1}; k = d.keys(); box = [d.values(), d.items()]; same = [k]",
        "d['b'] = 2; seen = list(k), list(box[0]); u = d.keys() & {'b'}; other = d.items()",
        "seen, k, box, same[0] is k, u, d.update(c=3), k, other, box",
    ),
    "new types, and layouts of bytes": (
        "import struct\nUser = typing.NewType('User', int); layout = struct.Struct('<i'); kept = [User, layout]",
        "u = User(3); packed = layout.pack(u); Other = typing.NewType('Other', User)",
        "u, packed, layout.unpack(packed), User.__name__, kept[0] is User, kept[1] is layout, Other.__supertype__ is User, User(4)",
    ),
    "context variables": (
        "v = contextvars.ContextVar('v', default=1); w = contextvars.ContextVar('w'); x = contextvars.ContextVar('x', default=[0])\n"
        "alias = [v]; kept = [1]; _ = w.set(kept); first = x.get()\ndef now(): return v.get(), w.get()",
        "before = now(); _ = v.set(5); w.get().append(2); x.get().append(3)\nz = contextvars.ContextVar('z', default=3); _ = z.set(8)\n"
        "token = v.set(6); inside = now()[0]; v.reset(token); del token",
        "before, inside, now(), alias[0] is v, w.get() is kept, x.get() is first, first, z.get(), z.name",
    ),
    "universal functions of one's own": (
        "calls = []\ndef note(x):\n    calls.append(x)\n    return x\nnoted = np.frompyfunc(note, 1, 1)\n"
        "add = np.frompyfunc(lambda a, b: a + b, 2, 1, identity=0); alias = [add]; vec = np.vectorize(lambda x: x + 1, otypes=[float]); vec([1])",
        "total = add.reduce(np.array([1, 2, 3], dtype=object)); noted(np.array([1, 2])); mine = np.frompyfunc(note, 1, 1); ones = vec([1, 2])",
        "total, calls, add.identity, add.nin, add.__name__, alias[0] is add, mine([3]), calls, ones, vec([0.5])",
    ),
    "parametrised modules": (
        "class Symmetric(torch.nn.Module):\n    def forward(self, x): return x.triu() + x.triu(1).T\n"
        "torch.manual_seed(0)\nnet = torch.nn.Linear(3, 3); parametrize.register_parametrization(net, 'weight', Symmetric())\n"
        "original = net.parametrizations.weight.original; opt = torch.optim.SGD(net.parameters(), lr=.1); alias = [net]",
        "net(torch.ones(1, 3)).sum().backward(); opt.step()",
        "net.weight.tolist(), alias[0] is net, original is net.parametrizations.weight.original, original.tolist(), type(net).__name__",
    ),
    "norms of weights": (
        "torch.manual_seed(0)\nnorms = (parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal)\n"
        "net = torch.nn.Sequential(*(norm(torch.nn.Linear(3, 3)) for norm in norms)); opt = torch.optim.Adam(net.parameters()); layer = net[1]",
        "for _ in range(3):\n    opt.zero_grad(); net(torch.ones(2, 3)).sum().backward(); opt.step()",
        "net(torch.ones(1, 3)).tolist(), layer is net[1], layer.parametrizations.weight[0]._u.tolist(), list(net.state_dict()), isinstance(layer, torch.nn.Linear)",
    ),
    "parametrisations that a cell adds and removes": (
        "torch.manual_seed(0)\na = torch.nn.Linear(2, 2); b = parametrizations.weight_norm(torch.nn.Linear(2, 2)); alias = [a, b]; nets = torch.nn.Sequential(a, b)",
        "parametrizations.weight_norm(a); parametrize.remove_parametrizations(b, 'weight'); c = parametrizations.weight_norm(torch.nn.Linear(2, 2))",
        "nets(torch.ones(1, 2)).tolist(), alias[0] is a is nets[0], alias[1] is b, list(nets.state_dict()), list(c.state_dict()), [type(each).__name__ for each in (a, b, c)]",
    ),
    "settings of torch": (
        "b = torch.backends; b.cuda.enable_flash_sdp(False); b.mkldnn.enabled = False; torch.set_warn_always(True); b.cudnn.allow_tf32 = False\n"
        "torch.multiprocessing.set_sharing_strategy('file_system'); torch.use_deterministic_algorithms(True, warn_only=True)\n"
        "def seen(): return b.cuda.flash_sdp_enabled(), b.cuda.math_sdp_enabled(), b.mkldnn.enabled, b.cudnn.allow_tf32, torch.is_warn_always_enabled(), torch.multiprocessing.get_sharing_strategy(), torch.get_deterministic_debug_mode()",
        "before = seen(); b.cuda.enable_math_sdp(False); b.cudnn.allow_tf32 = True; torch.set_deterministic_debug_mode(2)",
        "before, seen()",
        "b.cuda.enable_flash_sdp(True); b.cuda.enable_math_sdp(True); b.mkldnn.enabled = True; torch.set_warn_always(False); torch.set_deterministic_debug_mode(0)\n"
        "torch.multiprocessing.set_sharing_strategy('file_descriptor')",
    ),
    "torch's new way to set a precision": (
        "b = torch.backends; b.cuda.matmul.fp32_precision = 'tf32'; torch.set_default_dtype(torch.float64)",
        "before = b.cuda.matmul.fp32_precision, torch.ones(1).dtype; b.cudnn.conv.fp32_precision = 'ieee'",
        "before, b.cuda.matmul.fp32_precision, b.cudnn.conv.fp32_precision",
        "b.cuda.matmul.fp32_precision, b.cudnn.conv.fp32_precision = 'none', 'tf32'; torch.set_default_dtype(torch.float32)",
    ),
    "how numpy shows numbers": (
        "np.set_printoptions(legacy='1.25', formatter={'int': lambda i: f'<{i}>'})",
        "words = repr([np.float64(1)]), str(np.arange(2)); np.set_printoptions(legacy='1.25', override_repr=lambda a: 'mine')",
        "words, repr(np.float64(1)), repr(np.arange(2))",
        "np.set_printoptions(legacy=False)",
    ),
    "settings of xgboost": (
        "import xgboost\nxgboost.set_config(verbosity=0)",
        "seen = xgboost.get_config()['verbosity']; xgboost.set_config(verbosity=2)",
        "seen, xgboost.get_config()['verbosity']",
        "xgboost.set_config(verbosity=1)",
    ),
    "a generator that spawns others": (
        "g = np.random.default_rng(3); bits = g.bit_generator; seeds = bits.seed_seq; held = [bits.random_raw, g.normal]; other = np.random.Generator(bits)",
        "first, second = g.spawn(2); x = other.random()",
        "g.bit_generator is bits, bits.seed_seq is seeds, seeds.n_children_spawned, g.random(), held[0](), held[1](), other.random(), first.random(), g.spawn(1)[0].random()",
    ),
    "tensors that are resized": (
        "t = torch.arange(4.); p = torch.nn.Parameter(torch.ones(2)); same = [t]",
        "t.resize_(6); t[4:] = 5; p.data.resize_(3).fill_(2); n = t.numel()",
        "t.tolist(), p, same[0] is t, n, t.resize_(3).tolist(), same[0].shape",
    ),
}
