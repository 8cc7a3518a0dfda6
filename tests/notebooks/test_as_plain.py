"""GPU cells in a kernel that knows plain ones: what the table of cells (``tests/cells``) cannot say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from as_plain import run_both, shown
from kernel_bed import Notebook

pytestmark = pytest.mark.thorough


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Notebook]:
    """A kernel that no other test uses, with the environment that a kernel has."""
    notebook = Notebook(tmp_path)
    yield notebook
    notebook.close()


@pytest.fixture
def used(open_notebook: Callable[[], Notebook]) -> Notebook:
    """One that another test has used: names and settings of the test's own go."""
    return open_notebook()


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """One for tests that leave nothing behind."""
    started = Notebook(tmp_path_factory.mktemp("as_plain"))
    yield started
    started.close()


def test_an_output_widget_collects_what_is_printed_in_it(notebook: Notebook) -> None:
    notebook.ok("import ipywidgets")
    plain, gpu = run_both(notebook, "out = ipywidgets.Output()\nwith out:\n    print('inside')\nprint('outside')")
    assert gpu.status == plain.status == "ok", gpu.traceback
    for cell in (plain, gpu):
        sent = [m["content"]["data"].get("state", {}) for m in cell.messages if m["msg_type"] == "comm_msg"]
        request = cell.messages[0]["parent_header"]["msg_id"]
        assert [state["msg_id"] for state in sent if "msg_id" in state] == [request, ""]


def test_a_figure_of_a_gpu_cell_has_a_picture_in_a_plain_one(fresh: Notebook) -> None:
    fresh.ok("%%gpu_train --gpus 0\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])")
    assert fresh.ok("fig").displays("image/png")
    assert fresh.ok("%config InlineBackend.figure_format = 'svg'\nfig").displays("image/svg+xml")
    assert fresh.ok("other, _ = plt.subplots();").displays("image/svg+xml")


def test_help_opens_the_pager(notebook: Notebook) -> None:
    notebook.ok("import numpy as np")
    plain, gpu = run_both(notebook, "np.sum?")
    pages = [re.sub("0x[0-9a-f]+", "", str(cell.reply["payload"])) for cell in (plain, gpu)]
    assert "Signature:" in pages[0]
    assert pages[0] == pages[1]
    assert shown(gpu) == shown(plain) == []


def test_the_last_expression_of_a_gpu_cell_is_in_the_notebook(notebook: Notebook) -> None:
    notebook.ok("import numpy as np\nmodel = {'w': [1.0]}")
    notebook.ok("%%gpu_train --gpus 0\nmodel['w'].append(2.0)\nmodel")
    assert notebook.value("[_ is model, _]") == [True, {"w": [1.0, 2.0]}]
    notebook.ok("%%gpu_train --gpus 0\nnp.arange(3)")
    count = notebook.value("get_ipython().execution_count") - 1
    assert notebook.value(f"[_.tolist(), __ is model, Out[{count}] is _, _{count} is _]") == [
        [0, 1, 2],
        True,
        True,
        True,
    ]
    notebook.ok("%%gpu_train --gpus 0\nnp.zeros(1 << 20)")
    assert "shape (1048576,): too large for `_`" in notebook.value("repr(_)")
    notebook.ok("%%gpu_train --gpus 0\nimport matplotlib.pyplot as plt\nplt.plot([1])")
    assert "give it a name" in notebook.value("repr(_)")
    notebook.ok("%%gpu_train --gpus 0\n'quiet';")
    assert "give it a name" in notebook.value("repr(_)")
    assert notebook.ok("%%gpu_train --gpus 0\nprint(_, 3)").text().endswith(" 3\n")


