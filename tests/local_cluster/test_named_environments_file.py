"""A mistake in the file of named environments is said before a cluster starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_start_names_the_line_and_starts_nothing(tmp_path: Path) -> None:
    file, home = tmp_path / "environments.yaml", tmp_path / "home"
    file.write_text("schema_version: 1\nenvironments:\n  - name: auto\n    requirements: [einops]\n")
    own = {"JUPYTER_GPU_HOME": str(home), "JUPYTER_GPU_NAMED_ENVIRONMENTS": str(file)}
    started = subprocess.run(
        [sys.executable, "-m", "jupyter_gpu_release.cli", "start", "--simulated-gpus", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **own},
    )
    said = " ".join(started.stderr.split())
    assert f"{file}, line 3: environments[0].name: the name auto is a word of `--environment` itself" in said
    assert "take another name" in said
    assert started.returncode != 0
    assert not (home / "connection.json").exists()
