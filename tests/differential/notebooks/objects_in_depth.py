"""Objects in depth: enums, protocols, descriptors, decorators, redefined classes, iterators kept between cells."""

# %%
import enum
import functools
import itertools
import operator
from abc import ABC, abstractmethod
from collections import ChainMap, UserDict, UserList
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Protocol, TypedDict, TypeVar, runtime_checkable


# %%
class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1

    @property
    def title(self):
        return self.name.title()


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Level(enum.IntEnum):
    LOW, HIGH = 1, 10


mine = Rights.READ | Rights.WRITE
mine, Colour.CRIMSON is Colour.RED, Level.HIGH > 3, Colour(2).title, list(Colour)

# %%
palette = {Colour.RED: 'warm', Colour.GREEN: 'cold'}
palette[Colour(1)], Rights.READ in mine, mine & ~Rights.READ

# %%
T = TypeVar('T')


@runtime_checkable
class Sized2(Protocol):
    def size(self) -> int: ...


class Stack(Generic[T]):
    made: ClassVar[int] = 0

    def __init__(self):
        type(self).made += 1
        self._items: list[T] = []

    def push(self, item: T) -> 'Stack[T]':
        self._items.append(item)
        return self

    def size(self):
        return len(self._items)

    def __iter__(self):
        return reversed(self._items)


stack = Stack[int]().push(1).push(2)
isinstance(stack, Sized2), Stack.made, list(stack), stack.__orig_class__

# %%
other = Stack()
Stack.made, other.push('a').size()


# %%
class Positive:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__[self.name]

    def __set__(self, instance, value):
        if value <= 0:
            raise ValueError(f'{self.name} must be positive')
        instance.__dict__[self.name] = value


class Shape(ABC):
    width = Positive()
    registry = {}

    def __init_subclass__(cls, /, code='', **kwargs):
        super().__init_subclass__(**kwargs)
        Shape.registry[code] = cls

    @abstractmethod
    def area(self): ...


class Square(Shape, code='sq'):
    def __init__(self, width):
        self.width = width

    def area(self):
        return self.width**2


shapes = [Square(n) for n in (3, 1, 2)]
Shape.registry, sorted(shapes, key=operator.methodcaller('area'))[0] is shapes[1]

# %%
Square(-1)


# %%
@dataclass(order=True, frozen=True)
class Version:
    major: int
    minor: int = 0
    tags: tuple = field(default=(), compare=False)


releases = sorted([Version(2), Version(1, 5, ('lts',)), Version(1)])
latest = replace(releases[-1], minor=7)
releases, latest, hash(Version(2)) == hash(releases[-1]), {latest: 'now'}[Version(2, 7)]


# %%
def logged(function=None, *, prefix='call'):
    if function is None:
        return functools.partial(logged, prefix=prefix)

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls.append((prefix, args))
        return function(*args, **kwargs)

    wrapper.calls = []
    return wrapper


@logged(prefix='add')
def add(a, b=1):
    """Sum of two."""
    return a + b


add(1), add(2, b=3), add.calls, add.__wrapped__(1), add.__doc__

# %%
add(5)
history = add.calls
len(history), history is add.calls

# %%
late = [lambda: n for n in range(3)]
early = [lambda n=n: n for n in range(3)]
[f() for f in late], [f() for f in early]


# %%
def account(balance):
    def deposit(amount):
        nonlocal balance
        balance += amount
        return balance

    def show():
        return balance

    return deposit, show


deposit, show = account(10)
deposit(5)

# %%
deposit(1), show()


# %%
@functools.singledispatch
def describe(value):
    return 'thing'


@describe.register
def _(value: int):
    return 'number'


@describe.register(list)
def _(value):
    return 'list of ' + ', '.join(map(describe, value))


describe([1, 'a']), describe.dispatch(bool)(True)


# %%
@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


fib(50)

# %%
counter, wheel = itertools.count(5, 5), itertools.cycle('ab')
numbers = iter([10, 20, 30])
next(counter), next(wheel), next(numbers)

# %%
next(counter), next(wheel), list(numbers)

# %%
pairs = zip('xyz', range(3))
next(pairs)

# %%
list(pairs), list(map(str, enumerate(range(2), 1)))


# %%
class Square(Shape, code='sq2'):
    """Defined anew."""

    def area(self):
        return -1


type(shapes[0]) is Square, shapes[0].area(), Shape.registry['sq'] is type(shapes[0]), isinstance(shapes[0], Shape)


# %%
class Movie(TypedDict, total=False):
    name: str
    year: int


class Bag(UserDict):
    def __missing__(self, key):
        self.data[key] = UserList()
        return self.data[key]


bag = Bag()
bag['a'].append(1)
settings = ChainMap({'debug': True}, {'debug': False, 'depth': 2})
film: Movie = {'name': 'M'}
bag['a'], bag['b'], settings['debug'], settings['depth'], Movie.__annotations__, __annotations__

# %%
settings.maps[1]['depth'] = 3
settings.new_child({'x': 1})['depth'], bag['a'] is bag.data['a'], {**film, 'year': 1931}
