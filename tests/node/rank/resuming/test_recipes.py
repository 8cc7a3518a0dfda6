"""Recipes of docs/checkpoint-recipes.md: training that is preempted in its middle ends as one that nobody disturbed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from doc_blocks import blocks_in
from node_bed import Node
from resuming_bed import Attempts

from jupyter_gpu_release.protocol.cell import RESULT

pytestmark = pytest.mark.thorough

Until = Callable[..., Any]

#: the third time that the model is asked is in the second of four epochs
_COUNT = "calls = 0\ndef called():\n    global calls\n    calls += 1\n    pause(calls)\n"
_LIGHTNING = """
import torch, lightning, logging
logging.getLogger("lightning").setLevel(logging.ERROR)
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    def training_step(self, batch):
        called()
        return self.layers(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)
torch.manual_seed(1)
module = Net()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4)), batch_size=8, shuffle=True)
"""
_LIGHTNING_CALL = (
    "train_with_lightning(module, loader, max_epochs=4, logger=False, accelerator='cpu', enable_checkpointing=True,\n"
    "    enable_progress_bar=False, enable_model_summary=False)"
)
_TRAINER = """
import torch, transformers
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    def forward(self, x):
        called()
        return {"loss": self.layers(x).square().mean()}
torch.manual_seed(1)
model = Net()
dataset = [{"x": row} for row in torch.randn(16, 4)]
"""
_TRAINER_CALL = (
    "train_with_trainer(model, dataset, output_dir='trained', num_train_epochs=4, per_device_train_batch_size=8,\n"
    "    learning_rate=0.1, report_to=[], disable_tqdm=True, use_cpu=True, seed=3, dataloader_pin_memory=False)"
)
_KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
class Asked(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        called()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8), keras.layers.Dropout(0.5),
    keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = numpy.random.rand(16, 4), numpy.random.rand(16, 1)
"""
_KERAS_CALL = "train_with_keras(model, x, y, 4, batch_size=8, verbose=0)"


_RECIPES = {one.heading: one.text for one in blocks_in("checkpoint-recipes.md", "python")}


@pytest.mark.parametrize(
    ("library", "title", "before", "call"),
    [
        ("lightning", "## PyTorch Lightning", _LIGHTNING, _LIGHTNING_CALL),
        ("transformers", "## Trainer of transformers", _TRAINER, _TRAINER_CALL),
        ("keras", "## Keras", _KERAS, _KERAS_CALL),
    ],
)
def test_a_training_that_steps_aside_ends_as_one_that_does_not(
    node: Node, until: Until, library: str, title: str, before: str, call: str
) -> None:
    if importlib.util.find_spec(library) is None:  # to import it here would take long
        pytest.skip(f"could not import '{library}'")
    recipe = _RECIPES[title]
    if library == "keras":  # the model has no code of its own that could be asked
        recipe = recipe.replace("callbacks=[Preemptible()]", "callbacks=[Asked(), Preemptible()]")
    source = f"import tempfile\nos.chdir(tempfile.mkdtemp(dir=gpu_release.run_dir))\n{_COUNT}{before}{recipe}"
    source += (
        f"\ntrained = {call}\ntrained = [numbers.tolist() for numbers in getattr(trained, 'values', lambda: trained)()]"
    )
    source += f"\n{RESULT} = trained, calls"
    one, other = (Attempts(node, source, stops, function="train", out=[RESULT]) for stops in ([], [3]))
    assert one.to_end(until).status == other.to_end(until).status == "ok", other.run.outcome.error
    assert len(other.runs) == 2
    trained, calls = other.names()[RESULT]
    assert trained == one.names()[RESULT][0]
    assert calls == 4  # of the last two epochs
