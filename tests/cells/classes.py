# ruff: noqa: E501 - a cell is one string
"""Classes whose making matters, and objects whose own methods run before they are whole."""

from __future__ import annotations

IMPORTS = "import collections, ctypes, dataclasses, datetime, enum\n"
ROWS = {
    "generic classes": (
        "import typing\nT = typing.TypeVar('T')\nclass G(typing.Generic[T]):\n    def __init__(self, x: T): self.x = x\nclass H(G[int]): pass\na = G[int](3); alias = G[int]",
        "b = G[str]('a'); h = H(4); same = a.__orig_class__",
        "b.x, b.__orig_class__, h.x, H.__orig_bases__, alias is G[int], same, type(b) is G",
    ),
    "a parent's attribute deleted": (
        "class P:\n    a = 1\n    b = 2\nclass K(P):\n    b = 2\nk = K()",
        "del P.b; P.c = 3; K.d = 4",
        "K.b, hasattr(P, 'b'), K.c, k.d, k.b",
    ),
    "slots of dataclasses": (
        "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass S:\n    a: int\n    b: list = dataclasses.field(default_factory=list)\n@dataclasses.dataclass(frozen=True, order=True)\nclass F:\n    k: int\ns = S(1); kept = s.b",
        "s.b.append(1); s.a = 2; t = S(3); f = {F(1): 2}",
        "s, kept, s.b is kept, t, f[F(1)], F(1) < F(2), type(t) is S",
    ),
    "a registry that a hook of subclasses fills": (
        "reg = {}\nclass Base:\n    def __init_subclass__(cls, key=None, **k):\n        super().__init_subclass__(**k); reg[key] = cls\nclass A(Base, key='a'):\n    v = 1",
        "class B(Base, key='b'): pass\nx = reg['a']().v",
        "sorted(reg), reg['a'] is A, reg['b'] is B, x, len(Base.__subclasses__())",
    ),
    "a registry that a metaclass fills": (
        "class M(type):\n    all = []\n    def __new__(m, n, b, d):\n        c = super().__new__(m, n, b, d); c.fields = [k for k in d if not k.startswith('_')]; m.all.append(n); return c\nclass X(metaclass=M):\n    a = 1\n    b = 2\nx = X()",
        "class Y(X):\n    c = 3\ny = Y(); z = X.fields",
        "M.all, X.fields, Y.fields, z, type(y) is Y, x.fields",
    ),
    "what looks a name up in the frame that rebuilds it, as formulas do": (
        "import sys\nlimit = 5\nclass Looks:\n    def __getstate__(self): return {'a': 1}\n"
        "    def __setstate__(self, state): self.seen = sys._getframe(1).f_globals['limit'] + state['a']",
        "x = Looks(); x.seen = 6; limit",
        "x.seen",
    ),
    "attributes that are the parent's very own": (
        "class Base:\n    rate = 1\n    def step(self): return 'base'\nclass Fast(Base):\n    rate = 2\n    def step(self): return 'fast'\n"
        "class Plain(Base):\n    rate = Base.rate\n    step = Base.step\nclass Both(Plain, Fast): pass\nb = Both()",
        "seen = Both.rate, b.step(), 'rate' in vars(Plain)\nBase.rate = 5; Base.step = lambda self: 'other'",
        "seen, Both.rate, Plain.rate, Base.rate, b.step(), Base().step()",
    ),
    "slots that are the parent's very own": (
        "class A: __slots__ = ()\nclass B(A): __slots__ = ()\nb = B()",
        "has = hasattr(B(), '__dict__')",
        "has, hasattr(b, '__dict__')",
    ),
    "a hash of the name, and sets that hold each other": (
        "class Node:\n    def __init__(self, name): self.name, self.friends, self.weights = name, set(), {}\n    def __hash__(self): return hash(self.name)\n"
        "    def __eq__(self, other): return self.name == other.name\n    def meet(self, other):\n        self.friends.add(other); other.friends.add(self); self.weights[other] = 1\n"
        "a, b = Node('a'), Node('b'); a.meet(b); a.meet(a)",
        "c = Node('c'); b.meet(c); seen = a in a.friends, b in a.friends, a.weights[b]",
        "seen, sorted(n.name for n in b.friends), a in b.friends, c in b.friends, b.weights[c], list(vars(a))",
    ),
    "a hash of several parts, in a set of one's own": (
        "class Owner:\n    def __init__(self, *names):\n        self.names = names; self.parts = {self: 1}\n    def __hash__(self): return hash(self.names)\nowner = Owner('a', 'b')",
        "owner.parts[owner] += 1",
        "owner.parts[owner], len(owner.parts), owner in owner.parts",
    ),
    "arguments of __new__": (
        "class Length(float):\n    def __new__(cls, value, unit):\n        made = super().__new__(cls, value)\n        made.unit = unit\n        return made\n"
        "class Span(collections.namedtuple('Span', 'start stop')):\n    def __new__(cls, text): return super().__new__(cls, *map(int, text.split('-')))\n"
        "class Day(datetime.date):\n    def __new__(cls, text): return super().__new__(cls, *map(int, text.split('/')))\n"
        "class Pair(tuple):\n    def __new__(cls, a, b): return super().__new__(cls, (a, b))\n"
        "class Word(str):\n    def __new__(cls, value, *, lang):\n        made = super().__new__(cls, value)\n        made.lang = lang\n        return made\n"
        "class Point:\n    def __new__(cls, x):\n        made = super().__new__(cls)\n        made.x = x\n        return made\n"
        "things = [Length(2.5, 'm'), Span('3-7'), Day('2024/2/29'), Pair(1, 2), Word('haus', lang='de')]; p = Point(3)",
        "more = [Length(things[0] + 1, 'cm'), Span('1-2'), Day('2020/1/1'), Pair(3, 4), Word('x', lang='y')]; q = Point(p.x + 1)",
        "things, more, more[0].unit, things[0].unit, things[4].lang, more[4].lang, [type(m) is type(t) for m, t in zip(more, things)], q.x",
    ),
    "arguments of __new__ of dates with a time": (
        "class When(datetime.datetime):\n    def __new__(cls, text): return super().__new__(cls, *map(int, text.split()))\n"
        "class Hour(datetime.time):\n    def __new__(cls, hour, *, why):\n        made = super().__new__(cls, hour)\n        made.why = why\n        return made\n"
        "class Long(datetime.timedelta):\n    def __new__(cls, hours, why):\n        made = super().__new__(cls, hours=hours)\n        made.why = why\n        return made\n"
        "when, kept = When('2024 1 2'), [Hour(3, why='a')]",
        "year = when.year; later = When('2023 2 3'); kept.append(Hour(4, why='b')); long = Long(2, 'c')",
        "year, when, later, kept, [each.why for each in kept], type(later) is When, long, getattr(long, 'why', 'lost')",
    ),
    "arguments of __init__ of a set and a defaultdict": (
        "class Bag(set):\n    def __init__(self, name, *items): super().__init__(items); self.name = name\n"
        "class Table(collections.defaultdict):\n    def __init__(self, a, b): super().__init__(list); self.a = a + b\nbag, table = Bag('n', 1, 2), Table(1, 2); table[1].append(2)",
        "bag.add(3); table[5].append(bag); other = Bag('m')",
        "sorted(bag), bag.name, table[5][0] is bag, table[1], table.a, table[9], other.name, type(other) is Bag",
    ),
    "arguments of classes of bytes, of Python's arrays and of fractions": (
        "import array, fractions, ipaddress\nclass Blob(bytearray):\n    def __init__(self, data, kind): super().__init__(data); self.kind = kind\n"
        "class Track(array.array):\n    def __new__(cls, first): return super().__new__(cls, 'd', [first])\n"
        "class Part(fractions.Fraction):\n    def __new__(cls, n, unit):\n        made = super().__new__(cls, n)\n        made.unit = unit\n        return made\n"
        "class Host(ipaddress.IPv4Address):\n    def __init__(self, text, tag): super().__init__(text); self.tag = tag\n"
        "blob, track, part, host = Blob(b'ab', 'k'), Track(3), Part(3, 'm'), Host('1.2.3.4', 't'); track.tag = [1]; kept = [blob, part]",
        "blob[0] = 99; track.append(part + 1); track.tag.append(host); later = Part(5, 'k'), Host('1.2.3.5', 'u'), Blob(b'c', 'd')",
        "blob, blob.kind, kept[0] is blob, track, track.tag[1] is host, part, part.unit, host.tag, [str(each) for each in later], later[0].unit, later[1].tag, later[2].kind, type(later[0]) is Part",
    ),
    "attributes that are passed on": (
        "class Proxy:\n    def __init__(self, target): self._target = target\n    def __getattr__(self, name): return getattr(self._target, name)\n"
        "class Strict:\n    __slots__ = ('a', 'late')\n    def __init__(self): object.__setattr__(self, 'a', [1])\n    def __setattr__(self, name, value): raise AttributeError(name)\np, s = Proxy([3, 1, 2]), Strict()",
        "p.sort(); s.a.append(2); q = Proxy({1: 2})",
        "p._target, s.a, list(q.keys()), hasattr(s, 'late'), p.count(1)",
    ),
    "metaclasses and descriptors of the notebook": (
        "class Once(type):\n    made = {}\n    def __call__(cls, *args):\n        if cls not in Once.made: Once.made[cls] = super().__call__(*args)\n        return Once.made[cls]\n"
        "class Settings(metaclass=Once):\n    def __init__(self): self.n = 0\nclass Upper:\n    def __set_name__(self, owner, name): self.key = '_' + name\n"
        "    def __get__(self, obj, kind=None): return self if obj is None else getattr(obj, self.key).upper()\n    def __set__(self, obj, value): setattr(obj, self.key, value)\n"
        "class Person:\n    name = Upper()\n    def __init__(self, name): self.name = name\nsettings, p = Settings(), Person('ann')",
        "same = Settings() is settings; Settings().n += 1; p.name = 'bob'; q = Person('eve')",
        "same, settings.n, Settings() is settings, len(Once.made), p.name, q.name, type(q) is Person, Person.name.key",
    ),
    "structures of ctypes": (
        "class Point(ctypes.Structure):\n    _fields_ = [('x', ctypes.c_int), ('y', ctypes.c_double)]\n    def total(self): return self.x + self.y\np = Point(1, 2.5)\nPoint.note = 'set later'",
        "q = Point(p.x + 1, 3.0); t = p.total(), ctypes.sizeof(Point), Point.note",
        "q.x, q.y, t, type(q) is Point, p.total()",
    ),
    "unions and arrays of ctypes": (
        "class Both(ctypes.Union):\n    _fields_ = [('i', ctypes.c_uint32), ('b', ctypes.c_uint8 * 4)]\nRow = Both * 2; row = Row(); row[0].i = 258; four = (ctypes.c_int * 4)(1, 2)",
        "row[1].i = 1; first = list(row[0].b); four[3] = 7; other = (ctypes.c_double * 2)(0.5)",
        "first, row[1].b[0], type(row) is Row, list(four), list(other)",
    ),
    "structures of msgspec": (
        "import msgspec\nN = 4\nclass P(msgspec.Struct, frozen=True, kw_only=True):\n    x: int\n    tags: list[str] = []\n    n: int = N\np = P(x=1)",
        "class Q(P, frozen=True):\n    y: float = 2.0\nq = Q(x=3); back = msgspec.json.decode(msgspec.json.encode(p), type=P)",
        "p, q, back == p, type(back) is P, isinstance(q, P), msgspec.json.encode(q), Q(x=5), q.tags is p.tags",
    ),
    "tables of SQLAlchemy": (
        "import sqlalchemy as sa\nfrom sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column\n"
        "class Model(DeclarativeBase): pass\nclass User(Model):\n    __tablename__ = 'users'\n    id: Mapped[int] = mapped_column(primary_key=True)\n    name: Mapped[str]\n    def shout(self): return self.name.upper()\nu = User(id=7, name='eve')",
        "engine = sa.create_engine('sqlite://'); Model.metadata.create_all(engine)\nwith Session(engine) as session:\n    session.add(User(id=1, name='ann')); session.commit()\n    rows = [(r.id, r.name, r.shout()) for r in session.scalars(sa.select(User))]\nengine.dispose(); del engine, session",
        "rows, u.name, type(u) is User, User.__tablename__, sorted(Model.metadata.tables)",
    ),
    "a library's own transformer reads names and counts": (
        "import numpy as np\nfrom collections import Counter, defaultdict\nfrom sklearn.base import BaseEstimator, TransformerMixin\nfrom sklearn.preprocessing import StandardScaler\n"
        "from functools import cached_property, lru_cache\nstep = 2\n"
        "class Clip(TransformerMixin, BaseEstimator):\n    fits = Counter(); table = np.zeros(2); by = defaultdict(list); default = None; scaler = StandardScaler()\n"
        "    def __init__(self, hi=1): self.hi = hi\n"
        "    def fit(self, X, y=None):\n        Clip.fits['n'] += 1; Clip.table[0] += 1; Clip.by['x'].append(1); Clip.scaler.fit([[1.], [2.]]); return self\n"
        "    def transform(self, X): return np.clip(X, 0, self.hi) * step\n"
        "    @cached_property\n    def twice(self): return step * 2\n"
        "    @staticmethod\n    @lru_cache\n    def half(n): return n / step\n"
        "Clip().fit([1]); Clip.default = Clip(3)",
        "c = Clip().fit([1]); got = c.transform(np.array([5.])), c.twice, Clip.half(3), Clip.default.hi",
        "(got, Clip.fits, Clip.table, Clip.by, Clip.scaler.mean_, c.fit([1]) is c, Clip.fits)",
    ),
    "functions of torch with data": (
        "import torch\nclass Clamp(torch.autograd.Function):\n    limits = torch.tensor([0., 1.])\n    @staticmethod\n    def forward(ctx, x): return x.clamp(*Clamp.limits.tolist())\n"
        "    @staticmethod\n    @torch.autograd.function.once_differentiable\n    def backward(ctx, g): return g * torch.ones(1)\n"
        "class Doubled(torch.nn.Module):\n    @torch.no_grad()\n    def forward(self, x): return torch.relu(x)",
        "Clamp.limits[1] = 9.; x = torch.tensor([5.], requires_grad=True); y = Clamp.apply(x); y.backward(); y = y.item(); r = Doubled()(x)",
        "(Clamp.limits, Clamp.apply(torch.tensor([7.])), y, x.grad, r)",
    ),
    "a model that counts and holds its one instance": (
        "import pydantic\nfrom collections import Counter\nfrom typing import ClassVar\n"
        "class Settings(pydantic.BaseModel):\n    lr: float = .1\n    seen: ClassVar[Counter] = Counter()\n    _one: ClassVar['Settings | None'] = None\n"
        "    @classmethod\n    def get(cls):\n        if cls._one is None: cls._one = cls()\n        cls.seen['a'] += 1\n        return cls._one\n"
        "st = Settings.get()",
        "Settings.get().lr = .9; same = Settings.get() is st",
        "(same, st.lr, Settings.get() is st, Settings.seen)",
    ),
    "statements that register run without effect": (
        "from sklearn.base import BaseEstimator\nREG = []; BY = {}; loads = [1]\n"
        "def register(c): REG.append(c); BY[c.__name__] = c; return c\n"
        "def load(): loads.append(len(loads)); return {'w': 1}\n"
        "@register\nclass A(BaseEstimator):\n    table = load()\n"
        "@register\nclass B(BaseEstimator): pass",
        "n = len(REG), len(BY), loads[:], A.table, REG[0] is A; REG.append(n)",
        "(n, REG[2], len(REG), REG[1] is B, BY['A'] is A, loads, A.table)",
    ),
    "tables of SQLAlchemy, whose base a call makes": (
        "import sqlalchemy as sa\nfrom sqlalchemy.orm import Session, declarative_base\nModel = declarative_base()\n"
        "class Pet(Model):\n    __tablename__ = 'pets'\n    id = sa.Column(sa.Integer, primary_key=True)\n    name = sa.Column(sa.String)\np = Pet(id=7, name='eve')",
        "engine = sa.create_engine('sqlite://'); Model.metadata.create_all(engine)\nwith Session(engine) as session:\n    session.add(Pet(id=1, name='ann')); session.commit()\n    rows = [(r.id, r.name) for r in session.scalars(sa.select(Pet))]\nengine.dispose(); del engine, session",
        "rows, p.name, type(p) is Pet, Pet.__mro__[1] is Model, sorted(Model.metadata.tables)",
    ),
    "models of pydantic": (
        "import typing, pydantic\nT = typing.TypeVar('T')\nclass Box(pydantic.BaseModel, typing.Generic[T]):\n    item: T\n    n: int = pydantic.Field(3, ge=0)\n"
        "    @pydantic.field_validator('n')\n    @classmethod\n    def even(cls, v):\n        return v * 2\nbox = Box[int](item=1)",
        "other = Box[int](item=2, n=4); texts = Box[str](item='x')",
        "box, other, type(other) is type(box), type(other) is Box[int], type(texts) is Box[str], Box[int](item=1).n, isinstance(texts, Box)",
    ),
    "a library's own transformers": (
        "from sklearn.base import BaseEstimator, TransformerMixin\nclass Scale(TransformerMixin, BaseEstimator):\n    def __init__(self, by=2): self.by = by\n"
        "    def fit(self, X, y=None): return self\n    def transform(self, X): return [x * self.by for x in X]\ns = Scale(3)\nScale.limit = 9",
        "s.set_params(by=Scale.limit); made = s.fit_transform([1, 2]); t = Scale()",
        "made, s, t, type(t) is Scale, t.transform([1])",
    ),
}