def test_the_last_output_may_be_of_the_users_own_classes(used: Notebook) -> None:
    used.ok(
        "import dataclasses, functools, pathlib, types\n@dataclasses.dataclass\nclass Point:\n    x: object\n"
        "seen = [1]\n@functools.lru_cache\ndef ways(n): return n"
    )
    used.ok(
        "%%gpu_train --gpus 0\n[Point(Point(seen)), ways.cache_info(), pathlib.Path('a'), types.SimpleNamespace(b=2)]"
    )
    assert used.value("[_[0].x.x is seen, type(_[0]) is Point, _[1].misses, str(_[2]), _[3].b]") == [
        True,
        True,
        0,
        "a",
        2,
    ]
    used.ok("%%gpu_train --gpus 0\nimport matplotlib.pyplot as plt\nPoint(plt.plot([1]))")
    assert "give it a name" in used.value("repr(_)")
    used.ok("%%gpu_train --gpus 0\npoint = Point([2])\npoint.x")
    assert used.value("_ is point.x") is True
    used.ok("%%gpu_train --gpus 0\n(n for n in seen)")
    assert "cannot pickle" in used.value("repr(_)")


def test_what_the_last_output_holds_are_the_objects_of_the_notebook(used: Notebook) -> None:
    used.ok("import numpy as np\nclass Card: pass\nhand = [Card(), Card()]\ntheta, big = np.ones(3), np.ones(1 << 18)")
    used.ok(
        "%%gpu_train --gpus 0\ntheta[:] = 0\nfresh = {'a': 1}\nfor card in hand: pass\ntheta, card, big, big[:2], fresh"
    )
    held = "[_[0] is theta, _[1] is card is hand[1], _[2] is big, np.shares_memory(_[3], big), _[4] is fresh]"
    assert used.value(held) == [True] * 5
    used.ok("%%gpu_train --gpus 0 --skip other\nother = theta\ntheta = np.zeros(2)\n[theta, other]")
    assert used.value("[_[0] is theta, len(_[1])]") == [True, 3]


def test_tools_that_name_caches_after_a_cells_file_find_them_again_from_any_cell(used: Notebook) -> None:
    body = (
        "from joblib import Memory\ndef slow(x):\n    print('worked')\n    return x + 1\n"
        "kept = Memory('cache', verbose=0).cache(slow)\nkept(3)"
    )
    assert used.ok(body).text() == "worked\n"
    for _ in range(2):
        cell = used.ok(f"%%gpu_train --gpus 0\n{body}")
        assert "worked" not in cell.text()
    failed = re.sub(r"\x1b\[[\d;]*m", "", used.run("%%gpu_train --gpus 0\n1 / 0").traceback)
    assert re.search(r"Cell In\[\d+\], line 2", failed), failed
    assert "ipykernel_" not in failed


def test_an_underscore_of_the_user_stays_the_users(fresh: Notebook) -> None:
    for magic in ("", "%%gpu_train --gpus 0\n"):
        fresh.ok(
            "hook = get_ipython().displayhook\nhook._ = hook.__ = hook.___ = ''\n"
            "get_ipython().push({'_': '', '__': '', '___': ''}, interactive=False)"
        )
        fresh.ok(f"{magic}'first'")
        assert fresh.value("_") == "first"
        fresh.ok(f"{magic}for _ in range(10):\n    last = _\n_ * 2")
        assert fresh.value("[_, Out[max(Out)]]") == [9, 18]
        fresh.ok(f"{magic}'later'")
        assert fresh.value("[_, Out[max(Out)]]") == [9, "later"]


def test_backward_on_a_detached_result_says_what_to_do(used: Notebook) -> None:
    used.ok("%%gpu_train --gpus 0\nimport torch\nw = torch.ones(2, requires_grad=True)\nloss = (w ** 2).sum()")
    sentence = "`loss` came back from a GPU cell without the graph that computed it: call backward() in the cell"
    for cell in run_both(used, "loss.backward()"):
        assert cell.reply["ename"] == "RuntimeError"
        assert sentence in cell.traceback
    assert sentence not in used.run("raise RuntimeError('other')").traceback


