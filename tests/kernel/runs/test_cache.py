"""``--cache`` in real kernels on a real cluster: what is the same is not run again, what is not is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel_outputs import Kernel, Outputs

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.rest import GatewayClient

Until = Callable[[Callable[[], object], str], None]
MakeKernel = Callable[[dict[str, str]], Kernel]
REUSED = "same code, same inputs: results of run"


class Team:
    """Kernels in one folder on one cluster, and what the gateway knows of their runs."""

    def __init__(
        self, cluster: Ready, environment: dict[str, str], take: MakeKernel, make: MakeKernel, until: Until
    ) -> None:
        token_file = Path(cluster.connection.token_file)
        self._environment = {**environment, "JUPYTER_GPU_HOME": str(token_file.parent)}
        self._take, self._make = take, make
        self.gateway = GatewayClient(cluster.connection.url, token_file.read_text().strip())
        self.until = until

    def kernel(self, seed: str = "") -> Kernel:
        """A kernel with the extension loaded; with a ``seed`` it is new."""
        if not seed:
            return self._take(self._environment)
        made = self._make({**self._environment, "PYTHONHASHSEED": seed})
        ok(made, "%load_ext jupyter_gpu_release")
        return made

    def runs(self) -> list[str]:
        """All runs, newest first."""
        return [run.run for run in self.gateway.runs(1000).runs]

    def under_way(self) -> list[str]:
        """Runs of this folder's kernels that are not over."""
        return [run.run for run in self.gateway.runs(1000).runs if run.state == "running"]

    def newest(self) -> str:
        """The newest run, once its results may be used again."""
        run = self.runs()[0]
        self.until(lambda: self.gateway.lineage(run).is_reusable, f"run {run} has its key")
        return run


@pytest.fixture
def team(
    cluster: Ready, home: dict[str, str], take_kernel: MakeKernel, make_kernel: MakeKernel, until: Until
) -> Iterator[Team]:
    made = Team(cluster, home, take_kernel, make_kernel, until)
    yield made
    made.gateway.close()


def ok(kernel: Kernel, code: str) -> Outputs:
    outputs = kernel.run(code, 120)
    assert outputs.reply["status"] == "ok", "\n".join(outputs.reply["traceback"])
    return outputs


def receipt(outputs: Outputs) -> str:
    return outputs.plain()[-1]


def facts(outputs: Outputs) -> dict[str, Any]:
    found = [m["content"]["metadata"].get("jupyter_gpu_release") for m in outputs if m["msg_type"].endswith("data")]
    return next(each for each in reversed(found) if each)


SETUP = """
import numpy as np, pandas as pd
rate = 0.5
words = {"b", "a", "c"}
class Model:
    def __init__(self): self.weights = np.zeros(4); self.log = []
    def fit(self, x):
        for row in x: self.weights += step(row)
        self.log.append(len(x))
def step(row):
    return rate * row
model = Model()
alias = {"m": model}
data = np.arange(12.0).reshape(3, 4)
frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
"""
CELL = """%%gpu_train --cache
# the first version
model.fit(data)
total = float(model.weights.sum()) + len(words) + int(frame.a.sum())
print("total", total)
"""
SAME_CELL = """%%gpu_train --cache --name "another label" --timeout 1h
model.fit( data )

total = (float(model.weights.sum())
         + len(words) + int(frame.a.sum()))   # formatted otherwise
print('total', total)
"""


def run_all(kernel: Kernel, cell: str = CELL) -> Outputs:
    ok(kernel, SETUP)
    return ok(kernel, cell)


def test_run_all_in_two_kernels_takes_one_gpu(team: Team):
    first = team.kernel("1")
    ran = run_all(first)
    assert REUSED not in receipt(ran)
    run = team.newest()
    known = team.runs()

    second = team.kernel("2")
    again = run_all(second, SAME_CELL)
    assert receipt(again).startswith(f"✓ {REUSED} {run} reused, no GPU taken")
    assert facts(again) | {"run": run, "reused": True, "gpus": 0, "status": "ok"} == facts(again)
    assert team.runs() == known  # no new run: nothing was queued, no GPU was taken
    assert again.text() == ran.text() == "total 39.0\n"
    for kernel in (first, second):
        assert kernel.value("model.weights.tolist()") == "[6.0, 7.5, 9.0, 10.5]"
        assert kernel.value("(alias['m'] is model, isinstance(model, Model), model.log)") == "(True, True, [3])"
        ok(kernel, "model.fit(data[:1])")  # methods see the notebook's own functions
        assert kernel.value("model.log") == "[3, 1]"
    assert team.gateway.lineage(run).reused == 1


