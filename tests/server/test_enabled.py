"""`pip install` is enough: the wheel carries the file that enables the extension, and a plain server finds it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from server_bed import ServerBed

REPOSITORY = Path(__file__).parents[2]
_NAME = "data/etc/jupyter/jupyter_server_config.d/jupyter_gpu_release.json"


def _build(folder: Path, *how: str) -> Path:
    """The file that a wheel installs, put below ``folder`` as pip does."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist"), *how]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(_NAME)]
        target = folder / "etc" / name.split("/data/etc/")[1]
        target.parent.mkdir(parents=True)
        target.write_bytes(archive.read(name))
    return folder / "etc" / "jupyter"


def test_the_wheel_enables_the_extension_in_a_plain_server(tmp_path: Path) -> None:
    found = _build(tmp_path / "wheel")
    bed = ServerBed(
        tmp_path / "server", {"ServerApp": {"jpserver_extensions": {}}}, {"JUPYTER_CONFIG_PATH": str(found)}
    )
    try:
        assert "jupyter_gpu_release" not in (tmp_path / "server/config/jupyter_server_config.json").read_text()
        assert bed.get("status")["schema_version"] == 1
    finally:
        bed.stop()


def test_an_editable_install_enables_it_too() -> None:
    config = json.loads((REPOSITORY / "jupyter-config/server-config/jupyter_gpu_release.json").read_text())
    assert config["ServerApp"]["jpserver_extensions"] == {"jupyter_gpu_release": True}


def test_every_setting_explains_itself() -> None:
    from jupyter_gpu_release.server.app import GpuReleaseExtension

    for kind in GpuReleaseExtension.classes:
        if kind.__module__.startswith("jupyter_gpu_release"):
            for name, trait in kind.class_own_traits(config=True).items():
                assert len(trait.help) > 20, f"{kind.__name__}.{name} has no help text"
