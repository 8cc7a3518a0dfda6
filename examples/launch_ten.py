"""Ten trainings on however many GPUs there are: a plain script, no notebook.

Each call of ``launch`` returns at once with a future. The cluster runs as many at the same time as it has GPUs, and
each GPU goes to the next one the moment its function has returned.

    python examples/launch_ten.py
"""

from __future__ import annotations

from concurrent.futures import as_completed

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from jupyter_gpu_release import launch

digits = load_digits()
X_train, X_test, y_train, y_test = train_test_split(
    torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target), test_size=0.3, random_state=0
)


def train(rate: float, epochs: int = 15) -> tuple[float, nn.Module]:
    """Runs on the cluster: returns how many of the test digits are right, and the model, on the CPU here."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for epoch in range(epochs):
        for batch in torch.randperm(len(X_train)).split(128):
            loss = nn.functional.cross_entropy(model(X_train[batch].to(device)), y_train[batch].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")
    right = (model(X_test.to(device)).argmax(1).cpu() == y_test).float().mean()
    return float(right), model


def main() -> None:
    """Launch them all, then take them as they come."""
    rates = [10 ** (-4 + 0.3 * step) for step in range(10)]
    runs = {launch(train, rate, gpus=1, cpus=1, name=f"rate {rate:.4f}"): rate for rate in rates}
    found = {}
    for run in as_completed(runs):
        accuracy, model = run.result()
        found[runs[run]] = accuracy, model, run
        print(f"{run.name}: {accuracy:.1%} are right")
    best = max(found, key=lambda rate: found[rate][0])
    accuracy, model, run = found[best]
    weights = sum(part.numel() for part in model.parameters())
    print(f"best of {len(found)}: {run.name} with {accuracy:.1%}, {weights} weights")
    print("its last line there:", run.logs().splitlines()[-1])


if __name__ == "__main__":
    main()
