"""`pip install` is enough: the package brings the file that enables the extension, and a plain server finds it."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.application import ENV_CONFIG_DIRS
from IPython.core.shellapp import InteractiveShellApp
from server_bed import ServerBed
from server_kernel_bed import ServerKernel

from jupyter_gpu_release.protocol.config import DEFAULT_HASH_SEED

REPOSITORY = Path(__file__).parents[2]
STARTUP = "jupyter-config/ipython-startup"
_LOOK = """
ip = get_ipython()
lazy = sorted({"msgspec", "httpx", "ray", "numpy"} & set(__import__("sys").modules))
answer = ["gpu_train" in ip.magics_manager.magics["cell"], [n for n in dir() if "gpu" in n.lower()], lazy]
"""


def _install(folder: Path) -> Path:
    """Put below ``folder`` what pip puts below ``sys.prefix``: the shared data of pyproject.toml (Jupyter's part)."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    for source, target in shared.items():
        if target.startswith("etc/jupyter"):
            shutil.copytree(REPOSITORY / source, folder / target)
    return folder / "etc" / "jupyter"


@pytest.mark.slow("two servers are started")
def test_what_is_installed_enables_the_extension_in_a_plain_server(tmp_path: Path) -> None:
    found = _install(tmp_path / "prefix")
    _put_startup(tmp_path / "server")
    config = {"ServerApp": {"jpserver_extensions": {}}, "GpuRelease": {"automatic": False}}
    bed = ServerBed(tmp_path / "server", config, {"JUPYTER_CONFIG_PATH": str(found)})
    kernel = ServerKernel(bed)
    try:
        assert "jupyter_gpu_release" not in (tmp_path / "server/config/jupyter_server_config.json").read_text()
        assert bed.get("status")["schema_version"] == 1
        assert kernel.run(_LOOK)[0] is False  # its operator said so
        seed = os.environ.get("PYTHONHASHSEED") or DEFAULT_HASH_SEED
        assert kernel.run("import os\nanswer = os.environ['PYTHONHASHSEED']") == seed
    finally:
        kernel.close()
        bed.stop()


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBed]:
    """Its kernels find our start-up file, as they do in ``sys.prefix/etc/ipython/startup``."""
    folder = tmp_path_factory.mktemp("automatic")
    _put_startup(folder)
    bed = ServerBed(folder)
    yield bed
    bed.stop()


def _put_startup(folder: Path) -> None:
    shutil.copytree(REPOSITORY / STARTUP, folder / "ipython" / "profile_default" / "startup")


def test_ipython_finds_the_startup_file_in_the_environment_that_pip_installs_into() -> None:
    shared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert shared["shared-data"][STARTUP] == "etc/ipython/startup"
    assert str(Path(sys.prefix) / "etc" / "ipython") in ENV_CONFIG_DIRS
    assert "ENV_CONFIG_DIRS" in inspect.getsource(InteractiveShellApp._run_startup_files)


def test_a_servers_kernel_has_the_magics_without_being_told(bed: ServerBed) -> None:
    kernel = ServerKernel(bed)
    assert kernel.run(_LOOK) == [True, [], []]
    shown: list[Any] = []
    reply = kernel.client.execute_interactive(
        "%load_ext jupyter_gpu_release\n%load_ext jupyter_gpu_release\n%unload_ext jupyter_gpu_release",
        output_hook=lambda message: shown.append(message["content"].get("text")),
        timeout=60,
    )
    assert reply["content"]["status"] == "ok"
    # only the second one was one too many
    assert [line for text in shown if text for line in text.splitlines() if "already" in line] == [
        "The jupyter_gpu_release extension is already loaded. To reload it, use:"
    ]
    assert kernel.run(_LOOK)[0] is False
    kernel.close()


@pytest.mark.parametrize(
    ("case", "content"),
    [
        ("off", "c.GpuRelease.automatic = False"),
        # the package was removed, the file stayed; IPython sorts start-up files by whole paths, so only its
        # configuration is surely before the file of the environment that runs the tests
        ("removed", "import sys; sys.modules['jupyter_gpu_release.kernel.startup'] = None"),
    ],
)
def test_it_can_be_switched_off_and_stands_in_nobodys_way(bed: ServerBed, case: str, content: str) -> None:
    profile = bed.folder / "ipython" / "profile_default"
    file = profile / "ipython_kernel_config.py"
    file.write_text(content)
    (profile / "startup" / "99-after.py").write_text("after = 1")
    kernel = ServerKernel(bed, path=f"{case}.ipynb")
    try:
        assert kernel.run(f"{_LOOK}\nanswer = [answer[0], after]") == [False, 1]
    finally:
        kernel.close()
        file.unlink()
    log = bed.log()
    assert "Traceback" not in log, log[log.index("Traceback") - 1000 :]


def test_every_setting_explains_itself() -> None:
    from jupyter_gpu_release.server_extension.app import GpuReleaseExtension

    for kind in GpuReleaseExtension.classes:
        if kind.__module__.startswith("jupyter_gpu_release"):
            for name, trait in kind.class_own_traits(config=True).items():
                assert len(trait.help) > 20, f"{kind.__name__}.{name} has no help text"
