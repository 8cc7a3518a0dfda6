"""Layers as classes, backpropagation by hand."""

# %%
import numpy as np


class Layer:
    def __init__(self, n_in, n_out, rng):
        self.w = rng.normal(0, 1, (n_in, n_out))
        self.b = np.zeros(n_out)

    def forward(self, x):
        self.x = x
        self.out = np.tanh(x @ self.w + self.b)
        return self.out

    def backward(self, slope, rate):
        slope = slope * (1 - self.out**2)
        back = slope @ self.w.T
        self.w -= rate * self.x.T @ slope
        self.b -= rate * slope.sum(0)
        return back

# %%
class Network:
    def __init__(self, *sizes, seed=0):
        rng = np.random.default_rng(seed)
        self.layers = [Layer(a, b, rng) for a, b in zip(sizes, sizes[1:])]

    def __call__(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def learn(self, x, y, rate):
        slope = self(x) - y
        loss = float((slope**2).mean())
        for layer in reversed(self.layers):
            slope = layer.backward(slope, rate)
        return loss

# %%
x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], float)
y = np.array([[-1], [1], [1], [-1]], float)
network = Network(2, 6, 1)
first_layer = network.layers[0]

# %%
losses = [network.learn(x, y, 0.1) for _ in range(400)]
print(round(losses[0], 4), round(losses[-1], 6))

# %%
network(x).round(2).ravel()

# %%
first_layer is network.layers[0], np.array_equal(first_layer.w, network.layers[0].w)

# %%
before = first_layer.w.copy()
for _ in range(5):
    network.learn(x, y, 0.1)
np.allclose(before, first_layer.w)
