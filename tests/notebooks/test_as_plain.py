"""Cells that are run twice in one kernel, plain and on the cluster: both show the same and end alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel_bed import Notebook, Shown

pytestmark = pytest.mark.thorough


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Notebook]:
    """A kernel that no other test uses, with the environment that a kernel has."""
    notebook = Notebook(tmp_path)
    yield notebook
    notebook.close()


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """One for tests that leave nothing behind."""
    started = Notebook(tmp_path_factory.mktemp("as_plain"))
    yield started
    started.close()


def shown(cell: Shown) -> list[tuple[Any, ...]]:
    """What the user sees of a cell, one entry a message; the receipt is left out."""
    found: list[tuple[Any, ...]] = []
    for message in cell.messages:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            found.append((kind, content["name"], content["text"]))
        elif kind == "error":
            found.append((kind, content["ename"], content["evalue"].partition(" (")[0]))
        elif kind in ("display_data", "execute_result") and not _is_ours(content):
            found.append(("display", content["data"]))
    return _joined(found)


def _is_ours(content: dict[str, Any]) -> bool:
    display_id = content.get("transient", {}).get("display_id", "")
    return str(display_id).startswith("jgr-") or "jupyter_gpu_release" in content["metadata"]


def _joined(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Text of one stream comes in as many pieces as it likes."""
    out: list[tuple[Any, ...]] = []
    for entry in found:
        if out and entry[0] == "stream" and out[-1][:2] == entry[:2]:
            out[-1] = (*entry[:2], out[-1][2] + entry[2])
        else:
            out.append(entry)
    return out


def run_both(notebook: Notebook, body: str) -> tuple[Shown, Shown]:
    """``body`` as a plain cell and as a GPU cell."""
    return notebook.run(body), notebook.run(f"%%gpu_train --gpus 0\n{body}")


_BAD = (
    "class Bad:\n    def __repr__(self):\n        raise ValueError('no text')\n"
    "class Half:\n    def __repr__(self):\n        return 'half'\n"
    "    def _repr_html_(self):\n        raise KeyError('no html')\n"
)


@pytest.mark.parametrize(
    "body",
    [
        "%run bad.py\nprint('after')",
        "get_ipython().run_cell('1 / 0')\nprint('after')",
        "get_ipython().run_cell('1 +')\nprint('after')",
        f"{_BAD}display(Bad())\nprint('after')",
        f"{_BAD}Bad()",
        f"{_BAD}Half()",
        "%nosuchmagic 3",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    get_ipython().showtraceback()\nprint('after')",
    ],
)
def test_errors_that_ipython_only_shows_are_shown_and_end_the_cell_where_they_do_in_a_plain_one(
    notebook: Notebook, body: str
) -> None:
    (notebook.folder / "bad.py").write_text("print('begun')\nraise OSError('bad')\n")
    plain, gpu = run_both(notebook, body)
    assert gpu.status == plain.status
    if gpu.status == "error":  # a failed value's other representations come before its error
        assert sorted(map(str, shown(gpu))) == sorted(map(str, shown(plain)))
    else:
        assert shown(gpu) == shown(plain)


def test_libraries_find_the_same_front_end(notebook: Notebook) -> None:
    body = (
        "import os, shutil, sys, __main__\nimport numpy as np, pandas as pd\nfrom rich.console import Console\n"
        "from tqdm.auto import tqdm\nfrom jax._src import pretty_printer\nip = get_ipython()\ncls = type(ip)\n"
        "frame = pd.DataFrame(np.arange(90).reshape(3, 30) * 1000).add_prefix('column ')\n"
        "print(frame)\nprint(pd.get_option('display.max_columns'), pd.get_option('display.width'))\n"
        "print(cls, cls.__name__, cls.__module__, hasattr(ip, 'kernel'), 'IPKernelApp' in ip.config)\n"
        "print(sys.stdout.isatty(), sys.stderr.isatty(), shutil.get_terminal_size(), hasattr(sys, 'ps1'))\n"
        "print(Console().is_jupyter, Console().width, pretty_printer.CAN_USE_COLOR, hasattr(__main__, '__file__'))\n"
        "print(tqdm, ip.kernel.get_parent()['header']['msg_type'], pd.io.formats.console.in_ipython_frontend())\n"
        "print([os.environ.get(name) for name in ('TERM', 'FORCE_COLOR', 'PAGER', 'COLUMNS', 'JPY_PARENT_PID')])\n"
        "print(sorted(ip.display_formatter.active_types), sorted(ip.display_formatter.formatters), ip.colors)\n"
        "frame"
    )
    plain, gpu = run_both(notebook, body)
    assert plain.status == "ok", plain.traceback
    assert shown(gpu) == shown(plain)


