"""Arrays with fields, masks and files, tables that are grouped and joined, axes that several cells draw on."""

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# %matplotlib inline
rng = np.random.default_rng(3)
np.random.seed(4)

# %%
people = np.array([('Ann', 31, 1.62), ('Bob', 25, 1.8)], dtype=[('name', 'U10'), ('age', 'i4'), ('height', 'f8')])
ages = people['age']
ages += 1
people[people['age'] > 30]['name'], people.view(np.recarray).height.mean()

# %%
people['height'][0] = 1.7
ages[1] = 99
people

# %%
masked = np.ma.masked_invalid([1.0, np.nan, 3.0])
masked[0] = np.ma.masked
masked, masked.mean()

# %%
table = np.memmap('grid.dat', dtype='f4', mode='w+', shape=(3, 4))
table[:] = np.arange(12).reshape(3, 4)
row = table[1]
row.sum()

# %%
row *= 2
table.flush()
np.fromfile('grid.dat', dtype='f4').reshape(3, 4)[1], table[1, 0]

# %%
np.savez('both.npz', a=np.arange(3), b=people)
with np.load('both.npz') as stored:
    back = {name: stored[name] for name in stored.files}
sorted(back)

# %%
rng.normal(size=3).round(4), np.random.rand(2).round(4)

# %%
rng.integers(10, size=4), np.random.permutation(5)

# %%
strided = np.lib.stride_tricks.sliding_window_view(np.arange(6), 3)
fortran = np.asfortranarray(np.eye(3))
objects = np.array([{'a': 1}, [1, 2], None], dtype=object)
objects[1].append(3)
strided.sum(axis=1), fortran.flags.f_contiguous, objects, np.datetime64('2024-02-28') + np.arange(3)

# %%
sales = pd.DataFrame({
    'day': pd.date_range('2024-01-01', periods=12, freq='7D'),
    'shop': pd.Categorical(list('abcabcabcabc'), categories=list('cab'), ordered=True),
    'amount': rng.integers(1, 100, 12),
})
shops = pd.DataFrame({'shop': list('abd'), 'town': ['Ulm', 'Bonn', 'Kiel']})
sales.groupby('shop', observed=True)['amount'].agg(['sum', 'mean', 'max'])

# %%
joined = sales.merge(shops, on='shop', how='outer', indicator=True, validate='m:1')
joined['_merge'].value_counts()

# %%
monthly = sales.set_index('day')['amount'].resample('MS').sum()
monthly.pct_change().round(3), monthly.index.freq

# %%
wide = sales.assign(month=sales['day'].dt.month).pivot_table(index='month', columns='shop', values='amount', aggfunc='sum', observed=True)
wide

# %%
wide.loc['all'] = wide.sum()
wide.stack().head(3)

# %%
grouped = sales.groupby('shop', observed=True)
[(key, len(part)) for key, part in grouped], grouped.ngroups

# %%
sales['smooth'] = sales['amount'].rolling(3, min_periods=1).mean()
first = sales.iloc[0]
sales.query('amount > 20').eval('double = amount * 2')[['day', 'double']].head(2), first['shop']

# %%
fig, axes = plt.subplots(1, 2, figsize=(6, 2))
left, right = axes
(line,) = left.plot(sales['day'], sales['amount'])
right.bar(monthly.index.strftime('%b'), monthly)
plt.close(fig)

# %%
line.set_color('red')
left.tick_params(axis='x', rotation=45)
left.set_title('weekly')

# %%
right.axhline(monthly.mean(), ls='--')
twin = right.twinx()
twin.plot([0, 1, 2], [3, 1, 2], 'k.')
fig

# %%
fig is left.figure is line.figure, line in left.lines, len(fig.axes), twin.figure is fig

# %%
ax = monthly.plot(kind='line', marker='o', figsize=(4, 2))
ax.set_ylabel('sum')
plt.show()

# %%
ax.lines[0].get_ydata()[:2], plt.get_fignums()

# %%
# %%time
np.linalg.solve(np.array([[2.0, 1.0], [1.0, 3.0]]), [3, 5])
