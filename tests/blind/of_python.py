CASES = {
# ---- identity / aliasing
"rebind versus in-place add": (
"a = [1]\nb = a\nc = (1,)\nd = c\n",
"a += [2]\nc += (2,)\n",
"(a is b, b, c is d, d)"),
"bound method of mutated list kept": (
"buf = []\nemit = buf.append\n",
"emit(1); buf.append(2)\n",
"(emit(3), buf, emit.__self__ is buf)"),
"sentinel identity through default arg": (
"_MISSING = object()\ndef get(d, k, default=_MISSING):\n    v = d.get(k, _MISSING)\n    if v is _MISSING:\n        return 'absent' if default is _MISSING else default\n    return v\ncfg = {}\n",
"cfg['hole'] = _MISSING\nother = object()\ncfg['o'] = other\n",
"(get(cfg, 'hole'), get(cfg, 'z'), cfg['hole'] is _MISSING, get.__defaults__[0] is _MISSING, cfg['o'] is other, other is _MISSING)"),
"dict view kept across cell": (
"prices = {'a': 1}\nks, vs = prices.keys(), prices.values()\n",
"prices['b'] = 2\nlatest = prices.items()\n",
"(prices.update(c=3), list(ks), list(vs), list(latest), ks.mapping == prices)"),
"memoryview over bytearray": (
"raw = bytearray(8)\nwin = memoryview(raw)[2:6].cast('H')\n",
"win[0] = 513\nraw[5] = 9\n",
"(bytes(raw), win.tolist(), win.obj is raw)"),
"ChainMap shared layers": (
"from collections import ChainMap\nbase = {'a': 1}\nuser = {}\ncfg = ChainMap(user, base)\n",
"cfg['a'] = 2\nchild = cfg.new_child({'b': 5})\nbase['c'] = 7\n",
"(user, child['c'], child.maps[1] is user, child.maps[2] is base, cfg.maps[0] is user)"),
# ---- iterators
"generator advanced half way": (
"def gen():\n    total = 0\n    while True:\n        x = yield total\n        total += x or 1\ng = gen(); next(g)\n",
"first = g.send(10)\nsecond = next(g)\n",
"(first, second, g.send(5), g.gi_running)"),
"tee siblings": (
"import itertools\na, b = itertools.tee(iter(range(6)))\n",
"next(a); next(a); next(b)\n",
"(list(a), list(b))"),
"list iterator follows growth": (
"queue = ['a', 'b']\nwork = iter(queue)\n",
"done = [next(work)]\nqueue.append('c')\n",
"(done, queue.append('d'), list(work))"),
"itertools count in a class id factory": (
"import itertools\nclass Node:\n    _ids = itertools.count(100)\n    def __init__(self): self.id = next(Node._ids)\nn0 = Node()\n",
"nodes = [Node() for _ in range(3)]\n",
"([n.id for n in nodes], Node().id, n0.id)"),
"iter with callable sentinel": (
"stack = [0, 3, 2, 1]\nit = iter(stack.pop, 0)\n",
"x = next(it)\nstack.append(8)\n",
"(x, next(it), next(it), stack)"),
"map with stateful lambda": (
"seen = []\nm = map(lambda v: (seen.append(v), len(seen))[1], [5, 6, 7])\n",
"r = next(m)\n",
"(r, list(m), seen)"),
"contextmanager entered across cells": (
"from contextlib import contextmanager, ExitStack\nlog = []\n@contextmanager\ndef phase(n):\n    log.append('+' + n)\n    try:\n        yield n\n    finally:\n        log.append('-' + n)\nstack = ExitStack()\n",
"stack.enter_context(phase('load'))\nstack.callback(log.append, 'cb')\n",
"(list(log), stack.close(), log)"),
# ---- closures / functions
"two closures sharing a cell": (
"def make():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1\n        return n\n    def get():\n        return n\n    return inc, get\ninc, get = make()\n",
"inc(); inc()\n",
"(get(), inc(), get(), inc.__closure__[0] is get.__closure__[0])"),
"mutable default argument": (
"def remember(x, _seen=[]):\n    _seen.append(x)\n    return list(_seen)\nremember('a')\n",
"remember('b')\n",
"remember('c')"),
"function attributes as counters": (
"def f(x):\n    f.calls += 1\n    return x\nf.calls = 0\ng = f\n",
"f(1); f(2)\nf.note = 'hot'\n",
"(g.calls, g.note, g is f, f(1), g.calls)"),
"lru_cache fill and stats": (
"from functools import lru_cache\ntrace = []\n@lru_cache(maxsize=3)\ndef sq(x):\n    trace.append(x)\n    return x * x\nsq(1)\n",
"for v in (2, 3, 1, 4):\n    sq(v)\n",
"(trace[:], sq.cache_info(), sq(1), sq(2), trace, sq.cache_info())"),
"global rebinding seen by setup function": (
"scale = 2\ndef apply(x): return x * scale\ntable = {'apply': apply}\n",
"scale = 5\ndel_me = 1\ndel del_me\n",
"(apply(3), table['apply'](3), table['apply'] is apply, 'del_me' in globals())"),
"global deleted by the cell": (
"tmp = [1, 2]\nkeep = tmp\ndef has(): return 'tmp' in globals()\n",
"keep.append(3)\ndel tmp\n",
"(has(), 'tmp' in globals(), keep)"),
"cell shadows builtin": (
"def total(xs): return sum(xs)\n",
"def sum(xs):\n    return 'shadowed %d' % len(list(xs))\n",
"(total([1, 2]), sum.__module__ == total.__module__)"),
"builtins patched": (
"import builtins\ndef show(): return answer_of_life\n",
"builtins.answer_of_life = 42\n",
"(show(), builtins.answer_of_life)"),
"function code swapped": (
"def model(x): return x + 1\nalias = model\n",
"def _new(x): return x * 100\nmodel.__code__ = _new.__code__\nmodel.__doc__ = 'patched'\nmodel.__kwdefaults__ = None\nmodel.__defaults__ = (7,)\n",
"(alias(2), alias(), alias.__doc__, alias is model)"),
"late-binding closures over loop in cell": (
"funcs = []\n",
"def build():\n    for i in range(3):\n        funcs.append(lambda: i)\n    def bump():\n        nonlocal i\n        i += 10\n    return bump\nbump = build()\n",
"([f() for f in funcs], bump(), [f() for f in funcs])"),
"decorator registry": (
"REG = {}\ndef register(name):\n    def deco(fn):\n        REG[name] = fn\n        return fn\n    return deco\n@register('a')\ndef a(x): return x\n",
"@register('b')\ndef b(x): return REG['a'](x) + 1\n@register('a')\ndef a2(x): return x * 10\n",
"(list(REG), REG['b'](2), REG['b'] is b, REG['a'] is a2, REG['a'] is a)"),
"singledispatch registered in cell": (
"from functools import singledispatch\n@singledispatch\ndef fmt(x): return 'obj'\n@fmt.register\ndef _(x: int): return 'int'\nprior = [fmt(True), fmt([])]\nformatter = fmt\n",
"@fmt.register(list)\ndef fmt_list(x): return '[' + ','.join(fmt(v) for v in x) + ']'\n@fmt.register\ndef _(x: bool): return 'bool'\n",
"(formatter([1, True, 's']), formatter is fmt, formatter.dispatch(list) is fmt_list, prior)"),
"partial mutated": (
"from functools import partial\ndef f(*a, **k): return a, k\nopts = {'x': []}\np = partial(f, 1, **opts)\n",
"p.keywords['y'] = 2\np.keywords['x'].append('q')\np.tag = 'T'\n",
"(p(0), opts, p.tag, p.keywords['x'] is opts['x'])"),
# ---- classes
"class attribute shared counter through subclass": (
"class Base:\n    instances = []\n    def __init_subclass__(cls, **kw):\n        super().__init_subclass__(**kw)\n        Base.instances.append(cls.__name__)\nclass A(Base): pass\n",
"class B(Base): pass\nclass C(A): pass\n",
"(Base.instances, [c.__name__ for c in Base.__subclasses__()], A.__subclasses__() == [C], A.instances is Base.instances)"),
"class redefined in cell keeps old instance": (
"class P:\n    def hi(self): return 'old'\nold = P()\nOldP = P\n",
"class P:\n    def hi(self): return 'new'\nnew = P()\n",
"(old.hi(), new.hi(), isinstance(old, P), type(old) is OldP, isinstance(new, OldP), P is OldP)"),
"__class__ of instance changed": (
"class Raw:\n    def kind(self): return 'raw'\nclass Clean(Raw):\n    def kind(self): return 'clean'\nr = Raw(); r.v = [1]\nrefs = {'k': r}\n",
"r.__class__ = Clean\n",
"(refs['k'].kind(), refs['k'] is r, type(r) is Clean)"),
"abc register and cache": (
"import abc\nclass Shape(abc.ABC): pass\nclass Sq: pass\ns = Sq()\nbefore = isinstance(s, Shape)\n",
"Shape.register(Sq)\n",
"(before, isinstance(s, Shape), issubclass(Sq, Shape), Shape in Sq.__mro__)"),
"standard abc gets virtual subclass": (
"from collections.abc import Sequence\nimport numbers\nclass Track:\n    def __len__(self): return 2\n    def __getitem__(self, i): return [7, 8][i]\nt = Track()\n",
"Sequence.register(Track)\nnumbers.Real.register(Track)\n",
"(isinstance(t, Sequence), isinstance(t, numbers.Number))"),
"descriptor with WeakKeyDictionary storage": (
"import weakref\nclass Positive:\n    def __init__(self): self.data = weakref.WeakKeyDictionary()\n    def __get__(self, o, t=None): return self if o is None else self.data.get(o, 0)\n    def __set__(self, o, v): self.data[o] = abs(v)\nclass Acc:\n    bal = Positive()\na = Acc(); a.bal = -5\n",
"a.bal = -9\nb = Acc(); b.bal = -3\n",
"(a.bal, b.bal, len(Acc.bal.data), Acc.bal is Acc.__dict__['bal'])"),
"cached_property filled then source changed": (
"from functools import cached_property\nclass D:\n    def __init__(self, xs): self.xs = xs\n    @cached_property\n    def total(self): return sum(self.xs)\nd = D([1, 2])\n",
"t = d.total\nd.xs.append(100)\n",
"(d.total, 'total' in d.__dict__, d.__dict__.pop('total'), d.total)"),
"slots with weakref and unset slot": (
"import weakref\nclass S:\n    __slots__ = ('a', 'b', '__weakref__')\ns = S(); s.a = 1; s.b = 2\nw = weakref.ref(s)\n",
"del s.b\ns.a = [s]\n",
"(hasattr(s, 'b'), s.a[0] is s, w() is s)"),
"weak references to changed object and WeakSet": (
"import weakref\nclass Obs:\n    def __init__(self, n): self.n = n; self.got = []\nsubs = weakref.WeakSet()\no1, o2 = Obs(1), Obs(2)\nsubs.add(o1); subs.add(o2)\n",
"o3 = Obs(3); subs.add(o3)\nfor o in subs: o.got.append('ev')\ndel o, o2\n",
"(sorted(o.n for o in subs), o1.got, o3.got, o3 in subs, o1 in subs)"),
"weakref finalize fired by cell": (
"import weakref\nclass R: pass\nevents = []\nr = R()\nfin = weakref.finalize(r, events.append, 'gone')\nfin.atexit = False\n",
"del r\n",
"(events, fin.alive)"),
"__del__ side effect": (
"closed = []\nclass Handle:\n    def __init__(self, n): self.n = n\n    def __del__(self): closed.append(self.n)\nh = Handle('h1')\nheld = {'k': Handle('h2')}\n",
"h = Handle('h3')\n",
"(list(closed), held.clear(), closed)"),
"metaclass singleton": (
"class Single(type):\n    _inst = {}\n    def __call__(cls, *a, **k):\n        if cls not in cls._inst:\n            cls._inst[cls] = super().__call__(*a, **k)\n        return cls._inst[cls]\nclass Conf(metaclass=Single):\n    def __init__(self, v=0): self.v = v\nclass Db(metaclass=Single): pass\nc = Conf(1)\n",
"Conf().v = 5\ndb = Db()\n",
"(c.v, Conf() is c, Db() is db, len(Single._inst))"),
"flyweight __new__ cache": (
"class Sym:\n    _pool = {}\n    def __new__(cls, name):\n        if name not in cls._pool:\n            o = super().__new__(cls); o.name = name; cls._pool[name] = o\n        return cls._pool[name]\n    def __getnewargs__(self): return (self.name,)\nx = Sym('x')\n",
"y = Sym('y')\nexpr = [x, y, Sym('x')]\n",
"(expr[0] is x, Sym('y') is y, expr[2] is x, sorted(Sym._pool))"),
"lossy __getstate__": (
"class Job:\n    def __init__(self): self.cfg = {'a': 1}; self.cache = {'warm': True}\n    def __getstate__(self): return {'cfg': self.cfg, 'cache': None}\nj = Job()\n",
"j.cfg['b'] = 2\nj.cache['more'] = 1\nk = Job()\n",
"(j.cfg, j.cache, k.cache)"),
"reduce drops history": (
"class Temp:\n    loads = 0\n    def __init__(self, c): self.c = c; self.hist = [c]\n    def __reduce__(self): return (Temp, (self.c,))\n    def set(self, c): self.c = c; self.hist.append(c)\nt = Temp(1)\nt.set(2)\n",
"t.set(3)\nu = Temp(9); u.set(8)\n",
"(t.c, t.hist, u.hist)"),
"equal-by-eq objects replaced": (
"class Card:\n    def __init__(self, id, note): self.id, self.note = id, note\n    def __eq__(self, o): return isinstance(o, Card) and self.id == o.id\n    def __hash__(self): return hash(self.id)\ndeck = {Card(1, 'setup'): 'one'}\nhand = [Card(1, 'setup')]\n",
"hand[0] = Card(1, 'cell')\ndeck[Card(1, 'cell')] = 'uno'\n",
"(hand[0].note, [(k.note, v) for k, v in deck.items()])"),
"value of equal but different type": (
"vals = {'a': 1, 'b': 0.0, 'c': True, 'd': 'x'}\nlst = [1, 0.0, True]\n",
"vals['a'] = 1.0\nvals['b'] = -0.0\nvals['c'] = 1\nlst[0] = True\nlst[1] = -0.0\n",
"(vals, lst)"),
"dict order changed only": (
"from collections import OrderedDict\nd = {'a': 1, 'b': 2, 'c': 3}\nod = OrderedDict(d)\nview = d\n",
"d['a'] = d.pop('a')\nod.move_to_end('a')\n",
"(list(view), list(od), view is d, d == {'a': 1, 'b': 2, 'c': 3})"),
"dict subclass with attribute and __missing__": (
"class Lazy(dict):\n    def __missing__(self, k):\n        self.misses += 1\n        self[k] = v = len(self)\n        return v\nl = Lazy(); l.misses = 0\n",
"l['p']; l['q']; l['p']\nl.owner = l\n",
"(dict(l), l.misses, l.owner is l, l['new'])"),
"defaultdict with bound factory": (
"from collections import defaultdict\nimport itertools\nids = defaultdict(itertools.count().__next__)\nids['a']; ids['b']\n",
"ids['c']; ids['a']\n",
"(ids['d'], dict(ids))"),
# ---- dataclass/enum/typing
"dataclass default_factory and field metadata": (
"from dataclasses import dataclass, field, fields, replace\nshared = []\n@dataclass\nclass Exp:\n    name: str\n    tags: list = field(default_factory=lambda: shared, metadata={'unit': {}})\ne = Exp('a')\n",
"e.tags.append('t')\nf2 = replace(e, name='b')\nfields(Exp)[1].metadata['unit']['k'] = 'v'\n",
"(Exp('c').tags is shared, f2.tags is e.tags, shared, dict(fields(Exp)[1].metadata))"),
"frozen dataclass mutated with object.__setattr__": (
"from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Pt:\n    x: int\n    def norm(self):\n        if '_n' not in self.__dict__:\n            object.__setattr__(self, '_n', [self.x])\n        return self._n\np = Pt(3)\nidx = {p: 'here'}\n",
"p.norm().append('cell')\n",
"(p._n, next(iter(idx)) is p, idx[p], next(iter(idx))._n)"),
"enum members with mutable attributes and alias": (
"from enum import Enum\nclass Stage(Enum):\n    RAW = 1\n    CLEAN = 2\n    def __init__(self, v): self.log = []\ncur = Stage.RAW\n",
"cur.log.append('ran')\ncur = Stage.CLEAN\nStage.CLEAN.log.append('x')\nStage.RAW.color = 'red'\n",
"(cur is Stage.CLEAN, Stage.RAW.log, cur.log, Stage(1).color)"),
"flag composite identity and value map": (
"from enum import Enum, Flag, auto\nclass Perm(Flag):\n    R = auto(); W = auto(); X = auto()\ntable = {Perm.R | Perm.W: 'rw'}\n",
"combo = Perm.R | Perm.W\ntable[combo] = 'RW'\nold = Perm.X\nPerm._value2member_map_[99] = Perm.X\n",
"(combo is (Perm.R | Perm.W), table, Perm._value2member_map_[99] is old)"),
"annotations edited": (
"class Row:\n    a: int\ndef fn(x: int) -> int: return x\nfrom typing import get_type_hints, TypeVar\nT = TypeVar('T')\n",
"Row.__annotations__['b'] = list[T]\nfn.__annotations__['return'] = T\n",
"(list(Row.__annotations__), get_type_hints(fn)['return'] is T, Row.__annotations__['b'].__args__[0] is T)"),
# ---- stdlib state
"random: own Random instance shared and global": (
"import random\nrng = random.Random(7)\nroll = rng.random\nrandom.seed(3)\nnest = {'r': rng}\n",
"a = [roll(), rng.gauss(0, 1), random.gauss(0, 1), random.random()]\n",
"(roll(), nest['r'].random(), nest['r'] is rng, rng.gauss(0, 1), random.gauss(0, 1), random.randint(0, 10**6))"),
"decimal context traps, flags and prec": (
"import decimal\nfrom decimal import Decimal, getcontext\nctx = getcontext()\n",
"ctx.prec = 5\nq = Decimal(1) / Decimal(3)\nctx.traps[decimal.DivisionByZero] = False\ninf = Decimal(1) / 0\nctx.rounding = decimal.ROUND_UP\n",
"(q, getcontext() is ctx, Decimal(2) / Decimal(3), ctx.flags[decimal.Inexact], ctx.flags[decimal.DivisionByZero], Decimal(1) / 0)"),
"contextvar set and token kept": (
"from contextvars import ContextVar, copy_context\nuser = ContextVar('user', default='nobody')\nsnap = copy_context()\n",
"tok = user.set('ann')\nsnap2 = copy_context()\nuser.set('bob')\n",
"(user.get(), snap.get(user), snap2[user], tok.var is user, user.reset(tok), user.get())"),
"logging: level, handler, filter, disabled": (
"import logging, io\nbuf = io.StringIO()\nlg = logging.getLogger('adv5.a'); lg.propagate = False\nh = logging.StreamHandler(buf); lg.addHandler(h); lg.setLevel('INFO')\n",
"lg.info('from cell')\nlg.debug('hidden')\nlg.setLevel('DEBUG')\nh.setFormatter(logging.Formatter('%(levelname)s|%(message)s'))\nh.addFilter(lambda r: 'secret' not in r.getMessage())\nchild = logging.getLogger('adv5.a.b')\n",
"(lg.debug('now'), child.warning('secret x'), child.warning('w'), buf.getvalue(), h.stream is buf, logging.getLogger('adv5.a') is lg, child.parent is lg)"),
"warnings filters and showwarning": (
"import warnings\ncaught = []\nwarnings.simplefilter('always')\nwarnings.showwarning = lambda m, c, f, l, file=None, line=None: caught.append(str(m))\n",
"warnings.warn('w1')\nwarnings.filterwarnings('ignore', message='quiet')\n",
"(warnings.warn('quiet please'), warnings.warn('w2'), caught, warnings.filters[0][0])"),
"exception kept with chain, notes and attrs": (
"class StepError(ValueError):\n    def __init__(self, step, why):\n        super().__init__(f'{step}: {why}')\n        self.step = step\nerrs = []\n",
"try:\n    try:\n        {}['k']\n    except KeyError as ke:\n        raise StepError(3, 'bad') from ke\nexcept StepError as e:\n    e.add_note('n1')\n    errs.append(e)\n",
"(errs[0].step, str(errs[0]), errs[0].__notes__, repr(errs[0].__cause__), errs[0].__suppress_context__, errs[0].__traceback__ is not None, errs[0].__context__ is errs[0].__cause__)"),
"copyreg and copy hooks registered": (
"import copyreg, copy\nclass Money:\n    def __init__(self, v, cur='EUR'): self.v, self.cur = v, cur\nm = Money(3, 'USD')\n",
"def _red(o): return Money, (o.v * 100,)\ncopyreg.pickle(Money, _red)\nm2 = Money(4, 'USD')\n",
"(copy.copy(m).v, copy.copy(m).cur, m2.v, m2.cur, m.v, copyreg.dispatch_table[Money] is _red)"),
"json default encoder patched": (
"import json\nclass E(json.JSONEncoder):\n    def default(self, o): return sorted(o) if isinstance(o, set) else super().default(o)\n",
"json.JSONEncoder.default = lambda self, o: 'str:' + type(o).__name__\njson._default_encoder.item_separator = ';'\n",
"(json.dumps({'a': 1j}), json.dumps({2, 1}, cls=E), json.dumps(object()), json._default_encoder.item_separator)"),
"sys and os state": (
"import sys, os\nold_limit = sys.getrecursionlimit()\n",
"sys.setrecursionlimit(2345)\nsys.path.insert(0, '/opt/nowhere')\nos.environ['ADV5_MODE'] = 'x'\nos.environ.pop('HOME', None)\nsys.ps1 = 'in> '\n",
"(sys.getrecursionlimit(), sys.path[0], os.environ['ADV5_MODE'], os.getenv('HOME'), getattr(sys, 'ps1', None))"),
"synthetic module in sys.modules": (
"import sys, types\nmod = types.ModuleType('adv5_utils')\nmod.K = [1]\nsys.modules['adv5_utils'] = mod\n",
"import adv5_utils\nadv5_utils.K.append(2)\nexec('def twice(x): return x * len(K)', adv5_utils.__dict__)\nadv5_helpers = types.ModuleType('adv5_helpers'); adv5_helpers.base = adv5_utils\nsys.modules['adv5_helpers'] = adv5_helpers\n",
"(mod.K, adv5_utils is mod, mod.twice(5), sys.modules['adv5_helpers'] is adv5_helpers, __import__('adv5_helpers').base is mod)"),
"stdlib module attributes patched": (
"import math, statistics, textwrap\nimport time\nfrom statistics import mean as orig_mean\n",
"statistics.mean = lambda xs: 'patched'\ntextwrap.indent.__defaults__ = (lambda line: True,)\nmath.golden = 1.618\n",
"(statistics.mean([1, 2]), orig_mean([1, 3]), math.golden, textwrap.indent('a\\n\\nb', '>'))"),
"StringIO and BytesIO positions": (
"import io, csv\nsrc = io.StringIO('a,b\\n1,2\\n3,4\\n')\nrd = csv.reader(src)\nbb = io.BytesIO(b'abcdef'); bb.tag = 't'\n",
"header = next(rd)\nbb.read(2); bb.write(b'ZZ')\nbb.tag = 'u'\n",
"(header, list(rd), rd.line_num, bb.tell(), bb.read(), bb.getvalue(), bb.tag)"),
"csv dialect, codec error, mimetype registries": (
"import csv, io, codecs, re, mimetypes\n",
"csv.register_dialect('pipes', delimiter='|', quoting=csv.QUOTE_ALL)\ncsv.field_size_limit(777)\ncodecs.register_error('stars', lambda e: ('*' * (e.end - e.start), e.end))\nmimetypes.add_type('application/x-adv5', '.adv5')\n",
"(next(csv.reader(['\"a\"|\"b\"'], 'pipes')), csv.field_size_limit(), 'h\\u00e9!'.encode('ascii', 'stars'), mimetypes.guess_type('x.adv5')[0])"),
"sqlite in-memory database": (
"import sqlite3\ndb = sqlite3.connect(':memory:')\ndb.execute('create table t(a int)')\ndb.execute('insert into t values (1)')\n",
"db.execute('insert into t values (2)')\ndb.create_function('plus', 2, lambda a, b: a + b)\ndb.row_factory = sqlite3.Row\n",
"([tuple(r) for r in db.execute('select plus(a, 10) from t order by a')], db.in_transaction, db.row_factory is sqlite3.Row, db.total_changes)"),
"datetime tz subclass identity": (
"import datetime as dt\nclass TZ(dt.tzinfo):\n    off = 1\n    def utcoffset(self, d): return dt.timedelta(hours=TZ.off)\n    def dst(self, d): return None\n    def tzname(self, d): return 'T%d' % TZ.off\ntz = TZ()\nt0 = dt.datetime(2024, 1, 1, tzinfo=tz)\n",
"t1 = t0 + dt.timedelta(days=1)\nTZ.off = 3\nstamps = [t0, t1, t0.replace(fold=1)]\n",
"(t1.tzinfo is tz, stamps[0] is t0, t0.isoformat(), t1.tzname(), stamps[2].fold, stamps[2].tzinfo is tz)"),
"set with mutated-hash members": (
"class H:\n    def __init__(self, k): self.k = k\n    def __hash__(self): return self.k\n    def __eq__(self, o): return self.k == o.k\nh = H(1)\ns = {h}\n",
"h.k = 2\n",
"(h in s, H(1) in s, H(2) in s, len(s), next(iter(s)) is h)"),
"atomic-looking int/str subclass with attributes": (
"class Label(str):\n    pass\nclass Meter(float):\n    unit = 'm'\nlab = Label('age'); lab.desc = ['d']\ncols = {lab: 1}\n",
"lab.desc.append('cell')\nw = Meter(2.5); w.unit = 'km'\ncols[Label('age')] = 2\n",
"(lab.desc, next(iter(cols)) is lab, cols, w.unit, type(w).unit, next(iter(cols)).desc)"),
"property setter replaced through class with super chain": (
"class A:\n    def __init__(self): self._v = 1\n    @property\n    def v(self): return self._v\nclass B(A):\n    @property\n    def v(self): return super().v * 10\nb = B()\n",
"A.v = A.v.setter(lambda self, x: setattr(self, '_v', x))\nA.v.fset(b, 7)\nB.__bases__ = (A,)\nB.__qualname__ = 'Renamed'\n",
"(b.v, A.v.fset is not None, B.__qualname__, type(b) is B)"),
"sys displayhook and interpreter flags": (
"import sys, pprint\nshown = []\n",
"def my_hook(v): shown.append(v)\nsys.displayhook = my_hook\nsys.setswitchinterval(0.01)\nsys.set_int_max_str_digits(9000)\nsys.dont_write_bytecode = True\n",
"(sys.displayhook(5), shown, sys.displayhook is my_hook, sys.getswitchinterval(), sys.get_int_max_str_digits(), sys.dont_write_bytecode)"),
}
