"""The Grafana file asks only for figures that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client import REGISTRY

import jupyter_gpu_release.server_extension.metrics  # noqa: F401 (registers them)

FILE = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"


def _known() -> set[str]:
    names: set[str] = set()
    for family in REGISTRY.collect():
        if family.name.startswith("jupyter_gpu_"):
            ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
            names |= {family.name + end for end in ends}
    return names


def test_every_figure_of_the_dashboard_exists() -> None:
    panels = json.loads(FILE.read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"jupyter_gpu_\w+", target["expr"])
    }
    assert len(asked) >= 12
    assert asked <= _known(), asked - _known()


def test_every_figure_is_on_the_dashboard_or_known_to_be_left_out() -> None:
    text = FILE.read_text()
    missing = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in _known()}
    missing = {name for name in missing if name not in text}
    assert missing == {"jupyter_gpu_gateway_up", "jupyter_gpu_problem"}
