"""The chart's pods as processes: head, gateway and nodes are started from the manifests, probed, and run a cell."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_blocks import block
from helm_chart import NAMESPACE, Manifest, one, render
from kube_pods import Pod
from network_hosts import Network
from unix_users import needs_root

# Ray on three hosts
pytestmark = [pytest.mark.timeout(1500), pytest.mark.thorough, needs_root]
#: between two looks: each is a process, and a kubelet's are seconds apart
_PERIOD_S = 0.5
#: beside others' work Ray takes its time, and some tries: it gives its own processes 15 and 30 s to start
_LIMIT_S = 600
Until = Callable[[Callable[[], object], str, float], None]
_VALUES = """
workers:
  - name: a100
    gpuType: A100
    gpus: 1
    minReplicas: 2
    maxReplicas: 2
    resources: {requests: {cpu: 1, memory: 4Gi}, limits: {cpu: 1, memory: 4Gi}}
autoscaling: {enabled: false} # with it KubeRay makes a new pod where here the kubelet starts a container anew
gateway:
  settings: {JUPYTER_GPU_PRELOAD: json}
  queues: {schema_version: 1, queues: [{name: all}]}
"""
_CELL = """
get_ipython().run_line_magic("load_ext", "jupyter_gpu_release")
cell = "import socket; where, answer = socket.gethostname(), 6 * 7"
get_ipython().run_cell_magic("gpu_train", "--gpu-type a100", cell)
print("at", where, answer)
"""
_DETACHED = """
get_ipython().run_line_magic("load_ext", "jupyter_gpu_release")
cell = "import pathlib, time\\nwhile not pathlib.Path('/shared/go').exists(): time.sleep(0.1)"
get_ipython().run_cell_magic("gpu_train", "--detach", cell)
"""


class Cluster:
    """Head, two nodes and a notebook's host."""

    def __init__(self, network: Network, folder: Path, until: Until) -> None:
        self.network, self.folder, self._until = network, folder, until
        self.manifests: list[Manifest] = render(_VALUES)
        (folder / "claims").mkdir()
        cluster = one(self.manifests, "RayCluster")
        self.service = one(self.manifests, "Service", "-gateway")["metadata"]["name"]
        head = f"{cluster['metadata']['name']}-head-svc"
        self._of_head = (self.service, head, f"{head}.{NAMESPACE}.svc.cluster.local")
        self.pods: list[Pod] = []
        self.head = self.new_head("head")
        (group,) = cluster["spec"]["workerGroupSpecs"]
        self.workers = [self._pod(name, group) for name in ("node-a", "node-b")]
        self.notebook = self._pod("notebook", self._of_the_hub())

    def new_head(self, name: str) -> Pod:
        """The head's first pod, or one in place of a pod that is gone: its claims are as that one left them.

        It has another address, which its services have from now on.
        """
        self.names = "".join(f"{self.network[name].address} {service}\n" for service in self._of_head)
        for pod in self.pods:
            pod.rename(self.names)
        return self._pod(name, one(self.manifests, "RayCluster")["spec"]["headGroupSpec"])

    def _pod(self, name: str, group: Manifest) -> Pod:
        folder = self.folder / f"{name}-{len(self.pods)}"
        self.pods.append(Pod(self.network[name], self.manifests, group, folder, self.folder / "claims", self.names))
        return self.pods[-1]

    def _of_the_hub(self) -> Manifest:
        """The pod of a user's server, with the store as JupyterHub's values on the page have it."""
        values = yaml.safe_load(block("kubernetes/notebooks.md", "## Notebooks in a JupyterHub", "hub:\n").text)
        storage = values["singleuser"]["storage"]
        token = base64.b64decode(one(self.manifests, "Secret")["data"]["gateway-token"]).decode()
        variables = {
            "HOME": "/jupyter-gpu/home",
            "JUPYTER_GPU_URL": f"http://{self.service}:8765",
            "JUPYTER_GPU_TOKEN": token,
            "JUPYTER_GPU_STORE": f"{storage['extraVolumeMounts'][0]['mountPath']}/gpu-runs",
        }
        own = {"home": "/jupyter-gpu/home", "tmp": "/tmp"}
        container = {
            "name": "notebook",
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "volumeMounts": [
                *storage["extraVolumeMounts"],
                *({"name": name, "mountPath": path} for name, path in own.items()),
            ],
        }
        spec = {
            "securityContext": {"runAsUser": 1000, "runAsGroup": 100},
            "containers": [container],
            "volumes": [*storage["extraVolumes"], *({"name": name, "emptyDir": {}} for name in own)],
        }
        return {"template": {"spec": spec}}

    def at_the_notebook(self, *words: str) -> str:
        """Run a module of Python in the notebook's pod, which has to succeed; returns what it says."""
        done = self.notebook.run(self.notebook.container("notebook"), ["python3", "-m", *words])
        said = done.stdout.decode()
        assert done.returncode == 0, said
        return said

    def ask(self, command: str) -> dict[str, Any]:
        """The JSON document of a command, from the notebook's host."""
        return dict(json.loads(self.at_the_notebook("jupyter_gpu_release.cli", command, "--json")))

    def said(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"{log.parent.name} {log.stem}:\n{log.read_text()[-3000:]}" for log in self.folder.glob("*/*.log")
        )

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it, while containers that end are started anew."""

        def looks() -> object:
            time.sleep(_PERIOD_S)
            for pod in self.pods:
                pod.keep()
            return condition()

        self._until(looks, what, _LIMIT_S)

    def stop(self) -> None:
        for pod in self.pods:
            pod.stop()


def broken_in(pod: Pod, container: str) -> dict[str, str]:
    """Findings that ``doctor`` calls broken there, by check."""
    said = pod.run(pod.container(container), ["python3", "-m", "jupyter_gpu_release.cli", "doctor", "--json"]).stdout
    found = json.loads(said)["findings"]
    return {one["check"]: one["finding"] for one in found if one["level"] == "broken"}


@pytest.fixture
def cluster(tmp_path: Path, until: Until) -> Iterator[Cluster]:
    names = ("head", "next-head", "node-a", "node-b", "notebook")
    with Network(*names, own_processes=names) as network:
        found = Cluster(network, tmp_path, until)
        try:
            yield found
        finally:
            print(found.said())  # pytest shows it of a test that failed
            found.stop()


def test_what_keeps_a_pod_from_its_cluster_is_found(cluster: Cluster) -> None:
    """Before the gateway is up, so also where it never will be."""
    head, node = cluster.head, cluster.workers[0]
    (first,) = head.spec["initContainers"]
    assert head.run(first, [*first["command"], *first["args"]]).returncode == 0
    (claim,) = (cluster.folder / "claims").glob("*-store")
    for pod, container in ((head, "gateway"), (node, "ray-worker")):
        found = broken_in(pod, container)
        assert "nothing listens there" in found.pop("network")
        assert found == ({"gateway": "it has not been put on this pod's Ray yet"} if pod is head else {})
        claim.chmod(0o755)  # as the root of an NFS export
        assert "cannot be made: /shared may not be written" in broken_in(pod, container)["store"]
        claim.chmod(0o2775)
    pod_token = node.volume("ray-token") / "ray-token"
    pod_token.unlink()
    assert "Ray's token cannot be read" in broken_in(node, "ray-worker")["token"]


def test_a_cell_runs_and_the_gateway_comes_back(cluster: Cluster) -> None:
    _start_all(cluster)
    for pod, container in ((cluster.head, "gateway"), (cluster.workers[0], "ray-worker")):
        cluster.until(lambda at=(pod, container): broken_in(*at) == {}, "doctor finds nothing broken")
    _run_a_cell(cluster)
    _lose_the_head(cluster)
    _lose_ray(cluster)


def _start_all(cluster: Cluster) -> None:
    head = cluster.head
    head.start()
    cluster.until(lambda: head.passes("ray-head", "startupProbe"), "Ray's head")
    cluster.until(lambda: head.passes("gateway", "readinessProbe"), "the gateway, without any node")
    cluster.until(lambda: head.passes("ray-head", "livenessProbe"), "a head that stays")
    for worker in cluster.workers:
        assert not worker.passes("ray-worker", "readinessProbe")
        worker.start()
        cluster.until(partial(worker.passes, "ray-worker", "startupProbe"), "a node")
        cluster.until(partial(worker.passes, "ray-worker", "livenessProbe"), "a node that stays")


def _run_a_cell(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.ask("status")["gpus"]["total"] == 2, "the GPUs of both nodes")
    said = cluster.at_the_notebook("IPython", "--no-banner", "-c", _CELL)
    assert "at node-" in said
    assert " 42" in said


def _lose_ray(cluster: Cluster) -> None:
    """The container of Ray's head ends: the kubelet starts it anew, and the gateway is put on the new Ray."""
    for worker in cluster.workers:
        worker.stop()
    cluster.head.end("ray-head")
    assert not cluster.head.passes("ray-head", "livenessProbe")
    assert not cluster.head.passes("gateway", "readinessProbe")
    cluster.head.begin("ray-head")
    cluster.until(lambda: cluster.head.passes("gateway", "readinessProbe"), "the gateway on the new Ray")


def _lose_the_head(cluster: Cluster) -> None:
    """A new pod has the ledger and the memory of the old one: what runs goes on, and what waits runs."""
    for _ in range(3):
        cluster.at_the_notebook("IPython", "--no-banner", "-c", _DETACHED)
    cluster.until(lambda: _states(cluster) == ["queued", "running", "running", "succeeded"], "two to run, one to wait")
    cluster.head.stop()
    cluster.head = cluster.new_head("next-head")
    cluster.head.start()
    cluster.until(lambda: cluster.head.passes("gateway", "readinessProbe"), "the gateway of the new pod")
    assert _states(cluster) == ["queued", "running", "running", "succeeded"]
    (claim,) = (cluster.folder / "claims").glob("*-store")
    (claim / "go").touch()
    cluster.until(lambda: _states(cluster) == ["succeeded"] * 4, "those that ran and the one that waited")


def _states(cluster: Cluster) -> list[str]:
    return sorted(run["state"] for run in cluster.ask("runs")["runs"])
