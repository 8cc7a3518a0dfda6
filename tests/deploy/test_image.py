"""The image of head and nodes: its steps run in a new environment, and what Ray and the chart call is there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from doc_blocks import block
from fresh_clone import BUNDLE, REPOSITORY, copy_repository, make_environment

DOCKERFILE = REPOSITORY / "deploy" / "docker" / "Dockerfile"
_INSTRUCTIONS = [
    line.split(" ", 1) for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")
]


def _run(command: str, folder: Path, environment: Path, **settings: str) -> str:
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env={"PATH": f"{environment}/bin:/usr/bin:/bin", "HOME": str(folder), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_steps_of_the_image_run(tmp_path: Path) -> None:
    if not BUNDLE.exists():
        pytest.skip("the sidebar is not built: run make bundle")
    clone, environment = tmp_path / "clone", tmp_path / "env"
    copy_repository(clone)
    make_environment(environment)
    bundle, wheel, build = block("kubernetes.md", "## The image").commands()
    assert bundle == "make bundle"
    _run(wheel.replace(".venv/bin/pip", "python -m pip"), clone, environment)
    words = shlex.split(build)
    assert words[:2] == ["docker", "build"]
    assert (REPOSITORY / words[words.index("-f") + 1]) == DOCKERFILE
    arguments = dict(given.split("=", 1) for name, given in _INSTRUCTIONS if name == "ARG")
    settings = {name: value.strip('"') for name, value in arguments.items()}
    for name, given in _INSTRUCTIONS:
        if name == "RUN" and "pip install" in given:
            step = re.sub(r"^--mount=\S+ ", "", given).replace("/tmp/dist", str(clone / "dist"))
            _run(step.replace("pip install", "python -m pip install --quiet"), tmp_path, environment, **settings)
    assert "start" in _run("jupyter-gpu --help", tmp_path, environment)
    # Ray lies in the tests' own environment, whose commands are not those of the new one
    assert "--cluster-name" in _run("python -m ray.scripts.scripts kuberay-autoscaler --help", tmp_path, environment)
    _run("python3 -c 'import torch, ray, jupyter_gpu_release.gateway.actor'", tmp_path, environment)


def test_its_last_user_is_the_chart_s_and_not_root() -> None:
    values = (REPOSITORY / "deploy" / "helm" / "jupyter-gpu-release" / "values.yaml").read_text()
    uid, gid = re.findall(r"^  [ug]id: (\d+)$", values, re.MULTILINE)
    assert [given for name, given in _INSTRUCTIONS if name == "USER"][-1] == f"{uid}:{gid}"
    assert not [given for name, given in _INSTRUCTIONS if name in ("ADD", "COPY")]


def test_its_ray_is_the_package_s_and_the_chart_s() -> None:
    import ray

    wanted = re.search(r'"ray(>=\S+)"', (REPOSITORY / "pyproject.toml").read_text())
    assert wanted
    assert f"ray[default]{wanted[1]}" in DOCKERFILE.read_text()
    values = (REPOSITORY / "deploy" / "helm" / "jupyter-gpu-release" / "values.yaml").read_text()
    assert f'rayVersion: "{ray.__version__}"' in values
