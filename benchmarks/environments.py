"""Environments of notebooks: a ready one and the cluster's own, one that is built first, and what comparing costs."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from jupyter_gpu_release.environments.installed import InstalledReader
from jupyter_gpu_release.host.process_control import command_of, end_all
from jupyter_gpu_release.local_cluster.processes import marker_of

from .bed import Bed, Kernel, bed, kernel
from .report import CannotMeasureError, Report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "harness"))

from wheel_bed import WheelIndex, install, make_wheel

_FIVE = [f"bench-{letter}" for letter in "abcde"]
_CELL = """
import time
sent = time.time()
get_ipython().run_cell_magic("gpu_train", {options!r}, {body!r})
"""
_OWN, _LAYER = "--environment cluster", "--environment auto"
_FORK_SERVER = b"jupyter_gpu_release.node.fork_server"
_FIRST = "import time; first = time.time()"


def run(*, quick: bool) -> Report:
    """Measure on a cluster of its own, with an index on loopback; ``quick``: few, and without Ray's own."""
    report = Report("environments")
    if not quick and importlib.util.find_spec("virtualenv") is None:
        raise CannotMeasureError("Ray's own environments need virtualenv: pip install virtualenv")
    with tempfile.TemporaryDirectory(prefix="jgr-bench-") as name, _team(Path(name)) as team:
        _add_ready(report, team, 3 if quick else 60)
        _add_cold(report, team, 1 if quick else 10)
        if not quick:
            _add_ray(report, team, 5)
    _add_comparing(report, 3 if quick else 20)
    return report


class _Team:
    """A cluster whose nodes get wheels from the index, and a notebook that has a package of its own."""

    def __init__(self, folder: Path, cluster: Bed, index: WheelIndex) -> None:
        self.wheels, self.site, self.environments = folder / "wheels", folder / "site-packages", folder / "environments"
        self.cluster, self.index = cluster, index

    def have(self, *names: str, version: str) -> None:
        """Install new versions in the notebook's Python; nodes can get them."""
        for name in names:
            install(make_wheel(self.wheels, name, version), self.site)

    def kill_fork_servers(self) -> int:
        """The next cell finds a cold one, in whichever environment; returns how many processes have ended."""
        cluster = str(self.cluster.connection()["cluster"])
        return end_all(lambda: _fork_servers(cluster), limit_s=10.0)


def _fork_servers(cluster: str) -> list[int]:
    """Processes of the cluster's fork servers, those that stand by included: a fork has the same command line."""
    return [pid for pid in psutil.pids() if marker_of(pid) == cluster and _FORK_SERVER in command_of(pid)]


@contextmanager
def _team(folder: Path) -> Iterator[_Team]:
    (folder / "wheels").mkdir()
    (folder / "site-packages").mkdir()
    before = dict(os.environ)
    with WheelIndex(folder / "wheels") as index:
        os.environ["JUPYTER_GPU_ENVIRONMENTS"] = str(folder / "environments")
        os.environ["JUPYTER_GPU_ENVIRONMENT_INDEX"] = index.url()
        try:
            with bed(own=True) as cluster:
                os.environ["PYTHONPATH"] = str(folder / "site-packages")
                yield _Team(folder, cluster, index)
        finally:
            os.environ.clear()
            os.environ.update(before)


def _first_ms(notebook: Kernel, options: str, body: str = _FIRST) -> float:
    """From the call to the first remote statement."""
    notebook.run(_CELL.format(options=options, body=body))
    return float(notebook.value("(first - sent) * 1000"))


def _add_ready(report: Report, team: _Team, count: int) -> None:
    """In turn, the first of each left out."""
    team.have("bench-ready", version="1.0")
    found: dict[str, list[float]] = {_OWN: [], _LAYER: []}
    with kernel(team.cluster.work) as notebook:
        for options in list(found) * (count + 1):
            found[options].append(_first_ms(notebook, options))
            notebook.run("time.sleep(0.25)")
    own = report.add("own_first_statement", found[_OWN][1:])
    ready = report.add("ready_layer", found[_LAYER][1:])
    report.ratios["ready_layer"] = ready / own


def _add_cold(report: Report, team: _Team, count: int) -> None:
    """Five new wheels each time; then the same packages again where only the node's cache has them."""
    built, again, own, held, killed = [], [], [], [], []
    body = f"import {', '.join(name.replace('-', '_') for name in _FIVE)}\n{_FIRST}"
    with kernel(team.cluster.work) as notebook:
        for number in range(count):
            _first_ms(notebook, _OWN)
            killed.append(team.kill_fork_servers())
            own.append(_first_ms(notebook, _OWN))
            team.have(*_FIVE, version=f"{number + 1}.0")
            built.append(_first_ms(notebook, _LAYER, body))
            held.append(_held_while_building(team))
            for digest in _digests(team):
                team.cluster.cli("environments", "remove", digest)
            again.append(_first_ms(notebook, _LAYER, body))
    if not all(killed):
        raise CannotMeasureError(f"no fork server was found to be killed in {killed.count(0)} of {count} rounds")
    cold = report.add("own_cold", own)
    layers = {name: report.add(name, found) for name, found in (("layer_cold", built), ("layer_cold_cached", again))}
    report.add("held_while_building", held, unit="s")
    report.notes.append(f"own_cold: fork servers were killed before it, {min(killed)} to {max(killed)} processes")
    report.notes += [f"{name}: {found - cold:+.0f} ms beside own_cold" for name, found in layers.items()]


def _digests(team: _Team) -> list[str]:
    return [found.parent.name for found in team.environments.glob("*/environment.json")]


def _held_while_building(team: _Team) -> float:
    """Seconds for which the newest run held its GPU before its environment was there."""
    (manifest,) = team.cluster.manifests(1)
    there_s = max(found.stat().st_mtime for found in team.environments.glob("*/environment.json"))
    return max(0.0, there_s - float(manifest["granted_at"]))


def _add_ray(report: Report, team: _Team, count: int) -> None:
    """Ray's own environments on the same cluster, with the same wheels."""
    os.environ["JGR_BENCH_INDEX"] = team.index.url()
    for number in range(count):
        for name in _FIVE:
            make_wheel(team.wheels, name, f"1000.{number}")
    try:
        report.add("ray_runtime_env", team.cluster.compete(["ray_uv"], count)["ray_uv"])
    except RuntimeError as error:
        raise CannotMeasureError(f"Ray's own runtime_env: {error}") from error


def _add_comparing(report: Report, count: int) -> None:
    """Asking what is installed: 400 distributions, the first time in a process and once known."""
    first, known = [], []
    with tempfile.TemporaryDirectory(prefix="jgr-bench-") as name:
        site, wheels = Path(name, "site-packages"), Path(name, "wheels")
        for number in range(400):
            install(make_wheel(wheels, f"dist-{number}", requires=["numpy>=1", "pandas; extra == 'all'"]), site)
        for _ in range(count):
            reader = InstalledReader([str(site)])
            first.append(_ms(reader))
            known.append(_ms(reader))
    report.add("compare_first", first)
    report.add("compare", known)


def _ms(reader: InstalledReader) -> float:
    began = time.perf_counter()
    reader.read()
    return (time.perf_counter() - began) * 1000
