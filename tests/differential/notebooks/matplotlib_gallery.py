"""Figures in several cells."""

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

x = np.linspace(0, 2 * np.pi, 50)

# %%
plt.plot(x, np.sin(x), label='sin')
plt.plot(x, np.cos(x), '--', label='cos')
plt.legend()
plt.show()

# %%
fig, axes = plt.subplots(1, 2, figsize=(6, 2.5))
axes[0].hist(np.sin(x), bins=8)
axes[1].scatter(x, x**2, c=x, s=9)
fig.suptitle('two of them');

# %%
axes[0].set_title('changed in another cell')
fig

# %%
plt.rcParams['lines.linewidth'] = 4

# %%
plt.figure(figsize=(3, 2))
plt.plot([1, 3, 2])

# %%
plt.style.use('ggplot')

# %%
plt.bar(['a', 'b', 'c'], [3, 1, 2])
plt.ylabel('count')

# %%
fig.savefig('two.png', metadata={'Software': None})
len(fig.axes)

# %%
plt.close('all')
plt.get_fignums()
