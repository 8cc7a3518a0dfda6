"""What the sidebar may offer: to whom, and which of the cluster's choices. Pure."""

from __future__ import annotations

from ..core.documents import StatusDocument
from ..core.options import OPTIONS
from .documents import Choices


def choices_of(cluster: StatusDocument | None) -> Choices:
    """What a cell may ask for: the cards and their number as the nodes that are up tell, the options that exist."""
    unavailable = sorted(option.name for option in OPTIONS.values() if not option.built)
    if cluster is None:
        return Choices(unavailable)
    cards = [gpu for node in cluster.nodes if node.up for gpu in node.gpus if gpu.state != "drained"]
    # simulated cards have no type that a filter could match
    names = set() if cluster.simulated else {gpu.name for gpu in cards if gpu.name}
    return Choices(unavailable, sorted(names), len(cards))
