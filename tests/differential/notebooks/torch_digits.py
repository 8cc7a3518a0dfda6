"""A small network on handwritten digits."""

# %%
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
device = 'cuda' if torch.cuda.is_available() else 'cpu'
device

# %%
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
dataset = TensorDataset(images[:600], labels[:600])
loader = DataLoader(dataset, batch_size=60, shuffle=True)
len(loader), loader.dataset is dataset

# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4 * 36, 10)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).flatten(1))


net = Net().to(device)
net

# %%
def accuracy(net, images, labels):
    with torch.no_grad():
        return (net(images).argmax(1) == labels).float().mean().item()


optimizer = torch.optim.Adam(net.parameters(), 0.01)
history = {'loss': [], 'accuracy': []}

# %%
for epoch in range(3):
    net.train()
    for batch, target in loader:
        loss = nn.functional.cross_entropy(net(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    history['loss'].append(loss.item())
    history['accuracy'].append(accuracy(net, images[600:], labels[600:]))
    print(f"epoch {epoch}: {history['loss'][-1]:.4f} {history['accuracy'][-1]:.4f}")

# %%
torch.save(net.state_dict(), 'net.pt')
other = Net()
other.load_state_dict(torch.load('net.pt'))

# %%
torch.equal(other(images[:5]), net(images[:5]))

# %%
net.eval()
wrong = [int(i) for i in range(600, 900) if net(images[i : i + 1]).argmax().item() != labels[i].item()]
len(wrong), wrong[:5]

# %%
features = {}
handle = net.conv.register_forward_hook(lambda module, inputs, output: features.update(conv=output.detach()))
net(images[:2]);
features['conv'].shape

# %%
sum(p.numel() for p in net.parameters()), type(net).__name__, isinstance(net, Net)
