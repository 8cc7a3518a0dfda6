"""Keras' models with layers that the notebook defines, in a process of its own, where Keras has another backend."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import round_trip

_SCRIPT = """
import sys, tempfile
from pathlib import Path
from round_trip import Notebook, RankServer

ranks = RankServer(("keras",))
nb = Notebook(ranks, Path(sys.argv[1]))
nb.cell('''import numpy as np, keras
from keras import layers
class Twice(layers.Layer):
    def call(self, x):
        return x * 2
@keras.saving.register_keras_serializable("shop")
class Scale(layers.Layer):
    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones", name="gain")
    def call(self, x):
        return x * self.gain
inputs = keras.Input((2,))
model = keras.Model(inputs, Scale(name="scale")(Twice()(inputs)))
x = np.ones((1, 2), "float32")''')
nb.ok("y = model.predict(x, verbose=0)\\nmodel.get_layer('scale').gain.assign([3.0, 4.0])")
assert nb.ns["y"].tolist() == [[2.0, 2.0]]
assert nb.cell("model.predict(x, verbose=0).tolist()") == [[6.0, 8.0]]
assert nb.cell("type(model.get_layer('scale')) is Scale")
nb.ok('''@keras.saving.register_keras_serializable("shop")
class Half(layers.Layer):
    def call(self, x):
        return x / 2
other = keras.Sequential([keras.Input((2,)), Half()])
other.save("other.keras")''')
assert nb.cell("other.predict(x, verbose=0).tolist()") == [[0.5, 0.5]]
assert nb.cell("type(keras.models.load_model('other.keras').layers[0]) is Half")
ranks.close()
"""


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs jax and keras")
def test_models_take_the_notebooks_layers_along(tmp_path: Path) -> None:
    harness = str(Path(round_trip.__file__).parent)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": harness}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
