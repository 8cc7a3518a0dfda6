"""Our chart, rendered by Helm's own library, and its manifests checked against the schemas of what takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "jupyter-gpu-release"
RELEASE, NAMESPACE = "gpus", "notebooks"
Manifest = dict[str, Any]
#: the oldest Kubernetes that Chart.yaml allows, and a new one
KUBERNETES = ("1.27", "1.35")
_DATA = Path(__file__).parents[1] / "deploy" / "data"
_OPERATORS = {
    kind: json.loads((_DATA / f"{kind.lower()}.schema.json").read_text()) for kind in ("RayCluster", "ServiceMonitor")
}


def render(values: str = "", chart: Path = CHART) -> list[Manifest]:
    """The manifests of a release; ``values``: YAML, as ``helm install --values`` reads it."""
    given = yaml.safe_load(values) or {}
    with helm_python.Chart.load(str(chart)) as loaded:
        loaded.validate_schema(loaded.merge_values(given))
        texts = loaded.render(given, name=RELEASE, namespace=NAMESPACE)
    documents = [one for name, text in texts.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text)]
    return [one for one in documents if one]


def one(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    """The one manifest of a kind, whose name ends so."""
    (found,) = (each for each in manifests if each["kind"] == kind and each["metadata"]["name"].endswith(name))
    return found


def faults_of(manifest: Manifest) -> Iterator[str]:
    """Each field that does not exist or has a wrong value."""
    if manifest["kind"] not in _OPERATORS:
        yield from _faults_for_the_api(manifest)
        return
    for error in jsonschema.Draft7Validator(_OPERATORS[manifest["kind"]]).iter_errors(manifest):
        yield f"{manifest['kind']} {error.json_path}: {error.message}"
    for name, template in pod_templates(manifest).items():
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **template["metadata"]},
            "spec": template["spec"],
        }
        yield from _faults_for_the_api(pod)


def _faults_for_the_api(manifest: Manifest) -> Iterator[str]:
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{manifest['kind']} {manifest['metadata']['name']} for {version}: {error}"


def pod_templates(manifest: Manifest) -> dict[str, Any]:
    """Name of a group → template of its pods; nothing for other kinds."""
    if manifest["kind"] != "RayCluster":
        return {}
    spec = manifest["spec"]
    return {
        "headgroup": spec["headGroupSpec"]["template"],
        **{group["groupName"]: group["template"] for group in spec["workerGroupSpecs"]},
    }


def containers(template: Manifest) -> list[Manifest]:
    """All containers of a template, those that run first included."""
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]
