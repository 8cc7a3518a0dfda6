"""Linear regression without a library."""

# %%
import numpy as np

rng = np.random.default_rng(2)
X = np.c_[np.ones(50), rng.uniform(-2, 2, 50)]
y = X @ [1.0, -2.0] + rng.normal(0, 0.1, 50)

# %%
theta = np.zeros(2)
trace = []

# %%
def gradient(theta):
    return 2 / len(y) * X.T @ (X @ theta - y)


for epoch in range(100):
    theta -= 0.1 * gradient(theta)
    trace.append(theta.copy())
theta.round(3)

# %%
exact = np.linalg.lstsq(X, y, rcond=None)[0]
np.abs(theta - exact).max() < 1e-3

# %%
# %matplotlib inline
import matplotlib.pyplot as plt

path = np.array(trace)
plt.plot(path[:, 0], path[:, 1], '.-')
plt.plot(*exact, 'r*', ms=12)
plt.show()

# %%
errors = [float(((X @ step - y) ** 2).mean()) for step in trace]
print(f'{errors[0]:.3f} {errors[-1]:.5f}')

# %%
theta[:] = 0
theta.tolist(), trace[-1].round(2)
