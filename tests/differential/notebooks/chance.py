"""Dice, walks and pi."""

# %%
import random

random.seed(11)
throws = [random.randint(1, 6) + random.randint(1, 6) for _ in range(1000)]
sum(throws) / len(throws)

# %%
random.choice('abc'), random.random()

# %%
import numpy as np

np.random.seed(5)
points = np.random.rand(2000, 2)
inside = (points**2).sum(1) < 1
4 * inside.mean()

# %%
np.random.randn(3).round(4)

# %%
# %matplotlib inline
import matplotlib.pyplot as plt

plt.hist(throws, bins=range(2, 14), align='left', rwidth=0.8)
plt.xlabel('two dice');

# %%
walks = np.cumsum(np.random.choice([-1, 1], (5, 100)), axis=1)
plt.figure(figsize=(5, 2))
plt.plot(walks.T)
plt.show()

# %%
state = random.getstate()
first = random.random()
random.setstate(state)
first == random.random()

# %%
deck = [rank + suit for suit in 'CDHS' for rank in '23456789TJQKA']
random.shuffle(deck)
hand, deck = deck[:5], deck[5:]
hand, len(deck)

# %%
rng = np.random.default_rng(1)
rng.integers(10, size=5)

# %%
rng.integers(10, size=5), random.gauss(0, 1)
