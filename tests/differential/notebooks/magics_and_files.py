"""What begins with a percent sign or an exclamation mark."""

# %%
# %matplotlib inline
import math

# %%
# %time total = sum(range(1000))

# %%
# %%time
roots = [math.sqrt(n) for n in range(100)]
len(roots)

# %%
# %timeit -n 3 -r 2 math.sqrt(2)

# %%
best = %timeit -n 2 -r 2 -q -o sum(range(50))
best.loops

# %%
# %%capture noise
print('not seen')

# %%
noise.stdout

# %%
# %%writefile note.txt
first line
second line

# %%
lines = open('note.txt').read().splitlines()
lines

# %%
listing = !ls
listing

# %%
name = 'world'
# !echo hello {name}

# %%
with open('table.csv', 'w') as file:
    for n in range(3):
        print(n, n**2, sep=',', file=file)
import csv

rows = list(csv.reader(open('table.csv')))
rows

# %%
import json
import pathlib

pathlib.Path('data.json').write_text(json.dumps({'rows': rows}))
json.loads(pathlib.Path('data.json').read_text())['rows'][2]

# %%
# %precision 3
math.pi

# %%
# %who_ls list

# %%
# %no_such_magic
