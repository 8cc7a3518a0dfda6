"""Displays of every kind."""

# %%
from IPython.display import HTML, Markdown, display

HTML('<b>bold</b>')

# %%
display(Markdown('*slanted*'))
display(1, 'two', [3])
print('and text')

# %%
class Money:
    def __init__(self, amount):
        self.amount = amount

    def _repr_html_(self):
        return f'<i>{self.amount} €</i>'

    def __repr__(self):
        return f'Money({self.amount})'


Money(5)

# %%
handle = display('begun', display_id=True)
for n in range(3):
    handle.update(f'step {n}')

# %%
from IPython.display import clear_output

for n in range(3):
    clear_output(wait=True)
    print('now', n)

# %%
from tqdm import tqdm

total = 0
for n in tqdm(range(5), ncols=60, file=open('/dev/null', 'w')):
    total += n
total

# %%
import pprint

pprint.pprint({'long': list(range(30)), 'nested': {'a': ['b'] * 12}})

# %%
class Broken:
    def __repr__(self):
        raise ValueError('no text of me')


broken = Broken()

# %%
broken

# %%
None

# %%
'a string with "quotes"\n'

# %%
a = b = 5; a

# %%
a;

# %%
_ = 3
_
