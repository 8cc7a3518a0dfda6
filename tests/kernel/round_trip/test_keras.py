"""Keras' models, metrics, seeds and names, in a process of its own, where Keras has another backend."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import round_trip
from soak import cases

pytestmark = pytest.mark.thorough

#: cells: body, and an expression whose value is compared; those that begin with "here" are plain ones in both notebooks
_CELLS = [
    (
        """import numpy as np, keras, random
from keras import layers
keras.utils.set_random_seed(3)
x = np.linspace(-1, 1, 64, dtype="float32")[:, None]
def drawn(**seed):
    return keras.ops.convert_to_numpy(keras.random.normal((2,), **seed)).tolist()
metric = keras.metrics.MeanSquaredError()""",
        "metric.name",
    ),
    ("metric.update_state([1.0], [2.0])", "float(metric.result())"),
    ("metric.update_state([1.0], [4.0])", "float(metric.result())"),
    (
        """encoder = keras.Sequential([keras.Input((1,)), layers.Dense(8, activation="tanh"), layers.Dropout(0.2)])
dense = encoder.layers[0]
inputs = keras.Input((1,))
model = keras.Model(inputs, layers.Dense(1)(encoder(inputs)))""",
        "[layer.name for layer in model.layers]",
    ),
    ("model.compile(keras.optimizers.Adam(0.02), 'mse', metrics=['mae']); optimizer = model.optimizer", "0"),
    ("history = model.fit(x, x**2, epochs=2, verbose=0)", "history.history, history.model is model"),
    ("here", "encoder.predict(x[:3], verbose=0).tolist(), dense is encoder.layers[0], encoder is model.layers[1]"),
    ("history = model.fit(x, x**2, epochs=2, verbose=0)", "history.history, optimizer is model.optimizer"),
    ("here", "model.fit(x, x**2, epochs=1, verbose=0).history, [w.tolist() for w in encoder.get_weights()]"),
    ("", "drawn(), drawn(), random.random()"),
    ("", "drawn(), layers.Dense(2).name"),
    ("here", "drawn(), layers.Dense(2).name"),
    (
        """frozen = layers.Dense(1, name="last")
deep = inputs
for _ in range(120):
    deep = layers.Activation("relu")(deep)
tall = keras.Model(inputs, frozen(deep))""",
        "len(tall.layers)",
    ),
    ("encoder.trainable = False", "[len(each.trainable_variables) for each in (encoder, model, tall)]"),
    ("model.save('model.keras'), tall.save('tall.keras')", "keras.models.load_model('tall.keras').count_params()"),
    (
        "again = keras.models.load_model('model.keras')",
        "np.array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))",
    ),
    ("here", "model.save('here.keras'), layers.Dense(2).name, len(model.trainable_variables), model.stop_training"),
    ("half = keras.Model(model.input, model.layers[1].output)", "half.layers[1] is encoder, half(x[:2]).shape"),
    ("generator = keras.random.SeedGenerator(5)", "drawn(seed=generator)"),
    ("", "drawn(seed=generator)"),
    ("keras.backend.clear_session()", "layers.Dense(2).name"),
    ("here", "layers.Dense(2).name"),
    (
        """here
class Twice(layers.Layer):
    def call(self, x):
        return x * 2
@keras.saving.register_keras_serializable("shop")
class Scale(layers.Layer):
    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones", name="gain")
    def call(self, x):
        return x * self.gain
pair, ones = keras.Input((2,)), np.ones((1, 2), "float32")
scaled = keras.Model(pair, Scale(name="scale")(Twice()(pair)))""",
        "scaled.count_params()",
    ),
    ("y = scaled.predict(ones, verbose=0); scaled.get_layer('scale').gain.assign([3.0, 4.0])", "y.tolist()"),
    ("here", "scaled.predict(ones, verbose=0).tolist(), type(scaled.get_layer('scale')) is Scale"),
    (
        """@keras.saving.register_keras_serializable("shop")
class Half(layers.Layer):
    def call(self, x):
        return x / 2
other = keras.Sequential([keras.Input((2,)), Half()])""",
        "other.save('other.keras')",
    ),
    ("here", "other.predict(ones, verbose=0).tolist()"),
    ("here", "type(keras.models.load_model('other.keras').layers[0]) is Half"),
]
_AS_PLAIN = """
import json, sys
from pathlib import Path
from round_trip import Notebook, RankServer

mode, folder, cells = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
ranks = RankServer(("keras",)) if mode == "gpu" else None
notebook = Notebook(ranks, folder)
for body, value in cells:
    if mode == "gpu" and not body.startswith("here"):
        notebook.ok(f"{body}\\nlast = {value}")
    else:
        notebook.cell(f"{body.removeprefix('here')}\\nlast = {value}")
    print(json.dumps([body, value, repr(notebook.ns["last"])]), flush=True)
if ranks is not None:
    ranks.close()
"""


@pytest.mark.soak
@pytest.mark.timeout(900)  # half a minute of two cores
@pytest.mark.parametrize("backend", cases(["torch"], ["jax"]))
@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="could not import 'keras'")
def test_each_cell_comes_to_what_it_comes_to_as_a_plain_one(tmp_path: Path, backend: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        plain, gpu = pool.map(lambda mode: _played(mode, backend, tmp_path), ("plain", "gpu"))
    for one, other in zip(plain, gpu, strict=True):
        assert one == other


def _played(mode: str, backend: str, folder: Path) -> list[str]:
    (folder / mode).mkdir()
    return _run(_AS_PLAIN, backend, mode, str(folder / mode), json.dumps(_CELLS), folder=folder / mode).splitlines()


def _run(script: str, backend: str, *arguments: str, folder: Path) -> str:
    harness = str(Path(round_trip.__file__).parent)
    environment = {**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "PYTHONPATH": harness}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout
