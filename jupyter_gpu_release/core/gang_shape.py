"""How many processes run a cell, where, and which of them have GPUs: ``--ranks``, ``--nodes`` and ``--ps``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import OptionError

_EVALUATOR = "evaluator"


@dataclass(frozen=True)
class GangShape:
    """Ranks share the GPUs evenly and are spread evenly over the nodes; servers and evaluator have no GPU."""

    ranks: int = 1
    nodes: int = 1
    ps: int = 0
    evaluator: bool = False


def gang_shape(gpus: int, ranks: str | None, nodes: str | None, ps: str | None) -> GangShape:
    """Read the three options as written (None: not given).

    Raises :class:`OptionError` for what cannot be divided, and for parameter servers of a cell that is no gang.
    """
    shape = GangShape(_count("ranks", ranks or "1"), _count("nodes", nodes or "1"), *_servers(ps))
    _check_ranks(gpus, shape.ranks)
    if shape.nodes > 1:
        _check_nodes(gpus, shape)
    if (shape.ps or shape.evaluator) and ranks is None:
        raise OptionError(
            f"--ps {ps} without --ranks: parameter servers serve ranks",
            mend=f"write --gpus {max(gpus, 2)} --ranks {max(gpus, 2)} --ps {ps}",
        )
    return shape


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        what = "processes" if name == "ranks" else "nodes"
        raise OptionError(f"--{name} {text}: not a number of {what}", mend=f"write --{name} 2")
    return int(text)


def _servers(text: str | None) -> tuple[int, bool]:
    number, comma, word = (text or "0").replace(" ", "").partition(",")
    if not re.fullmatch(r"[0-9]{1,4}", number) or (comma and word != _EVALUATOR):
        raise OptionError(f"--ps {text}: not a number of parameter servers", mend="write --ps 2 or --ps 2,evaluator")
    return int(number), bool(comma)


def _check_ranks(gpus: int, ranks: int) -> None:
    if gpus and ranks > gpus:
        raise OptionError(
            f"--ranks {ranks} with --gpus {gpus}: each rank has a GPU of its own",
            mend=f"ask for --gpus {ranks}, or for --ranks {gpus}",
        )
    if gpus % ranks:
        raise OptionError(
            f"--gpus {gpus} cannot be divided among --ranks {ranks}",
            mend=f"ask for --gpus {ranks * max(1, round(gpus / ranks))} or other ranks",
        )


def _check_nodes(gpus: int, shape: GangShape) -> None:
    nodes, ranks = shape.nodes, shape.ranks
    if ranks == 1:
        raise OptionError(
            f"--nodes {nodes} without --ranks: one process runs on one node",
            mend=f"write --ranks {max(gpus, nodes)} --nodes {nodes}",
        )
    if ranks % nodes:
        raise OptionError(
            f"--ranks {ranks} cannot be spread evenly over --nodes {nodes}",
            mend=f"ask for --ranks {nodes * max(1, round(ranks / nodes))} or other nodes",
        )
