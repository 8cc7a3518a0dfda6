"""A line, fitted by gradient descent; each step in a cell of its own."""

# %%
import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-1, 1, 40).unsqueeze(1)
y = 3 * x - 0.5 + 0.05 * torch.randn_like(x)
x.shape, y.mean()

# %%
model = nn.Linear(1, 1)
model.weight.item()

# %%
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
lossf = nn.MSELoss()

# %%
losses = []
for epoch in range(60):
    optimizer.zero_grad()
    loss = lossf(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f'{losses[0]:.4f} -> {losses[-1]:.4f}')

# %%
weight, bias = (p.item() for p in model.parameters())
print(round(weight, 3), round(bias, 3))

# %%
model.weight.grad, optimizer.param_groups[0]['params'][0] is model.weight

# %%
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
for _ in range(4):
    optimizer.step()
    scheduler.step()
scheduler.get_last_lr(), optimizer.param_groups[0]['lr']

# %%
with torch.no_grad():
    predicted = model(x)
predicted[:3]

# %%
parameters = list(model.parameters())
model.weight.data.fill_(1.0)
parameters[0]
