"""A training that steps aside at random points and the same one undisturbed: are they the same, bit by bit?"""

from __future__ import annotations

import random

from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient

from ..bed import Bed, Kernel, manifest_of
from ..report import Report
from .loop import folders, until

_SEED = 18
#: rounds to each point, on average
_ROUNDS = 12
_CELL = """
import hashlib, random, time
import numpy as np, torch
import jupyter_gpu_release as gpu_release
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

random.seed(1), np.random.seed(2), torch.manual_seed(3)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
loader = DataLoader(data, batch_size=256, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
history = []
for epoch in gpu_release.resumable(range({epochs}), every=0):
    with open({file!r}, "a") as begun:
        print(epoch, file=begun)
    for inputs, wanted in loader:
        inputs = inputs + 0.01 * torch.from_numpy(np.random.normal(size=inputs.shape)).float()
        loss = torch.nn.functional.cross_entropy(model(inputs), wanted)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    history.append((loss.item(), random.random()))
    time.sleep(0.02)
parts = {{
    "weights": [weights.tolist() for weights in model.state_dict().values()],
    "optimizer": [[moment.tolist() for moment in each.values()] for each in optimizer.state_dict()["state"].values()],
    "history": history,
    "random states": [random.getstate(), str(np.random.get_state(legacy=False)), torch.get_rng_state().tolist()],
}}
found = {{name: hashlib.sha256(repr(part).encode()).hexdigest() for name, part in parts.items()}}
"""


def add_rows(report: Report, cluster: Bed, notebook: Kernel, points: int) -> None:
    """Step aside at so many random points; what differs then from an undisturbed training is counted."""
    at = sorted(random.Random(_SEED).sample(range(1, points * _ROUNDS), points))
    undisturbed, disturbed = (_trained(cluster, notebook, each, points * (_ROUNDS + 1)) for each in ([], at))
    report.add("training_stepped_aside", [len(at)], unit="")
    report.add("training_differs", [sum(disturbed[part] != undisturbed[part] for part in undisturbed)], unit="")
    report.notes.append(f"training_differs: of {', '.join(undisturbed)}; 0: bit-identical")


def _trained(cluster: Bed, notebook: Kernel, at: list[int], epochs: int) -> dict[str, str]:
    """Digests of all that a training ends with; it is asked to step aside at these epochs."""
    notebook.run("found = None")
    before = folders(cluster)
    file = cluster.work / f"epochs-{len(before)}"
    cell = _CELL.format(epochs=epochs, file=str(file))
    notebook.run(f"get_ipython().run_cell_magic('gpu_train', '--restartable --async --out found', {cell!r})")
    folder = until(lambda: next(iter(folders(cluster) - before), None), "its folder")
    with GatewayClient.for_target(target_of(HomePaths(cluster.home).read_connection())) as client:
        for number, epoch in enumerate(at, 1):
            until(lambda epoch=epoch: file.exists() and len(file.read_text().split()) > epoch, f"epoch {epoch}")
            until(lambda: client.run(folder.name).state == "running", "it runs")
            client.preempt(folder.name)
            until(lambda number=number: len(client.run(folder.name).earlier) == number, "it has stepped aside")
    attempts = manifest_of(folder).get("attempts", [])
    assert [each["status"] for each in attempts] == ["preempted"] * len(at), attempts
    until(lambda: notebook.value("isinstance(found, dict)"), "its digests")
    return dict(notebook.value("found"))
