"""A team's cluster on three hosts, by the operators' pages alone: install, start, join, let a user in, run a cell."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doc_blocks import block
from guide_hosts import GuideHosts, variables_in
from kernel_bed import RemoteNotebook
from network_hosts import Network
from ray_imports import leave_out

from jupyter_gpu_release.local_cluster.launch_spec import runtime_root

UntilTrue = Callable[[Callable[[], object], str], None]

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]  # a cluster of its own, over several hosts


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """Short: Ray's sockets are below it."""
    folder = Path(tempfile.mkdtemp(prefix="jgr-", dir=runtime_root()))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[GuideHosts]:
    with Network("laptop", "head", "node") as network:
        bed = GuideHosts(network, tmp_path, head_is_called="head")
        try:
            yield bed
        finally:
            bed.stop()


def test_a_team_of_three_hosts(hosts: GuideHosts, ray_folder: Path, tmp_path: Path, until: UntilTrue) -> None:
    """The certificate is for another name than the head's own: users are told that one."""
    hosts.ok("head", block("operate/certificates.md", "# How to make a certificate").text)
    token = {"~/.ray-token": str(ray_folder / "ray-token")}
    hosts.ok("head", block("operate/several-machines.md", "## 1. A token for Ray").filled(token))
    settings = block("operate/several-machines.md", "## 2. Settings").filled(token)
    settings += f"unset CUDA_VISIBLE_DEVICES; export PYTHONPATH={leave_out(ray_folder)}\n"
    small = " --num-cpus=2 --object-store-memory=100000000 --num-gpus="
    (head,) = block("operate/several-machines.md", "## 3. The head").commands()
    said = hosts.ok("head", f"{settings}{head}{small}0 --temp-dir={ray_folder}/ray")
    assert f"ray start --address='{hosts.network['head'].address}:6379'" in said
    (join,) = block("operate/several-machines.md", "## 4. The nodes").commands({"HEAD": "head"})
    hosts.ok("node", f"{settings}{join}{small}2")
    here = {"HEAD": "head", "/shared/gpu-runs": str(tmp_path / "shared")}
    started = hosts.ok("head", settings + block("operate/several-machines.md", "## 5. The gateway").filled(here))
    assert "is ready with 2 GPUs" in started
    status, doctor = block("operate/several-machines.md", "## 6. Look").commands()
    assert "https://gpu.example.org:8765 · 2 GPUs" in hosts.ok("head", status)
    # an agent introduces itself in its own time, and doctor may find what others left on this machine
    until(lambda: "node: 2 GPUs, Python" in hosts.run("head", doctor).stdout, "the node's agent")

    said = hosts.ok("head", "jupyter gpu token create --user ann --out ../laptop/ann.token")
    known = dict(variables_in(said))
    assert known["JUPYTER_GPU_URL"] == "https://gpu.example.org:8765"
    files = {"TOKEN_FILE": "laptop/ann.token", "CA_FILE": "head/ca.pem"}
    known |= {f"JUPYTER_GPU_{name}": str(tmp_path / path) for name, path in files.items()}
    laptop = hosts.network["laptop"]
    notebook = RemoteNotebook(laptop, hosts.at("laptop"), hosts.environment("laptop") | known, prefix=hosts.prefix())
    try:
        notebook.ok("large = bytes(3 << 20)")
        notebook.ok("%%gpu_train\nimport socket\nwhere, twice = socket.gethostname(), large * 2")
        assert notebook.value("[where, len(twice)]") == ["node", 6 << 20]
    finally:
        notebook.close()
