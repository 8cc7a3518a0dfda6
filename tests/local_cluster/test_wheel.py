"""Sdist and wheel: what is in them, and a GPU cell in environments that have nothing else of this package."""

from __future__ import annotations

import contextlib
import json
import runpy
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import block, shell
from kernel_bed import Notebook
from soak import ONLY_IN_SOAK

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.client.home import HomePaths

pytestmark = pytest.mark.thorough

REPOSITORY = Path(__file__).parents[2]
BUNDLE = REPOSITORY / "jupyter_gpu_release" / "labextension" / "package.json"
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make dist` makes it, from the sidebar that `make bundle` has built: the sdist, and from that the wheel."""
    if not BUNDLE.exists():
        pytest.skip("the sidebar is not built: run make bundle")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, REPOSITORY], check=True, timeout=400)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """The wheel that was built."""
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel. It sees the libraries of ours, but not our editable installation."""
    folder = tmp_path_factory.mktemp("wheel") / "env"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    line = block("operate/install.md", "# How to install it").filled(
        {
            "python3 -m pip": shlex.join([*_PIP, "--python", str(python)]),
            f"dist/jupyter_gpu_release-{__version__}-py3-none-any.whl": str(wheel),
        }
    )
    done = shell(f"{line.rstrip()} --quiet --no-deps --no-index", folder)
    assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    # a path alone: the .pth files there, one of which is the editable installation's, are not read
    (packages / "libraries.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    return python


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and what pip installs with it, and nothing else."""
    folder = tmp_path_factory.mktemp("light") / "env"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run([*_PIP, "--python", python, "install", "--quiet", wheel], check=True, timeout=400)
    return python


def _contents(wheel: Path) -> Iterator[str]:
    """Paths in the wheel as they lie after the installation, below site-packages or the environment's root."""
    for name in zipfile.ZipFile(wheel).namelist():
        yield name.partition(".data/data/")[2] or name


def test_the_wheel_has_all_that_is_needed_and_nothing_else(wheel: Path) -> None:
    found = set(_contents(wheel))
    modules = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "jupyter_gpu_release").rglob("*.py")}
    assert {name for name in found if name.endswith(".py") and name.startswith("jupyter_gpu_release/")} == modules
    extension = "share/jupyter/labextensions/jupyter-gpu-release"
    assert {
        "etc/ipython/startup/50-jupyter-gpu-release.py",
        "etc/jupyter/jupyter_server_config.d/jupyter_gpu_release.json",
        "jupyter_gpu_release/py.typed",
        "jupyter_gpu_release/server_extension/api/openapi.json",
        f"{extension}/install.json",
        f"{extension}/package.json",
        f"{extension}/schemas/jupyter-gpu-release/plugin.json",
    } <= found
    entry = json.loads(BUNDLE.read_text())["jupyterlab"]["_build"]["load"]
    assert f"{extension}/{entry}" in found
    assert {name.split("/")[0].partition("-")[0] for name in found} == {"etc", "share", "jupyter_gpu_release"}
    assert not [name for name in found if {"tests", "test", "node_modules"} & {*Path(name).parts}]
    assert not [name for name in found if name.endswith((".map", ".pyc")) or Path(name).name.startswith("test_")]


def test_an_index_accepts_the_wheel_and_no_link_of_its_page_leads_nowhere(wheel: Path) -> None:
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel], check=True, timeout=120)
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    fields, _, page = archive.read(name).decode().partition("\n\n")
    assert "# jupyter_gpu_release" in page
    assert "Classifier: Framework :: Jupyter :: JupyterLab :: Extensions :: Prebuilt" in fields
    assert f"Version: {__version__}\n" in f"{fields}\n"
    assert "License-File: NOTICE" in fields
    assert "](" not in page
    assert "docs/images" not in page
    describe = runpy.run_path(str(REPOSITORY / "hatch_build.py"))["long_description"]
    shown = describe((REPOSITORY / "README.md").read_text(), "https://code.example.org/gpu")
    assert "(https://code.example.org/gpu/blob/HEAD/docs/tutorial.md)" in shown
    assert 'src="https://code.example.org/gpu/raw/HEAD/docs/images/' in shown


def test_the_documentation_comes_with_the_wheel(python: Path, tmp_path: Path) -> None:
    """Each page that a clone shows is there; pages of links to others are not."""

    def docs(command: list[str | Path], *words: str) -> str:
        done = subprocess.run([*command, "docs", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    shipped, cloned = [python.with_name("jupyter-gpu")], [sys.executable, "-m", "jupyter_gpu_release.cli"]
    assert docs(shipped) == docs(cloned)
    assert "writing-a-cell" in docs(shipped)
    assert docs(shipped, "gangs") == docs(shipped, "use/gangs") == (REPOSITORY / "docs/use/gangs.md").read_text() + "\n"
    assert docs(shipped, "tutorial") == (REPOSITORY / "docs" / "tutorial.md").read_text() + "\n"
    assert "did you mean `jupyter gpu docs tutorial`?" in docs(shipped, "tutoral")


@contextlib.contextmanager
def _notebook(python: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """One whose kernel is of that environment, and loads nothing by itself."""
    spec = folder / "share" / "kernels" / "from-wheel" / "kernel.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "from the wheel", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "share"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = Notebook(folder, load=False, kernel="from-wheel")
    yield notebook
    notebook.close()


def test_cells_run_from_the_wheel_without_load_ext(
    python: Path, light: Path, own_home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a kernel that could start a cluster, and in one that could not: what is missing is said, and it uses one."""
    monkeypatch.setenv("JUPYTER_GPU_MAX_ENVIRONMENTS", "0")  # the kernel's packages may be newer than the cluster's
    with _notebook(light, tmp_path, monkeypatch) as notebook:
        said = notebook.run("%%gpu_train\nx = 1").traceback
        assert "a cluster on this machine needs ray, sqlalchemy, starlette, uv, uvicorn, not installed in " in said
        assert f"{light} -m pip install 'jupyter-gpu-release[cluster]'" in said
        start = [python.with_name("jupyter-gpu"), "start", "--simulated-gpus", "1"]
        subprocess.run(start, cwd=tmp_path, check=True, timeout=300)
        notebook.ok("%%gpu_train\nimport sys, os\nx, where = [1, 2], sys.prefix")
        notebook.ok("import sys; x.append(3); here = sys.prefix")
        assert notebook.value("x") == [1, 2, 3]
        assert notebook.value("here") == str(light.parents[1])
        assert notebook.value("where") == str(python.parents[1])
    with _notebook(python, tmp_path, monkeypatch) as notebook:
        notebook.ok("%%gpu_train\nimport os, jupyter_gpu_release\nthere = jupyter_gpu_release.__file__, os.getpid()")
        notebook.ok("import jupyter_gpu_release, os; here = jupyter_gpu_release.__file__, os.getpid()")
        there, here = notebook.value("there"), notebook.value("here")
    assert there[0] == here[0]
    assert Path(here[0]).is_relative_to(python.parents[1])
    assert there[1] != here[1]
    assert own_home.connection.exists()
    subprocess.run([light.with_name("jupyter-gpu"), "stop", "--yes"], cwd=tmp_path, check=True, timeout=120)
    assert not own_home.connection.exists()


@ONLY_IN_SOAK
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_a_cell_runs_where_nothing_was_installed_before(
    kind: str, dist: Path, own_home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the unpacked sdist by the line of the README. Ray and all else is installed, too: minutes."""
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    if kind == "sdist":
        (packed,) = dist.glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(tmp_path, filter="data")
        where, line = tmp_path / packed.name.removesuffix(".tar.gz"), block("../README.md", "## Try it", "pip").text
    else:
        (packed,) = dist.glob("*.whl")
        where, line = tmp_path, f"pip install '{packed}[cluster]'"
    installed = shell(line, where, 900, PATH=f"{environment / 'bin'}:/usr/bin:/bin")
    assert installed.returncode == 0, installed.stderr
    command = environment / "bin" / "jupyter-gpu"
    subprocess.run([command, "start", "--simulated-gpus", "1"], cwd=tmp_path, check=True, timeout=300)
    with _notebook(environment / "bin" / "python", tmp_path, monkeypatch) as notebook:
        notebook.ok("x = [1]")
        notebook.ok("%%gpu_train\nimport sys\nx.append(sys.prefix)")
        assert notebook.value("x") == [1, str(environment)]
    subprocess.run([command, "stop", "--yes"], cwd=tmp_path, check=True, timeout=120)
    assert not own_home.connection.exists()


_SIZES = """
import importlib.metadata as m, json, re
from pathlib import Path
from packaging.requirements import Requirement

def with_all(name, found):
    name = re.sub("[-_.]+", "-", name).lower()
    if name not in found:
        found[name] = m.distribution(name)
        for need in map(Requirement, found[name].requires or ()):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                with_all(need.name, found)
    return found

jupyter = {}
for name in ("jupyter-server", "ipykernel"):
    with_all(name, jupyter)
ours = with_all("jupyter-gpu-release", {})
files = {n: [Path(f.locate()) for f in d.files] for n, d in ours.items() if n not in jupyter}
sizes = {n: sum(f.stat().st_size for f in each if f.exists() and f.suffix != ".pyc") for n, each in files.items()}
print(json.dumps(sizes))
"""


def test_for_a_notebook_alone_little_is_installed(light: Path, tmp_path: Path) -> None:
    sizes = json.loads(subprocess.check_output([light, "-c", _SIZES], cwd=tmp_path, timeout=120))
    assert not {"ray", "sqlalchemy", "starlette", "uv", "uvicorn"} & sizes.keys()
    assert {"jupyter-gpu-release", "msgspec", "httpx"} <= sizes.keys()
    assert sum(sizes.values()) <= 25_000_000, sizes