def test_what_differs_runs_again(team: Team):
    kernel = team.kernel()
    run_all(kernel)
    base = team.newest()
    for change in (
        "data[0, 0] = 5.0",  # an input
        "def step(row):\n    return rate * row * 2",  # what a method of an input calls
        "rate = 0.25",  # what that reads
        "words = {'b', 'a', 'd'}",
    ):
        ok(kernel, SETUP)
        ok(kernel, change)
        assert REUSED not in receipt(ok(kernel, CELL)), change
    ok(kernel, SETUP)
    assert REUSED not in receipt(ok(kernel, CELL.replace("--cache", "--cache --gpus 2")))
    ok(kernel, SETUP)
    assert REUSED not in receipt(ok(kernel, CELL.replace("+ len", "- len")))
    assert f"{REUSED} {base}" in receipt(run_all(kernel))  # as it was: the first run is found again
    assert kernel.value("(model.log, alias['m'] is model)") == "([3], True)"


def test_a_local_module_that_was_edited_runs_again(team: Team):
    kernel = team.kernel()
    module = kernel.folder / "recipe.py"
    module.write_text("def bake(): return 1\n")
    cell = "%%gpu_train --cache\nimport recipe\nbread = recipe.bake()"
    ok(kernel, cell)
    team.newest()
    assert REUSED in receipt(ok(kernel, cell))
    module.write_text("def bake(): return 22\n")
    assert REUSED not in receipt(ok(kernel, cell))
    assert kernel.value("bread") == "22"


def test_a_tracked_file_that_changed_runs_again(team: Team):
    kernel = team.kernel()
    data, more = kernel.folder / "data.txt", kernel.folder / "more"
    data.write_text("3")
    more.mkdir()
    (more / "a").write_text("1")
    ok(kernel, "from jupyter_gpu_release import track")
    cell = "%%gpu_train --cache\nimport os\nvalue = int(open(track('data.txt')).read())"
    cell += "\nn = len(os.listdir(track('more')))"
    ok(kernel, cell)
    run = team.newest()
    lineage = team.gateway.lineage(run)
    assert "open" not in [used.name for used in lineage.facts.used]  # IPython's own, and all that it imports
    assert "ipython" not in lineage.facts.environment.packages
    tracked = lineage.tracked
    assert [Path(file.path).name for file in tracked] == ["data.txt", "more", "a"]
    assert [file.bytes for file in tracked] == [1, 1, 1]
    assert REUSED in receipt(ok(kernel, cell))
    data.write_text("4")
    again = ok(kernel, cell)
    assert f"results of run {run} are not reused: {data} has changed" in receipt(again)
    assert kernel.value("value") == "4"
    data.write_text("3")
    assert f"{REUSED} {run}" in receipt(ok(kernel, cell))  # the older run fits again
    (more / "b").write_text("")
    assert REUSED not in receipt(ok(kernel, cell))
    assert kernel.value("(value, n)") == "(3, 2)"
    assert kernel.run("%%gpu_train\ntrack('nowhere.csv')", 60).error["ename"] == "FileNotFoundError"
    assert ok(kernel, "print(track('nowhere.csv'))").text() == "nowhere.csv\n"


