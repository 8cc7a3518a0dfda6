"""Protocols, enums, named tuples, slots."""

# %%
from enum import Enum, Flag, auto
from typing import NamedTuple


class Suit(Enum):
    CLUBS = auto()
    HEARTS = auto()


class Card(NamedTuple):
    rank: int
    suit: Suit


hand = [Card(3, Suit.HEARTS), Card(12, Suit.CLUBS)]
hand

# %%
Suit.HEARTS is hand[0].suit, {Suit.CLUBS: 'black'}[hand[1].suit]

# %%
class Countdown:
    __slots__ = ('start',)

    def __init__(self, start):
        self.start = start

    def __iter__(self):
        return iter(range(self.start, 0, -1))

    def __len__(self):
        return self.start

    def __getitem__(self, at):
        return self.start - at


down = Countdown(4)
list(down), len(down), down[1]

# %%
class Access(Flag):
    READ = auto()
    WRITE = auto()


both = Access.READ | Access.WRITE
both, Access.READ in both

# %%
numbers = iter([1, 2, 3])
next(numbers)

# %%
next(numbers)

# %%
stack, queue = [1], {'a': {1, 2}}
stack += [stack]
len(stack), stack[1] is stack

# %%
class Meta(type):
    made = []

    def __new__(meta, name, bases, space):
        meta.made.append(name)
        return super().__new__(meta, name, bases, space)


class Plugin(metaclass=Meta):
    pass


class Csv(Plugin):
    pass


Meta.made

# %%
a, *rest, z = 'abcde'
(first, second), third = (1, 2), 3
rest, third

# %%
if (n := len(rest)) > 2:
    print(f'{n=}')

# %%
total: int = 0
for card in hand:
    total += card.rank
card, total
