"""The Helm chart: each documented set of values makes manifests that API and KubeRay take and that keep our rules."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import helm_python
import pytest
import yaml
from doc_blocks import block, blocks_in
from helm_chart import CHART, Manifest, containers, faults_of, one, pod_templates, render
from traitlets.config import Config

_OF_THE_HUB = "hub:\n  extraVolumes:"
_BLOCKS = [
    *blocks_in("kubernetes.md", "yaml"),
    *blocks_in("kubernetes/gpus.md", "yaml"),
    *blocks_in("kubernetes/notebooks.md", "yaml"),
    *blocks_in("kubernetes/security.md", "yaml"),
    *blocks_in("kubernetes/maintenance.md", "yaml"),
]
VALUES = [found for found in _BLOCKS if not found.text.startswith(_OF_THE_HUB)]
_DEFAULTS = ""


@cache
def _rendered(values: str) -> list[Manifest]:
    return render(values)


SETS = [
    pytest.param(_DEFAULTS, id="defaults"),
    *(pytest.param(found.text, id=f"{found.heading}:{found.line}") for found in VALUES),
]


@pytest.mark.parametrize("values", SETS)
def test_the_manifests_are_what_their_takers_know(values: str) -> None:
    assert [fault for manifest in _rendered(values) for fault in faults_of(manifest)] == []


def test_a_misspelt_field_is_found() -> None:
    for path, name in ((["spec"], "rayVerion"), (["spec", "headGroupSpec", "template", "spec"], "securityContxt")):
        cluster = one(render(), "RayCluster")
        place: Any = cluster
        for part in path:
            place = place[part]
        place[name] = "x"
        assert any(name in fault for fault in faults_of(cluster))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("values", SETS)
def test_no_secret_is_anywhere_but_in_the_secret(values: str) -> None:
    manifests = _rendered(values)
    secrets = [manifest for manifest in manifests if manifest["kind"] == "Secret"]
    tokens = [token for secret in secrets for token in secret["data"].values()]
    others = [text for manifest in manifests if manifest not in secrets for text in _strings(manifest)]
    assert not [text for text in others for token in tokens if token in text]
    for template in pod_templates(one(manifests, "RayCluster")).values():
        for container in containers(template):
            assert not [variable for variable in container["env"] if "secretKeyRef" in variable.get("valueFrom", {})]
            words = [*container.get("command", []), *container.get("args", [])]
            assert not [word for word in words if re.search(r"\$\(?\w*TOKEN", word)]


@pytest.mark.parametrize("values", SETS)
def test_nothing_is_root_and_everything_has_limits(values: str) -> None:
    cluster = one(_rendered(values), "RayCluster")
    for template in pod_templates(cluster).values():
        pod = template["spec"]["securityContext"]
        assert pod["runAsNonRoot"]
        assert pod["runAsUser"] > 0
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(template["spec"])
        assert not [volume for volume in template["spec"]["volumes"] if "hostPath" in volume]
        for container in containers(template):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            for way in ("requests", "limits"):
                assert {"cpu", "memory"} <= set(container["resources"][way]), container["name"]
    if options := cluster["spec"].get("autoscalerOptions"):
        assert options["securityContext"]["readOnlyRootFilesystem"]
        assert {"cpu", "memory"} <= set(options["resources"]["limits"])


@pytest.mark.parametrize("values", SETS)
def test_every_container_has_its_probes(values: str) -> None:
    for template in pod_templates(one(_rendered(values), "RayCluster")).values():
        for container in template["spec"]["containers"]:
            is_ray = container["name"].startswith("ray-")
            wanted = {"startupProbe", "readinessProbe", "livenessProbe"} if is_ray else {"readinessProbe"}
            assert {name for name in container if name.endswith("Probe")} == wanted
            assert all(container[name]["timeoutSeconds"] >= 2 for name in wanted)


@pytest.mark.parametrize("values", SETS)
def test_a_cell_s_node_has_neither_the_gateway_s_token_nor_one_of_the_api(values: str) -> None:
    for name, template in pod_templates(one(_rendered(values), "RayCluster")).items():
        if name == "headgroup":
            continue
        assert template["spec"]["automountServiceAccountToken"] is False
        keys = [
            item["key"] for volume in template["spec"]["volumes"] for item in volume.get("secret", {}).get("items", [])
        ]
        assert keys == ["ray-token"]


@pytest.mark.parametrize("values", SETS)
def test_what_is_mounted_and_referred_to_exists(values: str) -> None:
    manifests = _rendered(values)
    given = yaml.safe_load(values) or {}
    theirs = {
        given.get("tokens", {}).get("existingSecret"),
        given.get("gateway", {}).get("tlsSecret"),
        *(given.get(claim, {}).get("existingClaim") for claim in ("store", "ledger")),
    }
    known = theirs | {manifest["metadata"]["name"] for manifest in manifests}
    for template in pod_templates(one(manifests, "RayCluster")).values():
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        used = {mount["name"] for container in containers(template) for mount in container["volumeMounts"]}
        assert used == set(volumes)
        for volume in volumes.values():
            for kind, name in (("secret", "secretName"), ("configMap", "name"), ("persistentVolumeClaim", "claimName")):
                assert kind not in volume or volume[kind][name] in known
    ports = {
        port["name"]
        for each in pod_templates(one(manifests, "RayCluster")).values()
        for c in containers(each)
        for port in c.get("ports", [])
    }
    for service in (manifest for manifest in manifests if manifest["kind"] == "Service"):
        assert all(
            port["targetPort"] in ports or isinstance(port["targetPort"], int) for port in service["spec"]["ports"]
        )


def test_the_store_is_for_many_and_the_ledger_for_one() -> None:
    modes = {name: one(render(), "PersistentVolumeClaim", name)["spec"]["accessModes"] for name in ("store", "ledger")}
    assert modes == {"store": ["ReadWriteMany"], "ledger": ["ReadWriteOnce"]}


def test_what_is_kept_of_the_head_is_of_its_image_and_settings() -> None:
    def kept(values: str = "") -> str:
        head, *nodes = pod_templates(one(render(values), "RayCluster")).values()
        found = {
            variable["value"]
            for template in (head, *nodes)
            for variable in template["spec"]["containers"][0]["env"]
            if variable["name"] == "RAY_gcs_storage_path"
        }
        (folder,) = found
        assert folder.startswith("/jupyter-gpu/ledger/")
        return str(folder)

    others = ("image: {tag: '2'}", "gateway: {port: 9000}", "gateway: {settings: {JUPYTER_GPU_PRELOAD: json}}")
    assert len({kept(), *map(kept, others)}) == 1 + len(others)
    assert kept("gateway: {queues: {schema_version: 1, queues: [{name: all}]}}") == kept()  # those are read anew


def test_a_group_for_each_type_of_gpu() -> None:
    spec = one(render(block("kubernetes/gpus.md", "## GPUs of several types").text), "RayCluster")["spec"]
    a100, t4 = spec["workerGroupSpecs"]
    assert (a100["minReplicas"], a100["maxReplicas"], a100["labels"]) == (1, 6, {"zone": "hall-2"})
    assert a100["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert [toleration["key"] for toleration in t4["template"]["spec"]["tolerations"]] == [
        "nvidia.com/gpu",
        "dedicated",
    ]
    assert (spec["autoscalerOptions"]["version"], spec["autoscalerOptions"]["idleTimeoutSeconds"]) == ("v2", 900)


def test_a_part_of_a_gpu_is_a_resource_of_another_name() -> None:
    least = "{cpu: 1, memory: 1Gi}"
    group = f"name: mig, gpus: 2, minReplicas: 0, maxReplicas: 1, resources: {{requests: {least}, limits: {least}}}"
    (found,) = one(render(f"workers: [{{gpuResource: nvidia.com/mig-3g.40gb, {group}}}]"), "RayCluster")["spec"][
        "workerGroupSpecs"
    ]
    assert found["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-3g.40gb"] == "2"
    assert found["rayStartParams"]["num-gpus"] == "2"  # KubeRay and Ray's autoscaler would not see it by that name


def test_ray_s_autoscaler_reads_what_a_group_has() -> None:
    """By the code with which it reads the object from the API."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _generate_available_node_types_from_ray_cr_spec

    spec = one(render(block("kubernetes/gpus.md", "## GPUs of several types").text), "RayCluster")["spec"]
    types = _generate_available_node_types_from_ray_cr_spec(spec)
    assert types["a100"]["resources"] == {"CPU": 32, "GPU": 4, "memory": 256 * 2**30, "accelerator_type:A100": 1}
    assert (types["a100"]["min_workers"], types["a100"]["max_workers"]) == (1, 6)
    assert types["a100"]["labels"] == {"zone": "hall-2"}
    assert types["t4"]["resources"]["accelerator_type:T4"] == 1
    assert types["headgroup"]["resources"]["CPU"] == 0


def test_without_the_autoscaler_each_group_has_its_least() -> None:
    spec = one(render("autoscaling: {enabled: false}"), "RayCluster")["spec"]
    assert spec["enableInTreeAutoscaling"] is False
    assert "autoscalerOptions" not in spec


def test_nobody_reaches_the_gateway_but_its_clients() -> None:
    manifests = render(block("kubernetes/security.md", "## Networks").text)
    gateway = one(manifests, "NetworkPolicy", "-gateway")["spec"]
    assert [rule["ports"][0]["port"] for rule in gateway["ingress"]] == ["gateway"]
    everything = one(manifests, "NetworkPolicy", "release")["spec"]
    assert everything["policyTypes"] == ["Ingress", "Egress"]
    assert [rule.get("ports", [{}])[0].get("port") for rule in everything["ingress"]] == [None, "metrics"]


def test_budgets_let_no_pod_be_evicted() -> None:
    manifests = render(block("kubernetes/gpus.md", "## GPUs of several types").text)
    least = {name: one(manifests, "PodDisruptionBudget", name)["spec"]["minAvailable"] for name in ("head", "worker")}
    assert least == {"head": 1, "worker": 26}


def test_the_queues_are_those_that_the_gateway_reads() -> None:
    from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues

    written = block("kubernetes/gpus.md", "## Queues and other settings")
    text = one(render(written.text), "ConfigMap", "-queues")["data"]["queues.yaml"]
    assert yaml.safe_load(text) == yaml.safe_load(written.text)["gateway"]["queues"]
    parse_queues(text, "queues.yaml")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("gatway: {}", "gatway"),
        ("store: {size: 10 GB}", "size"),
        ("ingress: {enabled: true, host: gpu.example.org}", "tlsSecret"),
        ("gateway: {settings: {TOKEN: x}}", "TOKEN"),
        ("ledger: {mountPath: /x}", "mountPath"),
        ("user: {uid: 0}", "uid"),
        ("workers: []", "workers"),
        (
            "workers: [{name: a, gpus: 1, minReplicas: 0, maxReplicas: 1, resources: {limits: {cpu: 1, memory: 1Gi}}}]",
            "requests",
        ),
    ],
)
def test_values_that_are_wrong_are_refused(values: str, said: str) -> None:
    with pytest.raises(helm_python.HelmError, match=said):
        render(values)