def test_an_output_widget_collects_what_is_printed_in_it(notebook: Notebook) -> None:
    notebook.ok("import ipywidgets")
    plain, gpu = run_both(notebook, "out = ipywidgets.Output()\nwith out:\n    print('inside')\nprint('outside')")
    assert gpu.status == plain.status == "ok", gpu.traceback
    for cell in (plain, gpu):
        sent = [m["content"]["data"].get("state", {}) for m in cell.messages if m["msg_type"] == "comm_msg"]
        request = cell.messages[0]["parent_header"]["msg_id"]
        assert [state["msg_id"] for state in sent if "msg_id" in state] == [request, ""]


_SET = (
    "import warnings, numpy as np, matplotlib as mpl, matplotlib.pyplot as plt\n"
    "plt.style.use('dark_background'); mpl.rcParams['figure.figsize'] = (2, 1)\n"
    "np.set_printoptions(suppress=True); import pandas as pd; pd.set_option('display.max_rows', 3)\n"
    "pd.set_option('display.float_format', lambda x: f'<{x:.1f}>'); warnings.filterwarnings('ignore', 'not this')\n"
    "%precision 3\n%config InlineBackend.figure_format = 'svg'\n"
    "import torch; torch.set_printoptions(precision=2); torch.set_default_dtype(torch.float64)"
)
_LOOK = (
    "import warnings, numpy as np, pandas as pd, matplotlib as mpl, torch; from IPython.display import display\n"
    "print(mpl.rcParams['axes.facecolor'], mpl.rcParams['figure.figsize'], np.ones(2) / 3, torch.ones(1) / 3)\n"
    "print(pd.DataFrame({'a': [1 / 3] * 9})); warnings.warn('not this')\nwarnings.warn('but this')\n"
    "display(1 / 3); import matplotlib.pyplot as plt; plt.plot([1, 2]);"
)


@pytest.mark.parametrize("first", ["", "%%gpu_train --gpus 0\n"])
def test_settings_hold_in_plain_and_gpu_cells_wherever_they_were_made(fresh: Notebook, first: str) -> None:
    fresh.ok(first + _SET)
    plain, gpu = run_both(fresh, _LOOK)
    assert plain.status == "ok", plain.traceback
    assert gpu.status == "ok", gpu.traceback
    assert plain.text().startswith("black [2.0, 1.0] [0.333 0.333] tensor([0.33])\n")
    assert "<0.3>" in plain.text()
    assert plain.text() == gpu.text()
    for cell in (plain, gpu):
        assert "0.333" in cell.displays()
        assert cell.displays("image/svg+xml")
        assert not cell.displays("image/png")
        assert ("but this" in cell.text("stderr"), "not this" in cell.text("stderr")) == (True, False)
    assert fresh.value("str(torch.get_default_dtype())") == "torch.float64"


def test_a_figure_of_a_gpu_cell_has_a_picture_in_a_plain_one(fresh: Notebook) -> None:
    fresh.ok("%%gpu_train --gpus 0\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])")
    assert fresh.ok("fig").displays("image/png")
    assert fresh.ok("%config InlineBackend.figure_format = 'svg'\nfig").displays("image/svg+xml")
    assert fresh.ok("other, _ = plt.subplots();").displays("image/svg+xml")


def test_help_opens_the_pager_and_names_of_the_notebook_are_listed(notebook: Notebook) -> None:
    notebook.ok("import numpy as np\nhidden_gem = 3\nother_gem = [1, 2]")
    plain, gpu = run_both(notebook, "np.sum?")
    pages = [re.sub("0x[0-9a-f]+", "", str(cell.reply["payload"])) for cell in (plain, gpu)]
    assert "Signature:" in pages[0]
    assert pages[0] == pages[1]
    assert shown(gpu) == shown(plain) == []
    for listing in ("%who int list", "print([name for name in dir() if 'gem' in name])", "dir()"):
        plain, gpu = run_both(notebook, listing)
        assert "hidden_gem" in gpu.text() + str(gpu.displays())
        assert "other_gem" in gpu.text() + str(gpu.displays())


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


