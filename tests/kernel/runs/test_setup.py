# ruff: noqa: E501 - a cell is one string
"""``%%gpu_setup`` through a real kernel, gateway and rank, and what a failed cell says of statements that ran here only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyter_gpu_release.client.autostart import Ready

if TYPE_CHECKING:
    from kernel_outputs import Kernel

MakeKernel = Callable[[dict[str, str]], "Kernel"]
ACCESSOR = """
@pd.api.extensions.register_dataframe_accessor("geo")
class Geo:
    def __init__(self, frame): self._frame = frame
    @property
    def total(self): return float(self._frame.lat.sum()) * FACTOR
"""

CODEC = (
    "import codecs\nLATIN = codecs.lookup('latin-1')\n"
    "codecs.register(lambda name: LATIN if name == 'of_ours' else None)"
)


@pytest.fixture
def kernel(make_kernel: MakeKernel, home: dict[str, str], cluster: Ready) -> Kernel:
    made = make_kernel({**home, "JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)})
    made.run("%load_ext jupyter_gpu_release")
    return made


def test_a_setup_runs_here_and_first_in_each_rank(kernel: Kernel) -> None:
    kernel.run("import pandas as pd\nFACTOR = 2\nruns = 0", 60)
    cell = kernel.run(
        f"%%gpu_setup\nfrom tqdm import tqdm\ntqdm.pandas(disable=True)\n{ACCESSOR}\n{CODEC}\nruns += 1\nprint('said')\nruns",
        60,
    )
    assert cell.reply["status"] == "ok", cell.traceback
    assert (cell.text("stdout"), kernel.value("runs")) == ("said\n", "1")
    kernel.run("df = pd.DataFrame({'lat': [1.0, 3.0]})")
    cell = kernel.run("%%gpu_train\ndf['b'] = df.lat.progress_apply(lambda x: x * 10)\nprint(df.geo.total, runs)", 60)
    assert cell.reply["status"] == "ok", cell.traceback
    assert cell.text("stdout") == "8.0 1\n"
    assert kernel.value("(df.b.tolist(), runs, df.geo.total)") == "([10.0, 30.0], 1, 8.0)"
    listed = kernel.run("%gpu_setup --list").plain()[0]
    assert "from tqdm import tqdm" in listed
    assert "before the grant" in listed
    assert "1 setup cell forgotten" in kernel.run("%gpu_setup --clear").plain()[0]
    cell = kernel.run("%%gpu_train\n'a'.encode('of_ours')", 60)
    assert cell.reply["ename"] == "LookupError"


def test_a_setup_that_fails_there_says_where_and_what_helps(kernel: Kernel) -> None:
    assert kernel.run("%%gpu_setup\n1 / 0").reply["ename"] == "ZeroDivisionError"
    assert "No setup cells" in kernel.run("%gpu_setup").plain()[0]
    kernel.run("%%gpu_setup\nimport os\nif 'GPU_RUN_DIR' in os.environ:\n    raise ValueError('not there')")
    cell = kernel.run("%%gpu_train\nx = 1", 60)
    assert cell.reply["ename"] == "RunFailedError"
    assert "line 4) failed in the rank: ValueError: not there" in cell.reply["evalue"]
    assert "%gpu_setup --clear" in cell.reply["evalue"]
    assert kernel.run("%%gpu_setup --clear\nx").reply["ename"] == "OptionError"
    assert kernel.run("%gpu_setup --cleer").reply["ename"] == "OptionError"


@pytest.mark.slow("scikit-learn is imported in kernel and rank")
def test_imports_for_their_effect_are_made_in_the_rank(kernel: Kernel) -> None:
    (kernel.folder / "switch_on.py").write_text(
        "import fractions\nfractions.Fraction.as_percent = lambda self: f'{float(self):.0%}'\n"
    )
    kernel.run(
        "from sklearn.experimental import enable_iterative_imputer\nimport switch_on\nfrom fractions import Fraction\nhalf = Fraction(1, 2)",
        60,
    )
    cell = kernel.run(
        "%%gpu_train\nfrom sklearn.impute import IterativeImputer\nprint(half.as_percent(), IterativeImputer(max_iter=3).max_iter)",
        60,
    )
    assert cell.reply["status"] == "ok", cell.traceback
    assert cell.text("stdout") == "50% 3\n"


def test_a_cell_that_misses_what_a_statement_of_the_notebook_made_names_it(kernel: Kernel) -> None:
    kernel.run(CODEC)
    number = kernel.value("len(In) - 2")
    cell = kernel.run("%%gpu_train\n'a'.encode('of_ours')", 60)
    said = f"codecs.register(lambda name: LATIN if name == 'of_ours' else None) ran in cell {number} of the notebook, not here: put it under %%gpu_setup"
    assert cell.reply["ename"] == "LookupError"
    assert said in str(cell.reply["traceback"])


def test_a_module_that_the_notebook_made_is_no_package_to_install(kernel: Kernel) -> None:
    kernel.run("import sys, types\nsys.modules['own_stub'] = types.ModuleType('own_stub')")
    kernel.run("def stub(name): sys.modules[name] = types\nstub('own.alias')")
    last = int(kernel.value("len(In) - 2"))
    for imported, said in (
        ("import own_stub", f"sys.modules['own_stub'] = types.ModuleType('own_stub') ran in cell {last - 1}"),
        ("from own.alias import ModuleType", f"stub('own.alias') ran in cell {last}"),
    ):
        cell = kernel.run(f"%%gpu_train\n{imported}", 60)
        assert cell.reply["ename"] == "ModuleNotFoundError"
        assert f"{said} of the notebook, not here: put it under %%gpu_setup" in str(cell.reply["traceback"])
        assert "pip install" not in str(cell.reply["traceback"])
    kernel.run("%%gpu_setup\nsys.modules['own_stub'] = types.ModuleType('own_stub', 'a stub')")
    cell = kernel.run("%%gpu_train\nimport own_stub\nstub('own_other')\nimport own_other\nprint(own_stub.__doc__)", 60)
    assert cell.reply["status"] == "ok", cell.traceback
    assert cell.text("stdout") == "a stub\n"