def test_a_warning_for_once_is_shown_by_the_first_gpu_cell_only(fresh: Notebook) -> None:
    (fresh.folder / "elderly.py").write_text("import warnings\ndef old(text):\n    warnings.warn(text)\n")
    for first in ("", "%%gpu_train --gpus 0\n"):
        texts = [fresh.ok(f"{first}import elderly\nelderly.old('of{bool(first)}')").text("stderr") for _ in range(2)]
        assert ["warnings.warn(text)" in text for text in texts] == [True, False]
    fresh.ok("import warnings\ndef own(): warnings.warn('of mine')")
    for first in ("", "%%gpu_train --gpus 0\n"):  # IPython forgets those of the notebook's own code after each cell
        texts = [fresh.ok(f"{first}own(); own()").text("stderr") for _ in range(2)]
        assert [text.count("UserWarning: of mine") for text in texts] == [1, 1]
    always = "%%gpu_train --gpus 0\nwarnings.simplefilter('always')\nelderly.old('each time')"
    fresh.ok("import elderly, warnings")
    assert all("each time" in fresh.ok(always).text("stderr") for _ in range(2))


def test_a_future_import_of_a_gpu_cell_ends_where_it_does_in_a_plain_one(fresh: Notebook) -> None:
    ask = "def f(x: Missing): pass"
    fresh.ok("%%gpu_train --gpus 0\nfrom __future__ import annotations")
    assert [cell.status for cell in run_both(fresh, ask)] == ["ok", "ok"]
    fresh.ok("get_ipython().compile.reset_compiler_flags()")
    assert [cell.status for cell in run_both(fresh, ask)] == ["error", "error"]


def test_a_log_file_of_a_gpu_cell_is_named_in_the_receipt(used: Notebook) -> None:
    cell = used.ok("%%gpu_train --gpus 0\nimport logging\nlogging.basicConfig(filename='cell.log')\nlogging.error('x')")
    assert f"FileHandler ({used.folder / 'cell.log'}) of root: set in the cell only" in cell.receipt
    assert (used.folder / "cell.log").read_text() == "ERROR:root:x\n"
    assert used.ok("len(logging.root.handlers)").displays() == ["0"]


def test_environment_variables_that_are_given_win_and_are_the_cells_alone(fresh: Notebook) -> None:
    fresh.ok("import os\nos.environ['OWN_MODE'] = 'slow'")
    look = "import os\nprint([os.environ.get(name) for name in ('OWN_MODE', 'GIVEN')])"
    given = fresh.ok(f"%%gpu_train --gpus 0 --env OWN_MODE=given --env GIVEN=1\n{look}")
    assert given.text() == "['given', '1']\n"
    assert fresh.ok(look).text() == "['slow', None]\n"


def test_environment_variables_of_a_process_stay_there_and_secrets_are_held_back(fresh: Notebook) -> None:
    fresh.ok(
        "import os\nbefore = dict(os.environ)\nos.environ.update({'MY_TOKEN': 'hf_' + 'aB3' * 10, 'RANK': '7',"
        " 'PATH': os.environ['PATH'] + ':/nowhere', 'DATABASE': 'db://me:word@host', 'LONG': 'x' * 5000})"
    )
    look = (
        "%%gpu_train --gpus 0\nimport os\nprint([os.environ.get(name, '')[:9] for name in"
        " ('MY_TOKEN', 'RANK', 'DATABASE', 'LONG')], '/nowhere' in os.environ['PATH'])"
    )
    cell = fresh.ok(look)
    assert cell.text() == "['', '', '', ''] False\n"
    said = cell.text("stderr").splitlines()
    assert said == [
        "environment variable DATABASE looks like a secret and is held back: --export DATABASE sends it",
        "environment variable MY_TOKEN looks like a secret and is held back: --export MY_TOKEN sends it",
        "environment variable LONG is large and is held back: --export LONG sends it",
    ]
    again = fresh.ok(look.replace("--gpus 0", "--gpus 0 --export DATABASE"))
    assert again.text() == "['', '', 'db://me:w', ''] False\n"
    assert again.text("stderr") == ""
    made = fresh.ok("%%gpu_train --gpus 0 --cpus 1\nimport os\nos.environ.update(API_KEY='k' * 9, MASTER_PORT='1')")
    assert "os variable API_KEY: set in the cell only" in made.receipt
    fresh.ok("os.environ.pop('MY_TOKEN')")
    changed = "sorted(name for name in {**before, **os.environ} if before.get(name) != os.environ.get(name))"
    assert fresh.value(changed) == ["DATABASE", "LONG", "PATH", "RANK"]


