"""Centres that move, drawn as they go."""

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

rng = np.random.default_rng(8)
points = np.vstack([rng.normal(centre, 0.4, (30, 2)) for centre in [(0, 0), (3, 0), (1.5, 2.5)]])
centres = points[[0, 1, 2]].copy()

# %%
def assign(points, centres):
    return np.linalg.norm(points[:, None] - centres, axis=2).argmin(1)


def move(points, labels, centres):
    for k in range(len(centres)):
        centres[k] = points[labels == k].mean(0)

# %%
history = [centres.copy()]
for _ in range(6):
    labels = assign(points, centres)
    move(points, labels, centres)
    history.append(centres.copy())
centres.round(2)

# %%
fig, ax = plt.subplots(figsize=(4, 3))
ax.scatter(*points.T, c=labels, s=6)
for k in range(3):
    ax.plot(*np.array(history)[:, k].T, 'k.-')
fig.tight_layout()

# %%
np.bincount(labels), len(history)

# %%
table = {f'cluster {k}': points[labels == k].std(0).round(2).tolist() for k in range(3)}
table
