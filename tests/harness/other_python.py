"""A kernel's small environment in another Python, and the wheels that it was installed from."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

from uv import find_uv_bin

from jupyter_gpu_release.environments.installed import InstalledReader
from jupyter_gpu_release.environments.owned import required_by_us
from jupyter_gpu_release.environments.requirements import Requirements
from jupyter_gpu_release.protocol.environments import OURS

_ROOT = Path(__file__).parents[2]
#: of `make test-python`, which `make test-all` sees to
OTHER_PYTHON = next(_ROOT.glob(".venv-3.*/bin/python"), Path("make test-python"))


def make_small_environment(folder: Path, wheels: Path) -> Path:
    """A virtual environment with this package and what it requires, and no more; returns its interpreter."""
    reader = InstalledReader([str(next(OTHER_PYTHON.parents[1].glob("lib/python*/site-packages")))])
    installed = reader.read()
    here = {each.name: each for each in installed.distributions}
    markers = {**installed.markers, **_markers()}
    names = (required_by_us(here, Requirements(markers)) & here.keys()) - {OURS}
    folders = {name: reader.metadata_folder(name) for name in names}
    for metadata in folders.values():
        assert metadata is not None
        repack(metadata, wheels)
    _uv("venv", "--quiet", "--python", str(OTHER_PYTHON), str(folder))
    python = folder / "bin" / "python"
    pins = [f"{name}=={here[name].version}" for name in sorted(names)]
    offline = ["--no-index", "--offline", "--no-deps", "--find-links", str(wheels), "--python", str(python)]
    _uv("pip", "install", "--quiet", *offline, *pins)
    _install_ours(reader.metadata_folder(OURS), next(folder.glob("lib/python*/site-packages")))
    return python


def _markers() -> dict[str, str]:
    """That the reader of this Python does not tell of the other."""
    code = "import json, platform, sys; print(json.dumps(['%d.%d' % sys.version_info[:2], platform.python_version()]))"
    said = subprocess.run([OTHER_PYTHON, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout
    minor, full = json.loads(said)
    return {"python_version": minor, "python_full_version": full}


def repack(metadata: Path, wheels: Path) -> Path:
    """The wheel that an installed distribution came from, but for its hashes."""
    tags = [line.split(": ")[1] for line in (metadata / "WHEEL").read_text().splitlines() if line.startswith("Tag: ")]
    path = wheels / f"{metadata.name.removesuffix('.dist-info')}-{tags[-1]}.whl"
    listed = [line.split(",")[0].strip('"') for line in (metadata / "RECORD").read_text().splitlines()]
    kept = [name for name in listed if not name.startswith("..") and not name.endswith((".pyc", "/RECORD"))]
    with zipfile.ZipFile(path, "w") as archive:
        for name in kept:
            archive.write(metadata.parent / name, name)
        lines = "".join(f"{name},,\n" for name in [*kept, f"{metadata.name}/RECORD"])
        archive.writestr(f"{metadata.name}/RECORD", lines)
    return path


def _install_ours(metadata: Path | None, packages: Path) -> None:
    """In place, as `make test-python` has it."""
    assert metadata is not None
    (packages / metadata.name).mkdir()
    for name in ("METADATA", "WHEEL", "RECORD", "direct_url.json"):
        (packages / metadata.name / name).write_bytes((metadata / name).read_bytes())
    (packages / "ours.pth").write_text(f"{_ROOT}\n")


def _uv(*words: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PYTHON"))}
    subprocess.run([find_uv_bin(), *words], check=True, timeout=120, env={**environ, "UV_NO_CONFIG": "1"})


def make_kernel(share: Path, name: str, python: Path) -> None:
    """A kernel of this interpreter, for who has ``share`` on his ``JUPYTER_PATH``."""
    spec = share / "kernels" / name / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": name, "language": "python"}))
