"""Raising, catching, cleaning up."""

# %%
class TooCold(Exception):
    def __init__(self, degrees):
        super().__init__(f'{degrees} degrees are too cold')
        self.degrees = degrees

# %%
def check(degrees):
    if degrees < 0:
        raise TooCold(degrees)
    return degrees


caught = []
for degrees in (3, -2, 8, -7):
    try:
        check(degrees)
    except TooCold as error:
        caught.append(error)
    else:
        print(degrees, 'is fine')
    finally:
        print('looked at', degrees)

# %%
[error.degrees for error in caught], isinstance(caught[0], TooCold)

# %%
try:
    int('seven')
except ValueError as e:
    message = str(e)
message

# %%
e

# %%
from contextlib import contextmanager

depth = 0


@contextmanager
def indented():
    global depth
    depth += 1
    try:
        yield '  ' * depth
    finally:
        depth -= 1


with indented() as one, indented() as two:
    print(one + 'a')
    print(two + 'b')
depth

# %%
def outer():
    try:
        {}['key']
    except KeyError as error:
        raise RuntimeError('the outer one') from error


outer()

# %%
check(-40)

# %%
x = 2
del x

# %%
x

# %%
import warnings

warnings.simplefilter('always')
warnings.warn('mind the step', stacklevel=1)

# %%
import sys

print('to the side', file=sys.stderr)

# %%
assert depth == 1, 'depth is not one'
