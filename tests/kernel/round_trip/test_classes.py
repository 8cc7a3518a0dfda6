# ruff: noqa: E501 - a cell is one string
"""Classes and odd objects, there and back."""

from __future__ import annotations

import dataclasses

from round_trip import Notebook

from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust

# ----------------------------------------------------------------------------------------- classes
CLASSES = """
import abc, collections, dataclasses, enum, typing
class Base(abc.ABC):
    made = 0
    registry = []
    @abc.abstractmethod
    def name(self): ...
    @classmethod
    def make(cls):
        cls.made += 1
        return cls()
    @staticmethod
    def two(): return 2
    @property
    def loud(self): return self.name().upper()
class Child(Base):
    def __init__(self): super().__init__()
    def name(self): return suffix + type(self).__name__
Point = collections.namedtuple("Point", "x y")
class Pair(typing.NamedTuple):
    a: int
    b: int = 2
class Color(enum.Enum):
    RED = 1
    def other(self): return Color.RED
class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2
@dataclasses.dataclass
class Config:
    lr: float = 0.1
    layers: list = dataclasses.field(default_factory=list)
T = typing.TypeVar("T")
class Stack(typing.Generic[T]):
    def __init__(self): self.items: list[T] = []
class Slotted:
    __slots__ = ("a", "b")
    def __init__(self): self.a = 1
suffix = "my"
child, point, pair, color, level, config, stack, slotted = (
    Child(), Point(1, 2), Pair(1), Color.RED, Level.LOW | Level.HIGH, Config(), Stack(), Slotted())
names = "Base Child Point Pair Color Level Config Stack Slotted".split()
before = {n: globals()[n] for n in names}
"""


def test_classes_stay_the_same_class(nb: Notebook) -> None:
    nb.cell(CLASSES)
    nb.ok(
        "child.x = Child.make()\nconfig.layers.append(3)\nstack.items.append(1)\nslotted.b = 2\n"
        "r = [child.loud, child.two(), point, pair, color, level, config, stack, slotted, Color.RED.other()]\n"
        "fresh = [Child(), Point(3, 4), Color.RED, Config(lr=1.0)]"
    )
    ns = nb.ns
    assert all(ns[name] is cls for name, cls in ns["before"].items())
    assert ns["r"][0] == "MYCHILD"
    for value, cls in zip(ns["fresh"], ("Child", "Point", "Color", "Config"), strict=True):
        assert type(value) is ns[cls]
    assert type(ns["r"][3]) is ns["Pair"]
    assert ns["r"][4] is ns["Color"].RED is ns["r"][9]
    assert ns["child"].x.loud == "MYCHILD"
    assert isinstance(ns["child"], ns["Base"])
    assert (ns["slotted"].a, ns["slotted"].b) == (1, 2)
    assert ns["Child"].made == 1
    assert vars(ns["Base"])["made"] == 0


def test_class_attributes_changed_in_the_cell_come_back(nb: Notebook) -> None:
    nb.cell(CLASSES)
    nb.ok("Base.registry.append('a')\nChild.made = 7\nChild.extra = 1\nConfig.lr = 0.5\ndel Base.two")
    ns = nb.ns
    assert ns["Base"].registry == ["a"]
    assert (ns["Child"].made, ns["Child"].extra, ns["Config"].lr) == (7, 1, 0.5)
    assert not hasattr(ns["Base"], "two")


def test_methods_stay_bound_to_the_notebook_and_newer_ones_are_not_overwritten(nb: Notebook) -> None:
    nb.cell(CLASSES)
    prepared = nb.collect("child.x = 1")
    assert prepared.originals["child"] is nb.ns["child"]
    nb.ok("child.y = 1")
    method = nb.ns["Child"].name
    assert method.__globals__ is nb.ns
    nb.cell("suffix = 'your'\nChild.name = lambda self: 'newer'")
    newer = nb.ns["Child"].name
    nb.ok("child.z = child.name()")
    assert nb.ns["Child"].name is newer
    assert nb.ns["child"].z == "newer"


def test_a_method_patched_in_the_cell_comes_back(nb: Notebook) -> None:
    nb.cell(CLASSES)
    nb.ok("Child.name = lambda self: suffix + 'patched'")
    assert nb.ns["child"].name() == "mypatched"
    nb.cell("suffix = 'x'")
    assert nb.ns["child"].name() == "xpatched"


