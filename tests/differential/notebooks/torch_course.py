"""A training course's notebook: data sets, loaders with workers, checkpoints, early stopping, schedulers (PyTorch)."""

# %%
import copy
import math
import random
import time
from collections import OrderedDict, defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler, random_split

# %matplotlib inline
torch.set_num_threads(1)


def seed_everything(seed=0):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


seed_everything(7)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

# %%
class CFG:
    batch_size = 16
    lr = 1e-2
    epochs = 6
    num_classes = 3
    out = Path('checkpoints')


CFG.out.mkdir(exist_ok=True)


class Spirals(Dataset):
    """Three spirals."""

    def __init__(self, n=60, transform=None):
        self.transform = transform
        t = torch.linspace(0, 1, n)
        points, labels = [], []
        for k in range(CFG.num_classes):
            angle = t * 4 + k * 2 * math.pi / CFG.num_classes + torch.randn(n) * 0.1
            points.append(torch.stack([t * angle.sin(), t * angle.cos()], 1))
            labels.append(torch.full((n,), k))
        self.points, self.labels = torch.cat(points), torch.cat(labels)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        x, y = self.points[i], self.labels[i]
        if self.transform:
            x = self.transform(x)
        return x, y


noise = lambda x: x + 0.01 * torch.randn_like(x)
data = Spirals(transform=noise)
train_set, valid_set = random_split(data, [150, 30], generator=torch.Generator().manual_seed(1))
len(train_set), len(valid_set), data[0][0].shape

# %%
train_loader = DataLoader(train_set, CFG.batch_size, shuffle=True, num_workers=2, drop_last=True)
valid_loader = DataLoader(valid_set, CFG.batch_size)
xb, yb = next(iter(train_loader))
xb.shape, yb.bincount(minlength=3)

# %%
class Net(nn.Module):
    def __init__(self, hidden=32, p=0.1):
        super().__init__()
        self.body = nn.Sequential(OrderedDict(
            fc1=nn.Linear(2, hidden), bn=nn.BatchNorm1d(hidden), act=nn.ReLU(), drop=nn.Dropout(p), fc2=nn.Linear(hidden, hidden), act2=nn.ReLU(),
        ))
        self.head = nn.Linear(hidden, CFG.num_classes)
        self.register_buffer('steps', torch.zeros(()))
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        if self.training:
            self.steps += 1
        return self.head(self.body(x))


model = Net().to(device)
model

# %%
activations = {}


def hook(name):
    def keep(module, inputs, output):
        activations[name] = output.detach().mean().item()

    return keep


handle = model.body.act.register_forward_hook(hook('act'))

# %%
optimizer = torch.optim.AdamW([{'params': model.body.parameters()}, {'params': model.head.parameters(), 'lr': CFG.lr * 2}], lr=CFG.lr)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[CFG.lr, CFG.lr * 2], epochs=CFG.epochs, steps_per_epoch=len(train_loader))
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer.param_groups[0]['params'][0] is model.body.fc1.weight

# %%
class EarlyStopping:
    def __init__(self, patience=3, path=CFG.out / 'best.pt'):
        self.patience, self.path = patience, path
        self.best, self.bad, self.stop = float('inf'), 0, False

    def __call__(self, loss, model):
        if loss < self.best:
            self.best, self.bad = loss, 0
            torch.save(model.state_dict(), self.path)
        else:
            self.bad += 1
            self.stop = self.bad >= self.patience


stopper = EarlyStopping()
history = defaultdict(list)

# %%
def accuracy(logits, y):
    return (logits.argmax(1) == y).float().mean().item()


def train_epoch():
    model.train()
    losses = []
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def evaluate(loader=None):
    model.eval()
    total, hits, n = 0.0, 0, 0
    for x, y in loader or valid_loader:
        logits = model(x.to(device))
        total += criterion(logits, y.to(device)).item() * len(y)
        hits += (logits.argmax(1).cpu() == y).sum().item()
        n += len(y)
    return total / n, hits / n

# %%
for epoch in range(CFG.epochs):
    history['train'].append(train_epoch())
    valid, score = evaluate()
    history['valid'].append(valid)
    history['score'].append(score)
    history['lr'].append(scheduler.get_last_lr()[0])
    print(f'epoch {epoch}: train {history["train"][-1]:.4f} valid {valid:.4f} accuracy {score:.3f}')
    stopper(valid, model)
    if stopper.stop:
        break

# %%
int(model.steps), sorted(activations), stopper.bad, round(stopper.best, 4)

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.plot(history['train'], label='train')
left.plot(history['valid'], label='valid')
left.legend()
right.plot(history['lr'])
plt.show()

# %%
model.load_state_dict(torch.load(CFG.out / 'best.pt', weights_only=True))
evaluate()

# %%
checkpoint = {'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'scheduler': scheduler.state_dict(), 'history': dict(history)}
torch.save(checkpoint, CFG.out / 'last.pt')
restored = torch.load(CFG.out / 'last.pt', weights_only=False)
sorted(restored), restored['history']['score'] == history['score']

# %%
torch.save(model, 'whole.pt')
whole = torch.load('whole.pt', weights_only=False)
type(whole) is Net, torch.equal(whole.head.weight, model.head.weight)

# %%
handle.remove()
len(model.body.act._forward_hooks)

# %%
confusion = torch.zeros(3, 3, dtype=torch.int64)
with torch.inference_mode():
    for x, y in DataLoader(data, 64):
        for t, p in zip(y, model(x).argmax(1)):
            confusion[t, p] += 1
plt.imshow(confusion)
for i in range(3):
    for j in range(3):
        plt.text(j, i, int(confusion[i, j]), ha='center')
plt.xlabel('predicted')
plt.ylabel('true');

# %%
teacher = copy.deepcopy(model)
for p in teacher.parameters():
    p.requires_grad_(False)
all(a is not b for a, b in zip(teacher.parameters(), model.parameters())), sum(p.requires_grad for p in teacher.parameters())

# %%
for group in optimizer.param_groups:
    group['lr'] = 1e-4
train_epoch() < 2, optimizer.param_groups[1]['lr']

# %%
weights = torch.tensor([1.0, 2.0, 3.0])[data.labels]
sampler = WeightedRandomSampler(weights, 32)
balanced = DataLoader(data, 8, sampler=sampler)
torch.cat([y for _, y in balanced]).bincount(minlength=3)

# %%
part = Subset(data, range(10))
part.dataset is data, train_set.dataset is data, train_loader.dataset is train_set

# %%
w = model.head.weight
with torch.no_grad():
    w[0, 0] = 5.0
model.head.weight[0, 0], model.state_dict()['head.weight'][0, 0], w is model.head.weight

# %%
scaler = torch.amp.GradScaler('cpu', enabled=False)
with torch.autocast('cpu', dtype=torch.bfloat16):
    mixed = model(data.points[:4])
mixed.dtype, scaler.is_enabled()

# %%
scripted = torch.jit.trace(model.eval(), data.points[:2])
torch.allclose(scripted(data.points[:2]), model(data.points[:2]), atol=1e-5)

# %%
loss = criterion(model(data.points), data.labels)
loss.backward()
model.head.bias.grad.shape

# %%
ema = {k: v.clone() for k, v in model.state_dict().items()}
train_epoch()
any(not torch.equal(ema[k], v) for k, v in model.state_dict().items()), torch.rand(2), np.random.rand(), random.random()
