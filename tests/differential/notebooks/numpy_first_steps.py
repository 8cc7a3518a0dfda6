"""Arrays, views and broadcasting."""

# %%
import numpy as np

a = np.arange(12)
a

# %%
grid = a.reshape(3, 4)
grid[1] = -1
a

# %%
corner = grid[:2, :2]
corner += 100
print(grid)
print(a)

# %%
column = grid[:, 2]
column[:] = [7, 8, 9]
a, grid.T.shape

# %%
mask = grid > 50
grid[mask].sum(), mask.any(axis=0)

# %%
prices = np.array([[1.0, 2.5], [4.0, 0.5]])
weights = np.array([0.25, 0.75])
prices * weights, prices @ weights

# %%
rng = np.random.default_rng(7)
sample = rng.normal(size=(4, 3))
sample.mean(axis=0).round(3)

# %%
sample.sort(axis=0)
sample

# %%
np.set_printoptions(precision=2, suppress=True)
sample * 1000

# %%
u, s, vt = np.linalg.svd(sample, full_matrices=False)
np.allclose(u * s @ vt, sample), s

# %%
record = np.zeros(3, dtype=[('name', 'U8'), ('age', 'i4')])
record['name'] = ['ann', 'bob', 'eve']
record['age'] = [31, 25, 44]
record[record['age'] > 30]

# %%
a[0] = 999
grid[0, 0], corner[0, 0]

# %%
np.array([1, 2]) + np.array([1, 2, 3])