def test_classes_defined_in_the_cell_come_back_and_go_again(nb: Notebook) -> None:
    nb.ok(
        "class New:\n    n = 0\n    def up(self):\n        New.n += 1\n        return other()\ndef other(): return k\nk = 3\nnew = New()"
    )
    first = nb.ns["New"]
    assert nb.ns["new"].up() == 3
    nb.cell("k = 4")
    nb.ok("r = new.up(), isinstance(new, New)\nagain = New()")
    assert nb.ns["r"] == (4, True)
    assert nb.ns["New"] is first is type(nb.ns["again"])
    assert first.n == 2


def test_a_class_defined_again_is_another_class(nb: Notebook) -> None:
    nb.cell("class A: v = 1\na = A()")
    nb.ok("a.x = 1")
    nb.cell("class A: v = 2\nb = A()")
    nb.ok("r = a.v, b.v, type(a) is A, type(b) is A")
    assert nb.ns["r"] == (1, 2, False, True)


def test_metaclasses_descriptors_and_init_subclass(nb: Notebook) -> None:
    nb.cell(
        "import functools\nregistry = []\nclass Meta(type):\n    def __call__(cls, *a):\n        return super().__call__(*a)\n"
        "class Plugin(metaclass=Meta):\n    def __init_subclass__(cls, **k):\n        registry.append(cls.__name__)\n"
        "class One(Plugin):\n    @functools.cached_property\n    def slow(self): return 5\none = One()"
    )
    nb.ok("r = one.slow, type(type(one)).__name__")
    assert nb.ns["r"] == (5, "Meta")
    assert nb.ns["registry"] == ["One"]
    assert type(nb.ns["one"]) is nb.ns["One"]


ODDITIES = """
import functools, contextlib, typing, dataclasses, abc, torch, enum, collections
@functools.singledispatch
def sd(x): return "obj"
@sd.register
def _(x: int): return "int"
@contextlib.contextmanager
def cm():
    yield 5
@torch.no_grad()
def ng(x): return x*w
w=torch.ones(2,requires_grad=True)
@dataclasses.dataclass(slots=True, frozen=True)
class Fz:
    a: int
    b: list = dataclasses.field(default_factory=list)
@dataclasses.dataclass(order=True)
class Od:
    x: int
    y: typing.ClassVar[int] = 4
class TD(typing.TypedDict):
    a: int
@typing.runtime_checkable
class Pr(typing.Protocol):
    def go(self): ...
class Im:
    def go(self): return 1
class Outer:
    class Inner:
        def f(self): return Outer.k
    k=9
    @property
    def p(self): return self._p
    @p.setter
    def p(self,v): self._p=v
class A:
    def other(self): return B()
class B(A): pass
class AttrDict(dict):
    __getattr__=dict.get
    __setattr__=dict.__setitem__
class Proxy:
    def __init__(self): self.d={"x":1}
    def __getattr__(self,n): return self.__dict__["d"][n] if n in self.__dict__.get("d",{}) else 42 if not n.startswith("__") else super().__getattribute__(n)
class MyErr(Exception):
    def __init__(self,code,msg="m"): super().__init__(msg); self.code=code
class Sing:
    _inst=None
    def __new__(cls,*a):
        if cls._inst is None: cls._inst=super().__new__(cls)
        return cls._inst
sing=Sing()
class Fl(enum.Flag): X=1; Y=2
class Cx(complex): pass
class It:
    def __iter__(self): return iter([1])
    def __len__(self): return 0
    def __bool__(self): raise RuntimeError("no bool")
    def __eq__(self,o): raise RuntimeError("no eq")
    __hash__=object.__hash__
it=It()
ad=AttrDict(a=1); px=Proxy(); err=MyErr(3); fz=Fz(1); od=Od(2); inner=Outer.Inner(); outer=Outer(); outer.p=3; b=B(); td=TD(a=1)
even=lambda n: True if n==0 else odd(n-1)
odd=lambda n: False if n==0 else even(n-1)
Vec=collections.namedtuple("Vec","x y",defaults=[0])
class V2(Vec):
    def norm(self): return self.x+off
off=100
v2=V2(1)
cb={"f": torch.nn.functional.relu, "g": torch.relu, "m": torch.Tensor.sum, "h": str.upper, "n": [].append}
model=torch.nn.Sequential(torch.nn.Linear(2,2))
seen=[]
model[0].register_forward_hook(lambda m,i,o: seen.append(float(o.detach().sum())))
sig=typing.get_type_hints
"""


