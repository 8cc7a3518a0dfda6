"""Tensors, views and gradients."""

# %%
import torch

t = torch.arange(6.0)
m = t.view(2, 3)
m[0] = 10
t

# %%
row = m[1]
row.mul_(2)
t, m

# %%
w = torch.tensor([1.0, 2.0], requires_grad=True)
(w**2).sum().backward()
w.grad

# %%
w.grad.zero_()
with torch.no_grad():
    w -= 0.1
w

# %%
array = t.numpy()
array[0] = -1
t[0], torch.from_numpy(array).data_ptr() == t.data_ptr()

# %%
def newton(f, x, steps=5):
    x = torch.tensor(x, requires_grad=True)
    for _ in range(steps):
        y = f(x)
        (slope,) = torch.autograd.grad(y, x)
        x = (x - y / slope).detach().requires_grad_()
    return x.item()


newton(lambda x: x**2 - 2, 1.0)

# %%
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


z = torch.tensor(2.0, requires_grad=True)
Cube.apply(z).backward()
z.grad

# %%
t.view(4, 2)

# %%
torch.zeros(2, 3) @ torch.zeros(2, 3)
