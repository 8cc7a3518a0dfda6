"""Places of a gang: its ranks with their roles, nodes and ports, and what frameworks read of it in the environment."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from ...errors import ClusterError
from ...protocol.node import AttemptId

RANK, SERVER, EVALUATOR = "rank", "ps", "evaluator"


class RemoteRankHello(msgspec.Struct, frozen=True):
    """Facts that come with a rank: its number on the node, the node's GPUs, where it can be reached."""

    run: str
    node: str
    local: int
    gpu_ids: list[str]
    address: str
    port: int
    attempt: int = 0

    @property
    def attempt_id(self) -> AttemptId:
        """The attempt to which the rank is lent."""
        return AttemptId(self.run, self.attempt)


@dataclass(frozen=True)
class RankSpec:
    """One process of a gang. ``index``: its rank; servers and evaluator are numbered on behind the ranks.

    ``port`` is kept free for it on its node.
    """

    index: int
    role: str = RANK
    #: of the node in the gang, in rank order
    node: int = 0
    #: among the ranks on its node
    local: int = 0
    local_size: int = 1
    host: str = ""
    address: str = "127.0.0.1"
    port: int = 0

    def name(self, ranks: int) -> str:
        """``rank 3``, ``ps 0``, ``evaluator``; ``ranks``: how many the gang has."""
        if self.role == RANK:
            return f"rank {self.index}"
        return self.role if self.role == EVALUATOR else f"{self.role} {self.index - ranks}"


@dataclass(frozen=True)
class GangLayout:
    """All places, and the port on rank 0's node at which PyTorch's ranks meet."""

    specs: Sequence[RankSpec]
    master_port: int = 0
    #: one process that asked to be a gang (``--ranks 1``)
    is_asked: bool = False

    @property
    def ranks(self) -> int:
        """Number of ranks, servers not counted."""
        return sum(spec.role == RANK for spec in self.specs)

    @property
    def nodes(self) -> int:
        """Over how many nodes they are spread."""
        return 1 + max((spec.node for spec in self.specs), default=0)


def gang_environment(gang: GangLayout, spec: RankSpec) -> dict[str, str]:
    """Variables for the process of ``spec``; none for a cell that is no gang."""
    if len(gang.specs) < 2 and not gang.is_asked:
        return {}
    found = {"TF_CONFIG": json.dumps(_tf_config(gang, spec))}
    if spec.role == RANK:
        found |= _torch(gang, spec) | _jax(gang, spec)
    return found


def _torch(gang: GangLayout, spec: RankSpec) -> dict[str, str]:
    """Variables that ``torch.distributed`` (``env://``) reads, and torchrun's further ones."""
    return {
        "RANK": str(spec.index),
        "WORLD_SIZE": str(gang.ranks),
        "LOCAL_RANK": str(spec.local),
        "LOCAL_WORLD_SIZE": str(spec.local_size),
        "GROUP_RANK": str(spec.node),
        "NODE_RANK": str(spec.node),
        "GROUP_WORLD_SIZE": str(gang.nodes),
        "MASTER_ADDR": gang.specs[0].address,
        "MASTER_PORT": str(gang.master_port),
    }


def _jax(gang: GangLayout, spec: RankSpec) -> dict[str, str]:
    """``jax.distributed.initialize`` reads the first; ``ranks.initialize_jax()`` passes all of them on."""
    return {
        "JAX_COORDINATOR_ADDRESS": _address(gang.specs[0]),
        "JAX_NUM_PROCESSES": str(gang.ranks),
        "JAX_PROCESS_ID": str(spec.index),
    }


def _tf_config(gang: GangLayout, spec: RankSpec) -> dict[str, object]:
    """Workers alone (MultiWorkerMirroredStrategy), or chief, workers and parameter servers.

    The evaluator is no part of the cluster that it is told of (so TensorFlow wants it).
    """
    ranks = [other for other in gang.specs if other.role == RANK]
    servers = [other for other in gang.specs if other.role == SERVER]
    if len(ranks) == len(gang.specs):
        return {"cluster": {"worker": [_address(other) for other in ranks]}, "task": _task("worker", spec.index)}
    cluster = {"chief": [_address(ranks[0])]}
    if ranks[1:]:
        cluster["worker"] = [_address(other) for other in ranks[1:]]
    if servers:
        cluster["ps"] = [_address(other) for other in servers]
    if spec.role == SERVER:
        return {"cluster": cluster, "task": _task("ps", spec.index - len(ranks))}
    if spec.role == EVALUATOR:
        return {"cluster": cluster, "task": _task("evaluator", 0)}
    return {"cluster": cluster, "task": _task("worker", spec.index - 1) if spec.index else _task("chief", 0)}


def _task(kind: str, index: int) -> dict[str, object]:
    return {"type": kind, "index": index}


def _address(spec: RankSpec) -> str:
    return f"{spec.address}:{spec.port}"


@dataclass(frozen=True)
class NodeLocation:
    """``address``: the node's IP address as its cluster knows it; this machine alone: the loopback."""

    host: str = field(default_factory=socket.gethostname)
    address: str = "127.0.0.1"
    #: a local folder for marks of runs that have begun; they tell the next agent of this node. Empty: there are none
    marks: str = ""


class HeldPorts:
    """Sockets that are bound and do not listen.

    The system gives such a port to nobody else who asks for any free one, nor to outgoing connections; a server that
    names it may listen on it all the same, since both sides set SO_REUSEADDR (torch's store, gRPC, asyncio and
    Python's own servers do).
    """

    def __init__(self, address: str, count: int) -> None:
        self._address = address
        self._sockets: list[socket.socket] = []
        try:
            self.numbers = [self._hold() for _ in range(count)]
        except OSError as error:
            self.close()
            raise ClusterError(f"no free port on {address} for the gang's ranks: {error}") from error

    def port(self, number: int) -> int:
        """One of them; 0 where none was asked for."""
        return self.numbers[number] if self.numbers else 0

    def _hold(self) -> int:
        held = socket.socket()
        self._sockets.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((self._address, 0))
        number: int = held.getsockname()[1]
        return number

    def taken_ports(self) -> set[int]:
        """Ports at which something listens; to be asked once their owners have ended, since it means to listen, too."""
        return {number for number, held in zip(self.numbers, self._sockets, strict=True) if not _may_listen(held)}

    def close(self) -> None:
        """Let go of all."""
        while self._sockets:
            self._sockets.pop().close()

    def __enter__(self) -> HeldPorts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _may_listen(held: socket.socket) -> bool:
    try:
        held.listen(0)
    except OSError:
        return False
    return True