def test_the_last_output_may_be_of_the_users_own_classes(fresh: Notebook) -> None:
    fresh.ok(
        "import dataclasses, functools, pathlib, types\n@dataclasses.dataclass\nclass Point:\n    x: object\n"
        "seen = [1]\n@functools.lru_cache\ndef ways(n): return n"
    )
    fresh.ok(
        "%%gpu_train --gpus 0\n[Point(Point(seen)), ways.cache_info(), pathlib.Path('a'), types.SimpleNamespace(b=2)]"
    )
    assert fresh.value("[_[0].x.x is seen, type(_[0]) is Point, _[1].misses, str(_[2]), _[3].b]") == [
        True,
        True,
        0,
        "a",
        2,
    ]
    fresh.ok("%%gpu_train --gpus 0\nimport matplotlib.pyplot as plt\nPoint(plt.plot([1]))")
    assert "give it a name" in fresh.value("repr(_)")
    fresh.ok("%%gpu_train --gpus 0\npoint = Point([2])\npoint.x")
    assert fresh.value("_ is point.x") is True
    fresh.ok("%%gpu_train --gpus 0\n(n for n in seen)")
    assert "cannot pickle" in fresh.value("repr(_)")


def test_what_the_last_output_holds_are_the_objects_of_the_notebook(fresh: Notebook) -> None:
    fresh.ok("import numpy as np\nclass Card: pass\nhand = [Card(), Card()]\ntheta, big = np.ones(3), np.ones(1 << 18)")
    fresh.ok(
        "%%gpu_train --gpus 0\ntheta[:] = 0\nfresh = {'a': 1}\nfor card in hand: pass\ntheta, card, big, big[:2], fresh"
    )
    held = "[_[0] is theta, _[1] is card is hand[1], _[2] is big, np.shares_memory(_[3], big), _[4] is fresh]"
    assert fresh.value(held) == [True] * 5
    fresh.ok("%%gpu_train --gpus 0 --skip other\nother = theta\ntheta = np.zeros(2)\n[theta, other]")
    assert fresh.value("[_[0] is theta, len(_[1])]") == [True, 3]


def test_tools_that_name_caches_after_a_cells_file_find_them_again_from_any_cell(fresh: Notebook) -> None:
    body = (
        "from joblib import Memory\ndef slow(x):\n    print('worked')\n    return x + 1\n"
        "kept = Memory('cache', verbose=0).cache(slow)\nkept(3)"
    )
    assert fresh.ok(body).text() == "worked\n"
    for _ in range(2):
        cell = fresh.ok(f"%%gpu_train --gpus 0\n{body}")
        assert "worked" not in cell.text()
    failed = re.sub(r"\x1b\[[\d;]*m", "", fresh.run("%%gpu_train --gpus 0\n1 / 0").traceback)
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


def test_backward_on_a_detached_result_says_what_to_do(fresh: Notebook) -> None:
    fresh.ok("%%gpu_train --gpus 0\nimport torch\nw = torch.ones(2, requires_grad=True)\nloss = (w ** 2).sum()")
    sentence = "`loss` came back from a GPU cell without the graph that computed it: call backward() in the cell"
    for cell in run_both(fresh, "loss.backward()"):
        assert cell.reply["ename"] == "RuntimeError"
        assert sentence in cell.traceback
    assert sentence not in fresh.run("raise RuntimeError('other')").traceback


def test_a_warning_for_once_is_shown_by_the_first_gpu_cell_only(fresh: Notebook) -> None:
    (fresh.folder / "elderly.py").write_text("import warnings\ndef old(text):\n    warnings.warn(text)\n")
    for first in ("", "%%gpu_train --gpus 0\n"):
        texts = [fresh.ok(f"{first}import elderly\nelderly.old('of{bool(first)}')").text("stderr") for _ in range(2)]
        assert ["warnings.warn(text)" in text for text in texts] == [True, False]
    always = "%%gpu_train --gpus 0\nwarnings.simplefilter('always')\nelderly.old('each time')"
    fresh.ok("import elderly, warnings")
    assert all("each time" in fresh.ok(always).text("stderr") for _ in range(2))


_TREE = (
    "@dataclass\nclass Node:\n    depth: ClassVar[int] = 1\n    left: Node | Leaf\nclass Leaf: pass\n"
    "def f(x: Missing): pass\nprint(Node.__annotations__, [field.name for field in fields(Node)], f.__annotations__)"
)