def test_failed_runs_are_not_reused_and_what_has_no_key_runs(team: Team):
    kernel = team.kernel()
    cell = "%%gpu_train --cache\nmade = 1\nassert flag, 'not yet'"
    ok(kernel, "flag = False")
    for _ in range(2):
        assert kernel.run(cell, 60).error["ename"] == "AssertionError"
    assert team.runs()[0] != team.runs()[1]
    assert not team.gateway.lineage(team.runs()[1]).is_reusable
    for code, reason in (
        ("import importlib\nm = importlib.import_module('json')", "it imports modules by import_module()"),
        ("exec('made = 2')", "parts of its code are made when it runs"),
        ("!true", "it runs commands of the shell"),
    ):
        for _ in range(2):
            text = receipt(ok(kernel, f"%%gpu_train --cache\n{code}"))
            assert f"--cache: this run cannot be reused: {reason}" in text
            assert REUSED not in text


@pytest.mark.thorough
def test_a_run_that_makes_the_same_just_now_is_named(team: Team):
    kernel = team.kernel()
    body = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\nmade = 1"
    ok(kernel, f"%%gpu_train --cache --async\n{body}")
    team.until(team.under_way, "the first runs")  # the cell has ended when its run is queued
    (first,) = team.under_way()
    second = kernel.start(f"%%gpu_train --cache\n{body}")
    team.until(lambda: len(team.under_way()) == 2, "both run")
    (kernel.folder / "go").touch()
    assert f"run {first} makes the same and is not over: %gpu_attach {first}" in receipt(kernel.finish(second, 60))
    team.newest()
    assert REUSED in receipt(ok(kernel, f"%%gpu_train --cache\n{body}"))


@pytest.mark.thorough
def test_large_results_and_classes_of_the_cell(team: Team):
    """Results through the store, a class that the GPU cell made, a model and its optimiser that belong together."""
    kernel = team.kernel()
    setup = "import torch\ntorch.manual_seed(0)\nnet = torch.nn.Linear(600, 600)\n"
    setup += "optimiser = torch.optim.SGD(net.parameters(), lr=0.1)\nholder = [net]"
    cell = """%%gpu_train --cache
class Wrapped:
    def __init__(self, net): self.net = net
wrapped = Wrapped(net)
net(torch.ones(1, 600)).sum().backward()
optimiser.step()
optimiser.zero_grad()"""
    ok(kernel, setup)
    ok(kernel, cell)
    team.newest()
    before = kernel.value("net.weight.sum().item()")
    for other in (kernel, team.kernel()):
        ok(other, setup)
        assert REUSED in receipt(ok(other, cell))
        assert other.value("net.weight.sum().item()") == before
        together = "(holder[0] is net, wrapped.net is net, optimiser.param_groups[0]['params'][0] is net.weight)"
        assert other.value(together) == "(True, True, True)"
        assert other.value("type(wrapped) is Wrapped") == "True"


def test_what_a_setup_reads_is_part_of_the_key(team: Team):
    kernel, cell = team.kernel(), "%%gpu_train --cache\ny = 1"
    ok(kernel, "scale = 1")
    ok(kernel, "%%gpu_setup\nseen = scale")
    ok(kernel, cell)
    team.newest()
    assert REUSED in receipt(ok(kernel, cell))
    ok(kernel, "scale = 2")
    assert REUSED not in receipt(ok(kernel, cell))
    ok(kernel, "%gpu_setup --clear")


def test_lineage_goes_up_and_down(team: Team):
    kernel = team.kernel()
    ok(kernel, "start = [1, 2, 3]")
    ok(kernel, "%%gpu_train\nimport numpy as np\nfeatures = np.array(start) * 2.0")
    first = team.runs()[0]
    ok(kernel, "%%gpu_train --cache\nmodel = {'w': features.sum()}")
    second = team.newest()
    ok(kernel, "features2 = features + 1\n%gpu_train score = model['w'] + features2.sum()")
    third = team.runs()[0]
    lineage = team.gateway.lineage(second)
    assert [(link.run, link.name, link.source) for link in lineage.links] == [
        (second, "features", first),
        (third, "model", second),
    ]
    (used,) = lineage.facts.used
    assert (used.name, used.type, used.run) == ("features", "ndarray", first)
    assert used.digest.startswith("graph:")
    assert "numpy" in lineage.facts.environment.packages
    assert "features.sum()" in lineage.facts.code
    assert {run.run for run in lineage.runs} == {first, second, third}
