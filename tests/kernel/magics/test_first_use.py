"""The first magic of a kernel imports much, and the notebook does not notice."""

from __future__ import annotations

import subprocess
import sys

_FIRST = """
import random, sys
import numpy
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "jupyter_gpu_release")
random.seed(0)
numpy.random.seed(0)
before = random.getstate(), repr(numpy.random.get_state())
assert "httpx" not in sys.modules
shell.run_line_magic("gpu_config", "")
assert "httpx" in sys.modules
assert (random.getstate(), repr(numpy.random.get_state())) == before
"""


def test_who_has_seeded_gets_the_same_numbers_as_without_us() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
