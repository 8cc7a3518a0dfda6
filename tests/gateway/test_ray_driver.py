"""Commands that join Ray for a moment: their answer is all that is on their standard output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from jupyter_gpu_release.protocol.config import Deployed, GatewayConfig

#: Ray's core prints by itself, when the driver has said its last word, too
_COMMAND = """
import atexit, os, subprocess, sys
from jupyter_gpu_release.gateway.ray_driver import Deployed, run_as_command

def work(config):
    os.write(1, b"(raylet) from C\\n")
    print("from Python")
    subprocess.run(["echo", "from a child"])
    return Deployed(True, url=config.store)

atexit.register(os.write, 1, b"W0000 at the end\\n")
sys.exit(run_as_command(work, "work"))
"""


def test_what_others_print_is_on_standard_error(tmp_path: Path) -> None:
    config = tmp_path / "gateway.json"
    config.write_bytes(
        msgspec.json.encode(GatewayConfig(home="", store="/shared", token_file="", runtime="", ray_address=""))
    )
    done = subprocess.run([sys.executable, "-c", _COMMAND, str(config)], capture_output=True, text=True, check=True)
    assert msgspec.json.decode(done.stdout, type=Deployed) == Deployed(True, url="/shared")
    said = ["(raylet) from C", "W0000 at the end", "from Python", "from a child"]
    assert sorted(done.stderr.splitlines()) == said
