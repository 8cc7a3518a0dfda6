"""A gateway that Ray is starting again is waited for, by whoever looks for it just then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from ray_bed import RayBed

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.protocol.config import Deployed

#: Its second life begins once it was asked twice. Until then Ray refuses its calls.
_COMMAND = """
import os, pathlib, signal, sys, time
import ray
from jupyter_gpu_release.gateway import readiness

folder, answer = pathlib.Path(sys.argv[2]), sys.argv[3].encode()

class Gateway:
    def __init__(self):
        first = not (folder / "begun").exists()
        (folder / "begun").touch()
        while not (first or (folder / "asked-twice").exists()):
            time.sleep(0.01)

    def pid(self):
        return os.getpid()

    def describe(self):
        return answer

class Asked:
    refused = 0

    @property
    def describe(self):
        return self

    def remote(self):
        asked = actor.describe.remote()
        try:
            ray.get(asked)
        except ray.exceptions.ActorUnavailableError:
            self.refused += 1
            if self.refused == 2:
                (folder / "asked-twice").touch()
        return asked

ray.init(address=sys.argv[1], namespace="readiness", log_to_driver=False)
actor = ray.remote(num_cpus=0, max_restarts=-1)(Gateway).remote()
os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)
while True:
    try:
        ray.get(actor.pid.remote())
    except ray.exceptions.ActorUnavailableError as error:
        if "restarting" in str(error):
            break
gateway = Asked()
(folder / "found").write_text(f"{readiness._wait_for(gateway).url} {gateway.refused}")
"""


@pytest.mark.slow("a gateway starts twice")
def test_a_gateway_that_is_being_restarted_is_waited_for(ray_bed: RayBed, tmp_path: Path) -> None:
    answer = msgspec.json.encode(Deployed(True, url="http://here", version=__version__)).decode()
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, ray_bed.address, str(tmp_path), answer],
        env=ray_bed.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    url, refused = (tmp_path / "found").read_text().split()
    assert url == "http://here"
    assert int(refused) >= 2
