"""A notebook's packages in its GPU cells: built by the real uv on a node, before a GPU is held."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel_bed import Notebook
from other_python import OTHER_PYTHON, make_kernel, make_small_environment
from wheel_bed import install, make_wheel

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded

pytestmark = pytest.mark.thorough


class Team:
    """A cluster of its own, wheels for its nodes, and packages that notebooks have beside the cluster's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels, self.other, self.site = folder / "wheels", folder / "other", folder / "mine" / "site-packages"
        self.environments, self.named = folder / "environments", folder / "environments.yaml"
        for each in (self.wheels, self.other, self.site):
            each.mkdir(parents=True)

    def have(self, name: str, version: str = "1.0", *, offered: bool = True, **more: Any) -> None:
        """Install a package in the notebook's Python; ``offered``: nodes can get it."""
        install(make_wheel(self.wheels if offered else self.other, name, version, **more), self.site)

    def lock(self, packages: dict[str, tuple[str, str]]) -> None:
        """Offer an environment of a lock file: name → version and hash."""
        text = "lock-version = '1.0'\n"
        for name, (version, digest) in packages.items():
            file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
            wheels = f"wheels = [{{name = '{file}', hashes = {{sha256 = '{digest}'}}}}]"
            text += f"[[packages]]\nname = '{name}'\nversion = '{version}'\n{wheels}\n"
        self.named.with_name("pylock.toml").write_text(text)
        self.named.write_text("schema_version: 1\nenvironments: [{name: locked, requirements: pylock.toml}]\n")

    @property
    def built(self) -> list[str]:
        return sorted(each.parent.name for each in self.environments.glob("*/environment.json"))

    @property
    def left(self) -> list[str]:
        """Names of what is half done."""
        return sorted(each.name for each in self.environments.glob(".*"))


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    made, home = Team(folder), HomePaths(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPU_HOME", str(home.root))
        patch.setenv("JUPYTER_GPU_PRELOAD", "numpy")
        patch.setenv("JUPYTER_GPU_ENVIRONMENTS", str(made.environments))
        patch.setenv("JUPYTER_GPU_ENVIRONMENT_INDEX", "none")
        patch.setenv("JUPYTER_GPU_ENVIRONMENT_WHEELS", str(made.wheels))
        patch.setenv("JUPYTER_GPU_NAMED_ENVIRONMENTS", str(made.named))
        start_embedded(home=home, asked=StartOptions(simulated=1), progress=print)
        patch.setenv("PYTHONPATH", str(made.site))
        yield made
        stop_embedded(home)


@pytest.fixture
def notebook(team: Team, tmp_path: Path) -> Iterator[Notebook]:
    made = Notebook(tmp_path)
    yield made
    made.close()


def test_cells_find_what_the_notebook_has_and_the_cluster_lacks(team: Team, notebook: Notebook) -> None:
    notebook.ok("%%gpu_train\nimport sys\nplain = sys.executable, sys.prefix")
    assert team.built == []  # where nothing differs, nothing is built
    team.have("offered-tools", files={"offered_tools/__init__.py": "x = 14\n"}, scripts={"offered": "offered_tools:x"})
    team.have("mine-alone", "0.3", offered=False, files={"mine_alone.py": "y = 15\n"})
    cell = """%%gpu_train
import shutil, subprocess, sys
import mine_alone, numpy, offered_tools
z = offered_tools.x + mine_alone.y
inside = sys.prefix, shutil.which("offered")
spawned = subprocess.run([sys.executable, "-c", "import mine_alone, numpy; print(mine_alone.y)"], capture_output=True)
spawned = spawned.stdout.decode()
"""
    first = notebook.ok(cell)
    assert (notebook.value("z"), notebook.value("spawned")) == (29, "15\n")
    said = "packages that the cluster lacks: mine-alone 0.3, offered-tools 1.0 · ready in "
    assert said in first.receipt
    (digest,) = team.built
    assert first.receipt_facts["environment"] == digest
    folder = str(team.environments / digest)
    assert notebook.value("inside") == [folder, f"{folder}/bin/offered"]
    assert said not in notebook.ok(cell).receipt  # it is there
    assert team.built == [digest]
    assert team.left == []


def test_the_clusters_own_is_had_by_name(team: Team, notebook: Notebook) -> None:
    team.have("offered-tools", files={"offered_tools/__init__.py": "x = 14\n"})
    notebook.ok("%%gpu_train --environment cluster\nimport sys\nprefix = sys.prefix")
    assert not notebook.value("prefix").startswith(str(team.environments))


def test_packages_are_added_for_one_cell(team: Team, notebook: Notebook) -> None:
    make_wheel(team.wheels, "below", "2.0", {"below.py": "v = 2\n"})
    make_wheel(team.wheels, "added", "1.1", {"added.py": "import below\nv = below.v\n"}, requires=["below>=2"])
    notebook.ok("%%gpu_train --pip 'added>=1'\nimport added\nv = added.v")
    assert notebook.value("v") == 2
    missing = notebook.run("%%gpu_train --pip nowhere-at-all\nimport added")
    assert missing.status == "error"
    assert "nowhere-at-all cannot be had beside the cluster's own packages" in missing.traceback
    owned = notebook.run("%%gpu_train --pip torch==0.1\nimport torch")
    assert "torch is the cluster's to install" in owned.traceback


def test_nothing_of_a_url_with_a_password_is_kept(team: Team, notebook: Notebook) -> None:
    password, said = "hunter2-of-ann", "--pip a URL or a path: not a package's name and versions"
    urls = (
        f"https://ann:{password}@example.org/x.whl",
        f"git+https://{password}@example.org/x.git",
        f"x@https://ann:{password}@example.org/x.whl",
    )
    for line in [f"%%gpu_train --pip {url}\n1" for url in urls] + [f"%gpu_config pip={url}" for url in urls]:
        refused = notebook.run(line)
        assert said in refused.traceback
        assert password not in refused.traceback
    assert password not in "".join(notebook.ok("%gpu_config").displays())
    notebook.ok("%%gpu_train\n1")
    lists = (["runs", "--json"], ["environments", "--json"], ["status", "--json"])
    assert all(password not in _jupyter_gpu(*words) for words in lists)
    connection = HomePaths.from_environment().read_connection()
    assert connection is not None
    holding = [path for folder in (team.folder, Path(connection.runtime)) for path in _files_with(folder, password)]
    assert holding == []


def _files_with(folder: Path, text: str) -> list[Path]:
    """Ledger, logs, manifests, events: whatever the cluster has written."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert len(found) > 20
    return [path for path in found if text.encode() in path.read_bytes()]


def test_a_named_one_is_built_before_it_is_needed(team: Team, notebook: Notebook) -> None:
    make_wheel(team.wheels, "named-tools", "1.0", {"named_tools.py": "v = 3\n"})
    named = (
        "environments: [{name: vision, requirements: [named-tools==1.0]}, {name: hers, requirements: [], users: [eve]}]"
    )
    team.named.write_text(f"schema_version: 1\n{named}\n")
    before = team.built
    _jupyter_gpu("environments", "build", "vision")
    (digest,) = set(team.built) - set(before)
    assert f"{digest[:12]}  named-tools 1.0" in _jupyter_gpu("environments")
    assert "named-tools  1.0" in _jupyter_gpu("environments", "show", digest[:8])
    ran = notebook.ok(
        "%%gpu_train --environment vision\nimport sys, named_tools\nv, prefix = named_tools.v, sys.prefix"
    )
    assert (notebook.value("v"), notebook.value("prefix")) == (3, str(team.environments / digest))
    assert "packages that the cluster lacks" not in ran.receipt
    _jupyter_gpu("environments", "remove", digest[:8])  # its fork server stands by, and no cell uses it
    assert team.built == before
    assert "you may use: auto, cluster, vision" in notebook.run("%%gpu_train --environment hers\n1").traceback


def test_a_lock_file_is_what_cells_get_to_the_hash(team: Team, notebook: Notebook) -> None:
    wheel = make_wheel(team.wheels, "locked-tools", "1.0", {"locked_tools.py": "v = 5\n"})
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    team.lock({"locked-tools": ("1.0", digest), "msgspec": ("0.1", "0" * 64)})
    said = _jupyter_gpu("environments", "build", "locked")
    assert "msgspec 0.1: it is the cluster's to install, and cells get the cluster's" in " ".join(said.split())
    cell = "%%gpu_train --environment locked\nimport locked_tools, msgspec\nv = locked_tools.v"
    assert "msgspec 0.1: it is the cluster's" in notebook.ok(cell).text("stderr")
    assert notebook.value("v") == 5
    team.lock({"locked-tools": ("1.0", "0" * 64)})
    notebook.manager.restart_kernel(now=True)  # the file is read once in five minutes
    notebook.client.wait_for_ready(timeout=60)
    notebook.ok("%load_ext jupyter_gpu_release")
    changed = notebook.run(cell).traceback
    assert "a wheel is not the one that was announced: its hash differs" in changed
    assert "no GPU was taken" in changed
    assert team.left == []


def test_a_kernel_with_another_python_sends_and_gets_data(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_kernel(tmp_path / "share", "other-python", OTHER_PYTHON)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    notebook = Notebook(tmp_path, kernel="other-python")
    try:
        first = notebook.ok("%%gpu_train\nimport sys\nthere = sys.version_info[:2]")
        assert tuple(notebook.value("there")) == sys.version_info[:2]
        here = "{}.{}".format(*notebook.value("__import__('sys').version_info[:2]"))
        there = "{}.{}".format(*sys.version_info[:2])
        said = f"the cluster runs Python {there}, this kernel {here}: data travels between them"
        assert first.text("stderr").count(said) == 1
        assert f"use a kernel with Python {there}" in first.text("stderr")
        notebook.ok("x, y = [1], [3]; x.append(y)\ndef mine(a): return a + 1")
        later = notebook.ok("%%gpu_train\ny.append(x[0])\nclass C:\n    def m(self): return 7\nc = C()")
        assert said not in later.text("stderr")
        assert notebook.value("x") == [1, [3, 1]]
        sent = notebook.run("%%gpu_train\nmine(2)").traceback
        assert f"mine was made by Python {here}, and this process has {there}" in sent
        back = notebook.run("c.m()").traceback
        assert f"C.m was made by Python {there}, and this process has {here}" in back
        notebook.ok("%%gpu_train\nseven = c.m()")  # home again
        assert notebook.value("seven") == 7
    finally:
        notebook.close()


def test_a_kernel_with_a_python_that_the_operator_offers_has_all_of_its_packages(
    team: Team, notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = make_small_environment(tmp_path / "small", team.wheels)
    make_kernel(tmp_path / "share", "small", python)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    folder = f"{{name: whole, path: {tmp_path / 'small'}, users: [nobody]}}, {{name: mine, path: {tmp_path / 'small'}}}"
    team.named.write_text(f"schema_version: 1\npythons: [{OTHER_PYTHON}]\nenvironments: [{folder}]\n")
    small = Notebook(tmp_path, kernel="small")
    try:
        here = small.value("__import__('sys').version_info[:2]")
        small.ok("def mine(a): return a + 1")
        cell = """%%gpu_train
import importlib.util, psutil, shutil, subprocess, sys, einops_like
there, got, torch = sys.version_info[:2], mine(1) + einops_like.x, importlib.util.find_spec("torch")
class C:
    def m(self): return 7
c = C()
spawned = subprocess.run([sys.executable, "-c", "import psutil, sys; print(sys.prefix)"], capture_output=True).stdout
"""
        team.have("einops-like", files={"einops_like.py": "x = 40\n"})
        first = small.ok(cell)
        assert small.value("there") == here
        assert (small.value("got"), small.value("torch"), small.value("c.m()")) == (42, None, 7)
        assert first.text("stderr") == ""
        assert "environment for Python {}.{}".format(*here) in first.receipt
        assert small.value("spawned.decode()").startswith(str(team.environments))
        refused = small.run("%%gpu_train --environment whole\n1").traceback
        assert "there is none by this name for you" in refused
    finally:
        small.close()
    cell = "%%gpu_train --environment mine\nimport sys, psutil\nthere, where = sys.version_info[:2], psutil.__file__"
    said = notebook.ok(cell).text("stderr")
    assert "the cluster runs Python {}.{}".format(*here) in said
    assert notebook.value("list(there)") == list(here)
    assert notebook.value("where").startswith(str(tmp_path / "small"))


def test_what_a_cell_gets_is_shown_and_what_it_installs_is_its_own(team: Team, notebook: Notebook) -> None:
    team.have("shown-tools", "0.2", files={"shown_tools.py": ""})
    (table,) = notebook.ok("%gpu_env").displays()
    assert "0.2: the cluster lacks it" in table
    make_wheel(team.wheels, "late-tools", "2.0", {"late_tools.py": "v = 4\n"})
    shown = notebook.ok("%%gpu_train\n%pip install --quiet late-tools\nimport late_tools\nv = late_tools.v")
    assert notebook.value("v") == 4
    assert "installed for this run, and gone with it: late_tools 2.0" in shown.receipt
    assert (
        "ModuleNotFoundError"
        in notebook.run("%%gpu_train --fresh\nimport importlib\nimportlib.import_module('late_tools')").traceback
    )


def _jupyter_gpu(*words: str) -> str:
    command = [sys.executable, "-m", "jupyter_gpu_release.cli", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_a_broken_wheel_fails_the_run_before_it_holds_a_gpu(team: Team, notebook: Notebook) -> None:
    team.have("broken-files", files={"broken_files.py": "x = 1\n"})
    (wheel,) = team.wheels.glob("broken_files-*.whl")
    content = wheel.read_bytes()
    wheel.write_bytes(content.replace(b"x = 1\n", b"x = 2\n"))  # its checksum does not hold
    try:
        failed = notebook.run("%%gpu_train\nimport broken_files")
    finally:
        wheel.unlink()
    assert failed.status == "error"
    assert "broken-files" in failed.traceback
    assert "the installer says" in failed.traceback
    assert team.left == []