def test_odd_functions_classes_and_objects(nb: Notebook) -> None:
    nb.cell(ODDITIES)
    nb.ok(
        "with cm() as five: pass\n"
        "r = [sd(1), sd('a'), five, ng(torch.ones(2)).tolist(), isinstance(Im(), Pr), inner.f(), outer.p, type(b.other()) is B,\n"
        "     ad.a, px.x, px.zzz, err.code, str(err), Sing() is sing, even(10), v2.norm(), cb['f'](torch.tensor(-1.)).item(), list(it)]\n"
        "outer.p = 4; ad.b = 2; px.d['y'] = 3; err.code = 9; od.x = 7; b.z = 1; sing.q = 1; it.z = 2; fz.b.append(1)\n"
        "out = model(torch.ones(1, 2)); flags = Fl.X | Fl.Y"
    )
    ns = nb.ns
    assert ns["r"] == ["int", "obj", 5, [1, 1], True, 9, 3, True, 1, 1, 42, 3, "m", True, True, 101, 0, [1]]
    assert (ns["outer"].p, ns["ad"], ns["px"].y, ns["err"].code, ns["od"].x) == (4, {"a": 1, "b": 2}, 3, 9, 7)
    assert ns["Sing"]() is ns["sing"]
    assert (ns["sing"].q, ns["it"].z) == (1, 2)
    assert [type(ns[name]) for name in ("fz", "od", "err", "b")] == [ns[name] for name in ("Fz", "Od", "MyErr", "B")]
    assert ns["flags"] == ns["Fl"].X | ns["Fl"].Y
    nb.cell("model(torch.ones(1, 2))")
    assert len(ns["seen"]) == 2


DATACLASSES = """
import dataclasses
from dataclasses import dataclass, field
@dataclass
class Base:
    lr: float
    n: int = 2
    tags: list = field(default_factory=list)
@dataclass
class Middle(Base):
    z: int = 3
    _: dataclasses.KW_ONLY
    w: int = 4
def make():
    @dataclass
    class Last(Middle):
        q: int = 1
    return Last(lr=0.5)
one = Base(0.1)
"""


def test_dataclasses_are_extended_there_and_here(nb: Notebook) -> None:
    """A copy of ``dataclasses.MISSING`` is a default like any other."""
    nb.cell(DATACLASSES)
    nb.ok(
        "one.extra = 1\nthere = repr(make())\n"
        "@dataclass\nclass Made:\n    lr: float = 0.1\n    tags: list = field(default_factory=list)"
    )
    assert nb.ns["there"].endswith("Last(lr=0.5, n=2, tags=[], z=3, w=4, q=1)")
    nb.cell("@dataclass\nclass Big(Made):\n    extra: int = 1\nhere = repr([Big(), make()])")
    assert (
        dataclasses.field(default_factory=list).default is dataclasses.MISSING
    )  # the library's own was exchanged, too
    assert nb.ns["here"].startswith("[Big(lr=0.1, tags=[], extra=1)")
    assert nb.ns["here"].endswith("Last(lr=0.5, n=2, tags=[], z=3, w=4, q=1)]")


REBUILT_BY_THEMSELVES = """
import collections, math as m
SCALE, CALLS = 3, []
REGISTRY = {}
class Scaled:
    def __init__(self, x): self.x = x; self._fill()
    def _fill(self): self.y = m.floor(self.x * SCALE); CALLS.append(self.x)
    def __getstate__(self): return {"x": self.x}
    def __setstate__(self, state): self.__dict__.update(state); self._fill()
class Only:
    def __init__(self, key): self.key = key; REGISTRY[key] = self
    def __reduce__(self): return only, (self.key,)
def only(key): return REGISTRY.get(key) or Only(key)
class Keyed:
    def __init__(self, k): self.k = k
    def __hash__(self): return hash(self.k) % PRIME
    def __eq__(self, other): return fold(self) == fold(other)
def fold(keyed): return keyed.k % PRIME
PRIME = 7
a, zs, b, keyed = Scaled(1), [Scaled(2)], Only("b"), {Keyed(1): 1, Keyed(9): 2}
del CALLS[:]
"""


