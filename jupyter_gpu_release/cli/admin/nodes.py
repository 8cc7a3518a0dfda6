"""``nodes``, ``nodes drain`` and ``nodes resume``: asked of the gateway, so they work for one far away, too."""

from __future__ import annotations

import argparse
import time

from ...client.rest import GatewayClient
from ...protocol.admin import NodeDrain
from ...protocol.rest import DOCUMENT_VERSION, NodeRow, NodesDocument, StatusDocument
from ..connect import open_gateway
from ..runs import print_json
from ..tables import output_console, print_nodes

_LOOK_S = 1.0


def nodes(arguments: argparse.Namespace) -> int:
    """``jupyter gpu nodes …``."""
    with open_gateway() as gateway:
        if arguments.action == "drain":
            _drain(gateway, arguments)
        elif arguments.action == "resume":
            gateway.resume_node(NodeDrain(arguments.node))
            output_console().print(f"{arguments.node} takes runs again.", highlight=False)
        elif arguments.json:
            print_json(NodesDocument(DOCUMENT_VERSION, gateway.status().nodes))
        else:
            print_nodes(output_console(), gateway.status().nodes)
    return 0


def _drain(gateway: GatewayClient, arguments: argparse.Namespace) -> None:
    console = output_console()
    status = gateway.drain_node(NodeDrain(arguments.node, arguments.reason))
    console.print(f"{arguments.node} gets no new runs; `jupyter gpu nodes resume {arguments.node}` undoes it.")
    if arguments.wait:
        while _held(status, arguments.node):
            time.sleep(_LOOK_S)
            status = gateway.status()
    held = _held(status, arguments.node)
    console.print("Nothing runs there." if not held else f"Still held there: {held} GPU{'' if held == 1 else 's'}.")


def _held(status: StatusDocument, name: str) -> int:
    return sum(gpu.run is not None for node in status.nodes if _is_named(node, name) for gpu in node.gpus)


def _is_named(node: NodeRow, name: str) -> bool:
    return node.host == name or node.id.startswith(name)
