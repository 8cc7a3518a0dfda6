"""``nodes``, ``nodes drain`` and ``nodes resume``: asked of the gateway, so they work for one far away, too."""

from __future__ import annotations

import argparse
import time

from ...client.rest import GatewayClient
from ...protocol.admin import NodeDrain, names_gpu
from ...protocol.rest import DOCUMENT_VERSION, NodeRow, NodesDocument, StatusDocument
from ...units import format_count
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
    said = ""
    while arguments.wait and (held := _held(status, arguments.node)):
        waits = f"Waiting for {format_count(len(held), 'GPU')}: {', '.join(dict.fromkeys(held))}"
        if waits != said:
            console.print(waits, highlight=False)
        said = waits
        time.sleep(_LOOK_S)
        status = gateway.status()
    held = _held(status, arguments.node)
    console.print(f"Still held there: {format_count(len(held), 'GPU')}." if held else "Nothing runs there.")


def _held(status: StatusDocument, name: str) -> list[str]:
    """For each GPU that is held there: by whose run."""
    host, _, named = name.partition(":")
    gpus = [gpu for node in status.nodes if _is_named(node, host) for gpu in node.gpus]
    held = [gpu for gpu in gpus if gpu.run is not None and (not named or names_gpu(named, gpu.index, gpu.uuid))]
    return [", ".join(f"{has.run} ({has.user})" for has in gpu.holders) for gpu in held]


def _is_named(node: NodeRow, name: str) -> bool:
    return node.host == name or node.id.startswith(name)