def test_a_future_import_holds_in_later_cells_plain_and_gpu_ones(fresh: Notebook) -> None:
    fresh.ok("from dataclasses import dataclass, fields\nfrom typing import ClassVar")
    assert [cell.status for cell in run_both(fresh, _TREE)] == ["error", "error"]
    fresh.ok("%%gpu_train --gpus 0\nfrom __future__ import annotations")
    plain, gpu = run_both(fresh, _TREE)
    assert plain.status == gpu.status == "ok", plain.traceback + gpu.traceback
    assert plain.text() == gpu.text()
    assert "'left': 'Node | Leaf'" in plain.text()
    assert "['left']" in plain.text()
    fresh.ok("get_ipython().compile.reset_compiler_flags()")
    assert [cell.status for cell in run_both(fresh, _TREE)] == ["error", "error"]
    fresh.ok("from __future__ import annotations")
    assert run_both(fresh, _TREE)[1].text() == plain.text()


_LOGGED = (
    "import logging\nlogging.info('by root')\nlogging.getLogger('loud').debug('loud')\n"
    "logging.getLogger('quiet').warning('quiet')\nlogging.getLogger('own').error('own')\n"
    "print(len(logging.root.handlers), logging.getLogger('own').propagate)"
)


@pytest.mark.parametrize("first", ["", "%%gpu_train --gpus 0\n"])
def test_logging_is_set_up_alike_in_plain_and_gpu_cells_wherever_that_was_done(fresh: Notebook, first: str) -> None:
    fresh.ok(
        f"{first}import logging, sys\nlogging.basicConfig(level=logging.INFO, format='{{levelname}}: {{message}}', "
        "style='{', stream=sys.stdout)\nlogging.getLogger('loud').setLevel(logging.DEBUG)\n"
        "logging.getLogger('quiet').setLevel(logging.ERROR)\nown = logging.getLogger('own')\nown.propagate = False\n"
        "own.addHandler(logging.StreamHandler())"
    )
    plain, gpu = run_both(fresh, _LOGGED)
    assert plain.text() == gpu.text() == "INFO: by root\nDEBUG: loud\n1 False\n"
    assert plain.text("stderr") == gpu.text("stderr") == "own\n"
    fresh.ok(f"{first}logging.disable(logging.INFO)\nlogging.root.handlers[0].setFormatter(None)")
    fresh.ok(f"{first}logging.getLogger('quiet').setLevel(logging.NOTSET)")
    plain, gpu = run_both(fresh, _LOGGED)
    assert plain.text() == gpu.text() == "quiet\n1 False\n"


def test_a_log_file_of_a_gpu_cell_is_named_in_the_receipt(fresh: Notebook) -> None:
    cell = fresh.ok(
        "%%gpu_train --gpus 0\nimport logging\nlogging.basicConfig(filename='cell.log')\nlogging.error('x')"
    )
    assert f"FileHandler ({fresh.folder / 'cell.log'}) of root: set in the cell only" in cell.receipt
    assert (fresh.folder / "cell.log").read_text() == "ERROR:root:x\n"
    assert fresh.ok("len(logging.root.handlers)").displays() == ["0"]


_VARIABLES = (
    "import os\nprint([os.environ.get(name) for name in ('OWN_MODE', 'OWN_WORD', 'GIVEN')],"
    " os.popen('echo $OWN_MODE').read().strip())"
)


@pytest.mark.parametrize("first", ["", "%%gpu_train --gpus 0\n"])
def test_environment_variables_are_alike_in_plain_and_gpu_cells_wherever_they_were_set(
    fresh: Notebook, first: str
) -> None:
    fresh.ok(f"{first}import os\nos.environ['OWN_MODE'] = 'fast'\n%env OWN_WORD=a b")
    plain, gpu = run_both(fresh, _VARIABLES)
    assert plain.text() == gpu.text() == "['fast', 'a b', None] fast\n"
    fresh.ok(f"{first}del os.environ['OWN_WORD']\nos.environ['OWN_MODE'] = 'slow'")
    plain, gpu = run_both(fresh, _VARIABLES)
    assert plain.text() == gpu.text() == "['slow', None, None] slow\n"
    assert plain.text("stderr") == gpu.text("stderr") == ""
    given = fresh.ok(f"%%gpu_train --gpus 0 --env OWN_MODE=given --env GIVEN=1\n{_VARIABLES}")
    assert given.text() == "['given', None, '1'] given\n"
    assert fresh.value("[__import__('os').environ.get(name) for name in ('OWN_MODE', 'GIVEN')]") == ["slow", None]


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
    assert fresh.value(changed) == [
        "DATABASE",
        "LONG",
        "PATH",
        "RANK",
    ]
