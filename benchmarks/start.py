"""From the magic's call in a real kernel to the first remote statement; against a Ray actor and Ray Train."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

from .attached import attached_bed
from .bed import Bed, Kernel, bed, kernel
from .footprint import idle_cpu_percent, load_cost, rank_private_mib
from .report import Report

# The first statement takes the time; the others prove that torch was imported and is usable by then.
_CELL = """
import time; t_first = time.time()
import sys; torch_was_there = "torch" in sys.modules
import torch; total = float(torch.ones(8).sum())
"""
_CALL = """
import time
t_call = time.time()
get_ipython().run_cell_magic("gpu_train", {options!r}, {cell!r})
assert torch_was_there and total == 8.0
"""


def run(*, quick: bool) -> Report:
    """Measure; ``quick`` takes few repetitions, on one cluster, and does without Ray Train."""
    report = Report("start")
    with bed() as cluster, kernel(cluster.work) as notebook:
        first = _ours(notebook, "--gpus 1", 1)  # the first one starts the relay and fills caches
        report.add("first_cell_of_a_kernel", first)
        count = 3 if quick else 60
        ours = report.add("first_statement", _ours(notebook, "--gpus 1", count))
        _add_split(report, cluster.manifests(count))
        _ours(notebook, "--gpus 1 --keep 60s", 1)  # it begins on a GPU that nobody kept
        report.add("kept_first_statement", _ours(notebook, "--gpus 1 --keep 60s", count))
        notebook.run("%gpu_release")
        report.add("gang4_first_statement", _gang(notebook, 2 if quick else 20))
        report.add("held_before_first_statement", _held(notebook, cluster, count, 1 if quick else len(_LIBRARIES)))
        report.add("trivial_cell", [notebook.reply_ms("%%gpu_train\nx = 1") for _ in range(count)])
        report.add("trivial_cell_plain", [notebook.reply_ms("x = 1") for _ in range(count)])
        _cuda(notebook, cluster, report)
        _peers(cluster, report, ours, _QUICK_PEERS if quick else (*_QUICK_PEERS, "ray_train"), 1 if quick else 20)
        report.add("rank_private_memory", [rank_private_mib(notebook)], "MiB")
        report.add("idle_cpu", [idle_cpu_percent(cluster, 1 if quick else 20)], "% of a core")
        seconds, mib = load_cost(1 if quick else 20)
        report.add("load_ext", [value * 1000 for value in seconds])
        report.add("load_ext_memory", mib, "MiB")
    if not quick:
        report.ratios["attached"] = _attached(report, 60) / ours
        report.add("first_cell_ever", [_first_ever() for _ in range(5)], "s")
    return report


_QUICK_PEERS = ("actor", "actor_without_torch", "standing_actor")


def _peers(cluster: Bed, report: Report, ours: float, kinds: tuple[str, ...], count: int) -> None:
    """Measure the ways without us; ``notes`` say what is warm for whom."""
    for kind, values in cluster.compete(kinds, count).items():
        report.ratios[kind] = report.add(f"{kind}_first_statement", values) / ours
    report.notes += [
        "ours: warm. Processes with torch, pandas and sklearn loaded stand by; nobody holds the GPU before the call",
        "actor, actor_without_torch, ray_train: cold. A new process for each; torch is imported in it (not in"
        " actor_without_torch); Ray itself runs, and the files are in the page cache; nobody holds the GPU",
        "standing_actor: warm, with torch. It holds its GPU all the time, whether or not anything runs",
    ]


def _ours(notebook: Kernel, options: str, count: int) -> list[float]:
    """Milliseconds from the call to the first statement; nobody holds a GPU before the call."""
    found = []
    for _ in range(count):
        notebook.run(_CALL.format(options=options, cell=_CELL))
        found.append((notebook.value("t_first") - notebook.value("t_call")) * 1000)
        time.sleep(0.25)
    return found


#: what notebooks import and no node has imported by itself, as far as it is installed; the quickest first
_LIBRARIES = ("plotly.express", "transformers", "jax.numpy", "pytorch_lightning")


def _held(notebook: Kernel, cluster: Bed, count: int, most: int) -> list[float]:
    """Milliseconds from the grant to the first statement of a cell whose notebook has imported much, from the second
    such cell on. ``most``: so many libraries.
    """
    there = [name for name in _LIBRARIES if importlib.util.find_spec(name.partition(".")[0])][:most]
    imports = "\n".join(f"import {name}" for name in there)
    notebook.run(imports, limit_s=600)
    used = ", ".join(name.partition(".")[0] for name in there)
    found = []
    for _ in range(count + 1):
        notebook.run(f"%%gpu_train\nimport sys\nused = [len(vars(each)) for each in ({used},)]", limit_s=600)
        (run,) = cluster.manifests(1)
        found.append((run["outcome"]["started_s"] - run["granted_at"]) * 1000)
        time.sleep(0.25)
    return found[1:]


def _attached(report: Report, count: int) -> float:
    """The same on a Ray cluster that somebody else runs, with the settings of the operators' pages."""
    with attached_bed() as cluster, kernel(cluster.work) as notebook:
        _ours(notebook, "--gpus 1", 1)
        return report.add("first_statement_attached", _ours(notebook, "--gpus 1", count))


def _add_split(report: Report, manifests: list[dict[str, Any]]) -> None:
    """Where the time goes: in the queue, until lease and forked rank are there, in loading the inputs."""
    parts = {
        "queue": [(run["submitted_at"], run["granted_at"]) for run in manifests],
        "fork": [(run["granted_at"], run["outcome"]["granted_s"]) for run in manifests],
        "inputs": [(run["outcome"]["granted_s"], run["outcome"]["started_s"]) for run in manifests],
    }
    for name, spans in parts.items():
        report.add(name, [(end - begin) * 1000 for begin, end in spans])


def _gang(notebook: Kernel, count: int) -> list[float]:
    """Until the last of four ranks runs its first statement."""
    cell = (
        "import time; t_first = time.time()\nimport os; open(f'first-{os.environ[\"RANK\"]}', 'w').write(str(t_first))"
    )
    found = []
    for _ in range(count):
        code = "import time\nt_call = time.time()\nget_ipython().run_cell_magic('gpu_train', '--gpus 4 --ranks 4', %r)"
        notebook.run(code % cell)
        last = notebook.value("max(float(open(f'first-{rank}').read()) for rank in range(4))")
        found.append((last - notebook.value("t_call")) * 1000)
        time.sleep(0.25)
    return found


def _cuda(notebook: Kernel, cluster: Bed, report: Report) -> None:
    if cluster.connection().get("simulated"):
        return
    cell = "import torch\ntorch.ones(1, device='cuda').add_(1); torch.cuda.synchronize()\n"
    cell += "import time; t_cuda = time.time()"
    found = []
    for _ in range(5):
        call = "import time\nt_call = time.time()\nget_ipython().run_cell_magic('gpu_train', '--gpus 1', %r)"
        notebook.run(call % cell)
        found.append((notebook.value("t_cuda") - notebook.value("t_call")) * 1000)
    report.add("first_cuda_kernel", found)


def _first_ever() -> float:
    """Nothing runs: a notebook's first cell starts the cluster itself (most of it is Ray's own start)."""
    import shutil
    import tempfile
    from pathlib import Path

    folder = Path(tempfile.mkdtemp(prefix="jgr-bench-"))
    cluster = Bed(folder)
    try:
        with kernel(cluster.work) as notebook:
            began = time.time()
            notebook.run(_CALL.format(options="--gpus 1", cell=_CELL))
            return float(notebook.value("t_first")) - began
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
