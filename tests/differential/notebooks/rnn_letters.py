"""A recurrent network learns one line of letters."""

# %%
import torch
from torch import nn

line = 'hello world '
letters = sorted(set(line))
number_of = {letter: n for n, letter in enumerate(letters)}
codes = torch.tensor([number_of[letter] for letter in line])
codes[:5]

# %%
torch.manual_seed(3)


class Letters(nn.Module):
    def __init__(self, size, hidden=16):
        super().__init__()
        self.embed = nn.Embedding(size, 8)
        self.rnn = nn.GRU(8, hidden, batch_first=True)
        self.out = nn.Linear(hidden, size)

    def forward(self, x, state=None):
        y, state = self.rnn(self.embed(x), state)
        return self.out(y), state


model = Letters(len(letters))

# %%
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
inputs, targets = codes[None, :-1], codes[None, 1:]

# %%
def train(steps):
    for _ in range(steps):
        logits, _ = model(inputs)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss.item()


first = train(5)
round(first, 3)

# %%
last = train(60)
last < first

# %%
@torch.no_grad()
def write(start, count):
    text, state, code = start, None, number_of[start]
    for _ in range(count):
        logits, state = model(torch.tensor([[code]]), state)
        code = int(logits[0, -1].argmax())
        text += letters[code]
    return text


write('h', 10)

# %%
len(optimizer.state), next(iter(optimizer.state)) is next(model.parameters())
