"""Plain Python as a first course has it: functions that make functions, generators, comprehensions."""

# %% [markdown]
# # Functions that make functions


# %%
def make_counter(start=0):
    count = start

    def step(by=1):
        nonlocal count
        count += by
        return count

    return step


ticks = make_counter()
ticks(), ticks(), ticks(10)

# %%
ticks(100)


# %%
def fibonacci():
    a, b = 0, 1
    while True:
        yield a
        a, b = b, a + b


first = []
for value in fibonacci():
    if value > 50:
        break
    first.append(value)
print(first)

# %%
from itertools import accumulate, groupby, islice

words = "the quick brown fox jumps over the lazy dog and runs away".split()
by_length = {length: list(group) for length, group in groupby(sorted(words, key=len), key=len)}
by_length

# %%
squares = [n * n for n in range(10) if n % 2]
pairs = {(a, b) for a in "xy" for b in (1, 2)}
sorted(pairs), list(accumulate(squares)), list(islice(fibonacci(), 8))

# %%
history = []


def remember(function):
    def wrapped(*args):
        result = function(*args)
        history.append((function.__name__, args, result))
        return result

    return wrapped


@remember
def area(width, height):
    return width * height


area(2, 3)
area(4, 5)
history

# %%
try:
    area(1)
except TypeError as error:
    print("caught:", error)

# %%
alias = history
alias.append("the end")
len(history), history is alias

# %%
# only a remark in this cell
# and one more

# %%
{}["missing"]

# %%
from functools import lru_cache, partial


@lru_cache(maxsize=None)
def ways(steps):
    return 1 if steps < 2 else ways(steps - 1) + ways(steps - 2)


double = partial(area, 2)
ways(30), ways.cache_info(), double(7)