def test_a_function_of_pythons_own_that_the_notebook_replaces_is_not_ours(notebook: Notebook) -> None:
    notebook.ok("import builtins\nreal = builtins.round\nbuiltins.round = lambda x: 42")
    try:
        assert notebook.ok("%%gpu_train --gpus 0\nx = 1\nprint(round(1.5), real(1.5))").text() == "42 2\n"
    finally:
        notebook.ok("builtins.round = real")


_FINDER = (
    "import importlib.abc, importlib.util, sys\nclass Made(importlib.abc.MetaPathFinder, importlib.abc.Loader):\n"
    "    def find_spec(self, name, path, target=None):\n"
    "        return importlib.util.spec_from_loader(name, self) if name == 'made_up' else None\n"
    "    def exec_module(self, module): module.x = 5\n"
)


def test_a_finder_that_a_cell_adds_finds_modules_there_and_one_of_the_notebook_is_named(notebook: Notebook) -> None:
    notebook.ok(_FINDER)
    found = notebook.ok("%%gpu_train --gpus 0\nsys.meta_path.append(Made())\nimport made_up\nprint(made_up.x)")
    assert found.text() == "5\n"
    notebook.ok("sys.meta_path.append(Made())\nimport made_up")
    missed = notebook.run("%%gpu_train --gpus 0\nimport made_up")
    assert "sys.meta_path.append(Made()) ran in cell" in missed.receipt
    notebook.ok("sys.meta_path.pop();")


_MAGICS_THAT_COUNT = """
from IPython.core.magic import Magics, line_magic, magics_class
ip = get_ipython()
@magics_class
class Noting(Magics):
    def __init__(self, shell, notes):
        super().__init__(shell)
        self.notes, self.count = notes, 0
    @line_magic
    def note(self, line):
        self.count += 1; self.notes.append(line)
        return self.count, len(self.notes)
def counting():
    count = 0
    def tick(line):
        nonlocal count
        count += 1
        return count
    return tick
def tock(line, seen=[]):
    seen.append(line)
    return len(seen)
notes = []
ip.register_magics(Noting(ip, notes))
ip.register_magic_function(counting(), "line", "tick"); ip.register_magic_function(tock, "line", "tock")
"""


def test_magics_count_on_over_plain_and_gpu_cells(fresh: Notebook) -> None:
    fresh.ok(_MAGICS_THAT_COUNT)
    for number, first in enumerate(("", "%%gpu_train --gpus 0\n", "", "%%gpu_train --gpus 0\n"), start=1):
        fresh.ok(first + "a = %note x\nb = %tick\nc = %tock")
        assert fresh.value("[a, b, c, len(notes)]") == [[number, number], number, number, number]


def test_transformers_of_input_change_a_gpu_cell_once(fresh: Notebook) -> None:
    fresh.ok(
        "def doubled(lines): return [line.replace('AA', 'AAA') for line in lines]\n"
        "def asked(lines): return [f'print({each[1:].strip()})\\n' if each[0] == '§' else each for each in lines]\n"
        "get_ipython().input_transformers_post[:] = [doubled, asked]"
    )
    for body in ("print('AA')", "1\n§ 'mine'"):
        plain, gpu = run_both(fresh, body)
        assert gpu.status == plain.status == "ok", gpu.traceback
        assert shown(gpu) == shown(plain) != []


def test_globals_of_what_was_executed_are_the_same_dict_afterwards(fresh: Notebook) -> None:
    fresh.ok("ns = {}; exec('n = 0\\ndef f():\\n    global n\\n    n += 1\\n    return n', ns)")
    fresh.ok("f = ns['f']; import builtins")
    fresh.ok("%%gpu_train --gpus 0\nx = f(), ns['n'], ns['f']()")
    found = fresh.value("[x, ns['n'], f(), f.__globals__ is ns, ns['__builtins__'] is vars(builtins)]")
    assert found == [[1, 1, 2], 2, 3, True, True]
