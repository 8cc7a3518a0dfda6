"""Thirty short trainings in a few processes: a plain script, no notebook.

``launch_map`` calls the function once for each item. Each of its processes holds its GPU, makes call after call, and
takes the next item when it is done with one; starting a process costs more than such a call.

    python examples/map_folds.py
"""

from __future__ import annotations

from itertools import product

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import KFold
from torch import nn

from jupyter_gpu_release import launch_map

digits = load_digits()
X = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
FOLDS = list(KFold(5, shuffle=True, random_state=0).split(X))


def accuracy(setting: tuple[float, int]) -> float:
    """Runs on the cluster: trains on all folds but one, and returns how many digits of that one are right."""
    weight_decay, fold = setting
    torch.manual_seed(0)  # the calls share a process: without it one would go on where another left off
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, test = (torch.tensor(part) for part in FOLDS[fold])
    model = nn.Linear(64, 10).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=weight_decay)
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(X[train].to(device)), y[train].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float((model(X[test].to(device)).argmax(1).cpu() == y[test]).float().mean())


def main() -> None:
    """Show progress as the items come in, then the mean over the folds."""
    weights = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    settings = list(product(weights, range(len(FOLDS))))
    mapped = launch_map(accuracy, settings, gpus=1)
    for future in mapped.as_completed():
        weight_decay, fold = future.item
        print(f"weight decay {weight_decay:g}, fold {fold}: {future.result():.1%}")
    found = mapped.results()
    means = {w: sum(found[n] for n, (each, _) in enumerate(settings) if each == w) / len(FOLDS) for w in weights}
    best = max(means, key=lambda weight: means[weight])
    print(f"{mapped!r} in {len(mapped.workers)} processes")
    print(f"best of {len(means)}: weight decay {best:g} with {means[best]:.1%}")


if __name__ == "__main__":
    main()
