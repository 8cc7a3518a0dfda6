"""Kernels that run on other machines: nothing here is taken for theirs, nobody acts on them, and the rest goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nvml_bed import FakeGpus
from server_bed import ServerBed
from server_kernel_bed import ServerKernel, audit

from ..conftest import FAST, StartServer

Until = Callable[[Callable[[], object], str], None]
#: they start a local process, and tell what provisioners for other machines do: a name, or the id over there
_PROVISIONERS = """
import os
from jupyter_client.provisioning import LocalProvisioner

class Telling(LocalProvisioner):
    async def launch_kernel(self, cmd, **kwargs):
        kwargs["env"].pop("JUPYTER_GPU_KERNEL")  # another machine's process is not this one
        info = await super().launch_kernel(cmd, **kwargs)
        self.pid = self.told()
        return info

class Naming(Telling):
    def told(self):
        return "pod-7"

class Remote(Telling):
    def told(self):
        return int(os.environ["STRANGER"])
"""
_ENTRY_POINTS = "[jupyter_client.kernel_provisioners]\nnaming = elsewhere:Naming\nremote = elsewhere:Remote\n"


@pytest.fixture(scope="module")
def stranger() -> Iterator[int]:
    """A process of somebody else on this machine, whose id a kernel has on another one."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


def _installed(site: Path) -> Path:
    """The provisioners as a package would install them, and a kernelspec for each."""
    (site / "elsewhere.py").write_text(_PROVISIONERS)
    package = site / "elsewhere-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(_ENTRY_POINTS)
    for name in ("naming", "remote"):
        folder = site / "kernels" / name
        folder.mkdir(parents=True)
        spec = {
            "argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": name,
            "language": "python",
            "metadata": {"kernel_provisioner": {"provisioner_name": name}},
        }
        (folder / "kernel.json").write_text(json.dumps(spec))
    return site


@pytest.fixture(scope="module")
def bed_and_gpus(
    start_shared: StartServer, stranger: int, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ServerBed, FakeGpus]:
    """A server that ends kernels which are idle for a second."""
    site = str(_installed(tmp_path_factory.mktemp("site")))
    paths = {"PYTHONPATH": site, "JUPYTER_PATH": site, "STRANGER": str(stranger)}
    short = {"cull_idle_timeout": 1, "warn_before": 0, "save_before_shutdown": False}
    return start_shared(None, paths, action="shutdown", device_files=["/"], **short)


@pytest.mark.slow("a server with two kernels")
def test_what_provisioners_for_other_machines_say_of_processes_is_not_believed(
    bed_and_gpus: tuple[ServerBed, FakeGpus], stranger: int, until: Until
) -> None:
    bed, gpus = bed_and_gpus
    remote = [bed.start_kernel(f"{name}.ipynb", name) for name in ("naming", "remote")]
    gpus.hold(stranger, 5000, 0)
    local = ServerKernel(bed, gpus)
    local.holds()
    until(lambda: not local.alive, "the end of the idle kernel of this machine")
    local.close()
    for kernel in remote:
        row = bed.kernel(kernel)
        assert row is not None, "the policy ended a kernel of another machine"
        assert (row["used_bytes"], row["gpus"], row["decision"]) == (0, [], "leave")
    assert bed.get("status")["gpus"][0]["unattributed_bytes"] >= 5000  # what just ended may still be shown
    assert {entry["subject"] for entry in audit(bed)} == {local.id}


@pytest.mark.slow("a second Jupyter server")
def test_kernels_of_a_gateway_are_shown_and_left_to_it(
    bed_and_gpus: tuple[ServerBed, FakeGpus], tmp_path: Path, until: Until
) -> None:
    """``c.GatewayClient.url``: Jupyter's kernel manager there has neither processes nor sockets."""
    over_there, gpus = bed_and_gpus
    client = {"GatewayClient": {"url": over_there.url, "auth_token": over_there.token}}
    bed = ServerBed(tmp_path, client | {"GpuCuller": FAST}, gpus.environment)
    kernel = bed.start_kernel()
    try:
        until(lambda: bed.kernel(kernel), "the kernel to be seen")
        passes = _passes(bed)
        until(lambda: _passes(bed) > passes + 3, "passes of the policy")
        row = bed.kernel(kernel)
        assert row is not None
        assert (row["busy"], row["why"], row["used_bytes"]) == (True, "it runs on another Jupyter server", 0)
        assert bed.get("health")["ok"]
        refused = bed.post(f"kernels/{kernel}/release")
        assert (refused.status_code, "another Jupyter server" in refused.text) == (409, True)
        assert bed.http.delete(f"/api/kernels/{kernel}").status_code == 204
        until(lambda: bed.kernel(kernel) is None, "the kernel to be forgotten")
    finally:
        bed.stop()
    assert "Traceback" not in bed.log()


def _passes(bed: ServerBed) -> float:
    lines = bed.http.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("jupyter_gpu_policy_pass_seconds_count"))