def test_what_rebuilding_reads_is_there_before_it_in_both_directions(nb: Notebook) -> None:
    nb.cell(REBUILT_BY_THEMSELVES)
    nb.ok("r = a.y, zs[0].y, b.key, REGISTRY['b'] is b, keyed[Keyed(8)], len(keyed), SCALE")
    assert nb.ns["r"] == (3, 6, "b", True, 1, 2, 3)
    assert nb.ns["REGISTRY"]["b"] is nb.ns["b"]
    nb.ok("SCALE = 4\nnew, other = Scaled(5), Only('other')\nkept = {Keyed(2): 1}")
    assert (nb.ns["new"].y, nb.ns["SCALE"]) == (20, 4)
    assert nb.ns["REGISTRY"]["other"] is nb.ns["other"]
    trip = nb.ok(
        "BASE = 2\nclass Own:\n    def __init__(self, n): self.n = n; CALLS.append(n)\n    def __reduce__(self): return Own, (self.n + BASE,)\nown = Own(1)"
    )
    assert (nb.ns["own"].n, 3 in nb.ns["CALLS"], trip.notes) == (1, True, [])


ANSWERS_ANYTHING = """
import weakref
class Cfg(dict):
    __getattr__ = dict.__getitem__
class Odd:
    @property
    def __class__(self): raise RuntimeError("nobody asks")
class Settings:
    cfg = Cfg(a=1)
    def __init__(self): self.x = 1
    def __setstate__(self, state): self.x = state["x"] + cfg.a
class Strange:
    def __init__(self): self.x = 1
    def __setstate__(self, state): self.x = 5 if state else odd
cfg, odd, s, strange = Cfg(a=1), Odd(), Settings(), Strange()
"""


def test_attributes_and_names_that_answer_anything_fail_no_dump() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    exec(ANSWERS_ANYTHING, names)
    values = {name: names[name] for name in ("s", "cfg", "strange")}
    dump = codec.dump(values, NamespaceInfo(names, at_home=True))
    assert dump.failed == {}
    there: dict[str, object] = {}
    loaded = codec.load(dump.stream, dump.buffers, NamespaceInfo(there, at_home=False), trust=Trust.OWN).values
    assert (loaded["s"].x, loaded["s"].cfg, loaded["strange"].x) == (2, {"a": 1}, 5)


def test_names_that_rebuilding_reads_are_bound_no_longer_than_it_takes(nb: Notebook) -> None:
    nb.cell(REBUILT_BY_THEMSELVES)
    stream, buffers = nb.ok("a.x = 2\nSCALE = 4\nCALLS.append(0)").graph
    names: dict[str, object] = {"SCALE": 1}
    loaded = codec.load(stream, buffers, NamespaceInfo(names, at_home=True), trust=Trust.OWN)
    assert loaded.values["a"].y == 8
    assert names["SCALE"] == 1
    assert "CALLS" not in names


def test_an_enum_keeps_the_aliases_of_its_members(nb: Notebook) -> None:
    nb.cell(
        "import enum\nclass Colour(enum.Enum):\n    RED = 1\n    CRIMSON = 1\n    GREEN = 2\n"
        "class Rights(enum.Flag):\n    NONE = 0\n    READ = 1\n    WRITE = 2\n    BOTH = 3\n"
    )
    asked = (
        "(list(Colour.__members__), Colour['CRIMSON'] is Colour.CRIMSON is Colour.RED, list(Colour),"
        " list(Rights.__members__), Rights['BOTH'] is Rights.BOTH, repr(Rights.READ | Rights.WRITE), Rights.NONE)"
    )
    nb.ok(f"there = {asked}")
    assert nb.ns["there"] == nb.cell(asked)
    source = "import enum\nclass Made(str, enum.Enum):\n    A = 'a'\n    B = 'a'\n    def other(self): return Made['B']"
    nb.ok(source)
    assert nb.cell("list(Made.__members__), Made['B'] is Made.A, Made.A.other()") == (["A", "B"], True, "a")
