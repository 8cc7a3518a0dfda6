"""What today's Python and IPython offer: async cells, data classes, enums, typing, logging, magics that write and run files."""

# %%
import asyncio
import contextlib
import dataclasses
import enum
import functools
import logging
import typing
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

# %load_ext autoreload
# %autoreload 2

# %%
async def fetch(n, delay=0.01):
    await asyncio.sleep(delay)
    return n * n


await fetch(3)

# %%
results = await asyncio.gather(*(fetch(n) for n in range(5)))
results

# %%
async def ticker(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


ticks = [i async for i in ticker(4)]
async with asyncio.timeout(5):
    value = await fetch(9)
ticks, value

# %%
queue = asyncio.Queue()
await queue.put('job')
await queue.get(), queue.empty()

# %%
class Colour(enum.Enum):
    RED = 'r'
    GREEN = 'g'

    @property
    def loud(self):
        return self.name + '!'


class Flags(enum.IntFlag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclass(order=True)
class Item:
    price: float
    name: str = field(compare=False, default='?')
    tags: list[str] = field(default_factory=list, compare=False, repr=False)
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


items = [Item(3.0, 'tea'), Item(1.5, 'milk', ['cold'], Colour.GREEN)]
sorted(items), Colour('r') is Colour.RED, Flags.READ | Flags.WRITE

# %%
min(items)

# %%
items[0].colour is Colour.RED, {Point(1): 'a'}[Point(1)], dataclasses.replace(items[1], price=9)

# %%
Shape = typing.NamedTuple('Shape', [('w', int), ('h', int)])
T = typing.TypeVar('T')


class Stack(typing.Generic[T]):
    def __init__(self) -> None:
        self.items: list[T] = []

    def push(self, item: T) -> 'Stack[T]':
        self.items.append(item)
        return self


@typing.runtime_checkable
class HasArea(typing.Protocol):
    def area(self) -> float: ...


stack = Stack[int]().push(1).push(2)
stack.items, isinstance(stack, HasArea), Shape(1, 2)

# %%
logging.basicConfig(level=logging.INFO, format='%(levelname)s %(name)s: %(message)s', force=True)
log = logging.getLogger('shop')
log.info('opened')
log.debug('not shown')

# %%
log.warning('still %d items', len(items))

# %%
warnings.warn('take care', stacklevel=1)

# %%
def old():
    warnings.warn('use new()', DeprecationWarning, stacklevel=2)
    return 1


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    old()
[str(w.message) for w in caught]

# %%
def timed(function):
    calls = 0

    @functools.wraps(function)
    def inner(*args, **kwargs):
        nonlocal calls
        calls += 1
        inner.calls = calls
        return function(*args, **kwargs)

    return inner


@timed
def total(items: list[Item]) -> float:
    """All prices."""
    return sum(item.price for item in items)


total(items), total(items), total.calls

# %%
total(items)
total.calls, total.__name__, total.__wrapped__(items), total.__doc__

# %%
partial_total = functools.partial(total, items)
handlers = {'total': total, 'price': lambda item: item.price}
handlers['total'] is total, partial_total.func is total

# %%
@contextlib.contextmanager
def opened(name) -> Iterator[list]:
    events = [f'open {name}']
    try:
        yield events
    finally:
        events.append('close')
        print(events)


with opened('till') as events:
    events.append('work')

# %%
class Managed:
    depth = 0

    def __enter__(self):
        type(self).depth += 1
        return self

    def __exit__(self, *details):
        type(self).depth -= 1
        return details[0] is KeyError


with Managed() as managed:
    raise KeyError('swallowed')
Managed.depth

# %%
# %%writefile prices.py
"""Prices."""
RATE = 0.2
seen = []


def with_tax(price):
    seen.append(price)
    return round(price * (1 + RATE), 2)


if __name__ == '__main__':
    result = with_tax(10)
    print('run as a script', result)

# %%
import prices

prices.with_tax(5), prices.seen

# %%
prices.RATE = 0.5
prices.with_tax(5)

# %%
# %run prices.py

# %%
result, seen, RATE

# %%
# %%writefile prices.py
"""Prices."""
RATE = 0.1
seen = []


def with_tax(price):
    return ('new', price * (1 + RATE))

# %%
prices.with_tax(10)

# %%
# %%capture captured
print('hidden')
import sys
print('hidden too', file=sys.stderr)

# %%
captured.stdout, captured.stderr

# %%
# %env SHOP_MODE=test
import os

os.environ['SHOP_MODE'], os.environ.get('NOT_THERE')

# %%
# %env SHOP_MODE

# %%
# !echo mode $SHOP_MODE

# %%
# %%bash
echo from bash $SHOP_MODE
for i in 1 2; do echo $i; done

# %%
files = !ls *.py
sorted(f for f in files if f == 'prices.py')

# %%
# %timeit -n 1 -r 1 -q total(items)

# %%
gen = (n * n for n in range(5))
list(gen)

# %%
def countdown(n):
    while n:
        received = yield n
        n = received if received is not None else n - 1


steps = list(countdown(3))
steps

# %%
match items[0]:
    case Item(price=p, name='tea') if p > 2:
        verdict = 'dear tea'
    case _:
        verdict = 'fine'
verdict

# %%
def make_account(balance=0):
    def deposit(n):
        nonlocal balance
        balance += n
        return balance

    def show():
        return balance

    return deposit, show


deposit, show = make_account(10)
deposit(5)

# %%
deposit(1), show()

# %%
class Registry(dict):
    def __missing__(self, key):
        self[key] = value = key.upper()
        return value


class Meta(type):
    known = []

    def __new__(mcls, name, bases, space):
        made = super().__new__(mcls, name, bases, space)
        mcls.known.append(made)
        return made


class Base(metaclass=Meta):
    pass


class Child(Base):
    pass


registry = Registry()
registry['a'], Meta.known == [Base, Child], Base.__subclasses__()

# %%
class Second(Child):
    pass


[c.__name__ for c in Meta.known], registry, Child.__subclasses__()

# %%
try:
    raise ExceptionGroup('several', [ValueError('a'), ValueError('b')])
except* ValueError as group:
    handled = [str(each) for each in group.exceptions]
handled

# %%
try:
    {}['x']
except KeyError as error:
    raise RuntimeError('wrapped') from error

# %%
assert total(items) == 0, 'not nothing'

# %%
In[1][:14], len(Out) > 5

# %%
print(*map(str, items), sep='\n')
# %precision 2
3.14159

# %%
_ + 1
