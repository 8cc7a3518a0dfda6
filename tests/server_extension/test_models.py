"""What the server tells the sidebar that it may offer: the options that exist, real GPUs, and to whom."""

from __future__ import annotations

from importlib.resources import files
from typing import get_args

import msgspec
import yaml
from gpu_api import gpu, node, status
from server_bed import ServerBed

from jupyter_gpu_release.options.definitions import OPTIONS
from jupyter_gpu_release.protocol.rest import PriceList, StatusDocument
from jupyter_gpu_release.server_extension.audit import Act
from jupyter_gpu_release.server_extension.models import choices_of


def _cluster(*nodes: dict[str, object], simulated: bool = False) -> StatusDocument:
    document = status(list(nodes), [], [])["cluster"] | {"simulated": simulated}
    return msgspec.convert(document, StatusDocument)


def test_gpus_are_those_of_nodes_that_are_up() -> None:
    offered = choices_of(
        _cluster(
            node("a", gpu(0), gpu(1, "running"), gpu(2, "drained", name="NVIDIA L4")),
            node("b", gpu(0, name="NVIDIA A100-SXM4-40GB")),
            node("c", gpu(0, name="Tesla T4"), up=False),
        )
    )
    assert offered.gpu_types == ["NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"]
    assert offered.max_gpus == 3


def test_queues_are_those_that_one_may_use() -> None:
    row = {
        "name": "vision",
        "parent": "",
        "depth": 0,
        "leaf": True,
        "usable": True,
        "guaranteed": 0,
        "max": None,
        "weight": 1,
        "priority": 0,
        "used": 0,
        "fair_share": 0,
        "waiting_runs": 0,
        "waiting_gpus": 0,
    }
    cluster = status([], [], [])["cluster"] | {"queues": [row, row | {"name": "text", "usable": False}]}
    assert choices_of(msgspec.convert(cluster, StatusDocument)).queues == ["vision"]


def test_simulated_gpus_have_no_type_to_ask_for() -> None:
    offered = choices_of(_cluster(node("a", gpu(0), gpu(1)), simulated=True))
    assert (offered.gpu_types, offered.max_gpus, offered.prices) == ([], 2, None)


def test_prices_are_the_gateways() -> None:
    prices = PriceList({"": 2.5, "NVIDIA H100 80GB HBM3": 2.5}, "EUR", 50.0)
    assert choices_of(msgspec.structs.replace(_cluster(node("a", gpu(0))), prices=prices)).prices == prices


def test_environments_are_those_that_the_gateway_offers() -> None:
    cluster = msgspec.structs.replace(_cluster(node("a", gpu(0))), environments=["text", "vision"])
    assert choices_of(cluster).environments == ["text", "vision"]


def test_without_a_cluster_only_the_options_are_known(server: ServerBed) -> None:
    document = server.get("status")
    none = {"gpu_types": None, "max_gpus": None, "queues": [], "prices": None, "environments": []}
    assert document["choices"] == none | {"options": sorted(OPTIONS)}
    assert document["may_act"] is True


def test_the_schema_of_what_people_do_knows_all_of_it() -> None:
    """An event that its schema refuses fails the request wherever a JupyterLab hears events."""
    schema = yaml.safe_load(files("jupyter_gpu_release.server_extension").joinpath("events/request.yaml").read_text())
    assert set(schema["properties"]["action"]["enum"]) == set(get_args(Act))
