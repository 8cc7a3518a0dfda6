"""`pip install` is enough: the package brings the file that enables the extension, and a plain server finds it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from server_bed import ServerBed

REPOSITORY = Path(__file__).parents[2]


def _install(folder: Path) -> Path:
    """Put below ``folder`` what pip puts below ``sys.prefix``: the shared data of pyproject.toml (Jupyter's part)."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    for source, target in shared.items():
        if target.startswith("etc/"):
            shutil.copytree(REPOSITORY / source, folder / target)
    return folder / "etc" / "jupyter"


def test_what_is_installed_enables_the_extension_in_a_plain_server(tmp_path: Path) -> None:
    found = _install(tmp_path / "prefix")
    bed = ServerBed(
        tmp_path / "server", {"ServerApp": {"jpserver_extensions": {}}}, {"JUPYTER_CONFIG_PATH": str(found)}
    )
    try:
        assert "jupyter_gpu_release" not in (tmp_path / "server/config/jupyter_server_config.json").read_text()
        assert bed.get("status")["schema_version"] == 1
    finally:
        bed.stop()


def test_every_setting_explains_itself() -> None:
    from jupyter_gpu_release.server.app import GpuReleaseExtension

    for kind in GpuReleaseExtension.classes:
        if kind.__module__.startswith("jupyter_gpu_release"):
            for name, trait in kind.class_own_traits(config=True).items():
                assert len(trait.help) > 20, f"{kind.__name__}.{name} has no help text"