def test_helm_s_own_look_at_the_chart_finds_nothing() -> None:
    found = helm_python.lint(str(CHART))
    assert not [each for each in found["messages"] if each["severity"] > 1], found


def test_the_commands_of_the_page_name_what_is_there() -> None:
    (line,) = block("kubernetes.md", "## Install", "helm").commands()
    words = shlex.split(line)
    assert words[:2] == ["helm", "install"]
    assert (CHART.parents[2] / words[3]).resolve() == CHART
    name, pods = words[2], block("kubernetes.md", "## Install", "kubectl").text
    cluster = one(render(), "RayCluster")
    assert cluster["metadata"]["name"] == f"{name}-jupyter-gpu-release"
    assert f"ray.io/cluster={cluster['metadata']['name']}," in pods
    container = re.search(r"-c (\w+) ", pods)
    assert container
    assert container[1] in [one["name"] for one in cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]]


def test_jupyterhub_s_values_give_servers_url_and_token(tmp_path: Any) -> None:
    """The snippet for the Hub is run as the Hub runs it; names in it are those of this chart."""
    manifests = render(block("kubernetes/notebooks.md", "## Notebooks in a JupyterHub", "hub: {").text)
    places = {"/etc/gpu-tokens": str(tmp_path), "/tmp/gpu-admin.token": str(tmp_path / "copy")}
    values = yaml.safe_load(block("kubernetes/notebooks.md", "## Notebooks in a JupyterHub", "hub:\n").filled(places))
    (tmp_path / "gateway-token").write_text("a token")
    config = Config()
    config.JupyterHub.services, config.Spawner.environment = [], {}
    exec(values["hub"]["extraConfig"]["gpus"], {"c": config})
    assert (tmp_path / "copy").read_text() == "a token"
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    services = {
        f"http://{m['metadata']['name']}:{m['spec']['ports'][0]['port']}" for m in manifests if m["kind"] == "Service"
    }
    environment = config.Spawner.environment
    assert environment["JUPYTER_GPU_URL"] in services
    assert environment["JUPYTER_GPU_HUB_SERVICE"].removesuffix("/services/gpu-tokens/token") in services
    names = {manifest["metadata"]["name"] for manifest in manifests}
    assert values["hub"]["extraVolumes"][0]["secret"]["secretName"] in names
    store = values["singleuser"]["storage"]
    assert store["extraVolumes"][0]["persistentVolumeClaim"]["claimName"] in names
    assert (
        store["extraVolumeMounts"][0]["mountPath"]
        == yaml.safe_load((CHART / "values.yaml").read_text())["store"]["mountPath"]
    )
