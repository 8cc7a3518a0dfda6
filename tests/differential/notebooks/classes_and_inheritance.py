"""Shapes, accounts, and what a subclass adds."""

# %%
from abc import ABC, abstractmethod
from dataclasses import dataclass, field


class Shape(ABC):
    count = 0

    def __init__(self):
        Shape.count += 1

    @abstractmethod
    def area(self): ...

    def __lt__(self, other):
        return self.area() < other.area()

# %%
class Square(Shape):
    def __init__(self, side):
        super().__init__()
        self.side = side

    def area(self):
        return self.side**2

    def __repr__(self):
        return f'Square({self.side})'


shapes = [Square(3), Square(1), Square(2)]
sorted(shapes), Shape.count

# %%
class Tile(Square):
    colour = 'white'


shapes.append(Tile(5))
max(shapes), [type(shape).__mro__[1].__name__ for shape in shapes]

# %%
Tile.colour = 'red'
shapes[-1].colour, Shape.count

# %%
Shape()

# %%
@dataclass(order=True)
class Account:
    balance: float
    owner: str = field(compare=False)
    log: list = field(default_factory=list, compare=False, repr=False)

    def pay(self, amount):
        if amount > self.balance:
            raise ValueError(f'{self.owner} has only {self.balance}')
        self.balance -= amount
        self.log.append(amount)
        return self

# %%
ann, bob = Account(100, 'ann'), Account(50, 'bob')
team = {'lead': ann, 'rest': [bob]}
ann.pay(30).pay(15)

# %%
bob.pay(80)

# %%
richest = max([ann, bob])
richest is ann, team['lead'] is ann, team['rest'][0].log

# %%
class Temperature:
    def __init__(self, celsius):
        self._celsius = celsius

    @property
    def fahrenheit(self):
        return self._celsius * 9 / 5 + 32

    @fahrenheit.setter
    def fahrenheit(self, value):
        self._celsius = (value - 32) * 5 / 9


room = Temperature(20)
room.fahrenheit = 86
room._celsius, room.fahrenheit

# %%
Shape.__subclasses__(), isinstance(shapes[-1], Shape)
