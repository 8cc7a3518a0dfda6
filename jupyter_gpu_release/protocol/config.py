"""GatewayConfig, RetentionPolicy, NotifyRules, Deployed, seed of text hashes: what the CLI hands to the gateway.

With seeds of their own, an index built from a set in a cell here is wrong in a cell there, without any error.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from ..settings.flags import COMMANDS
from ..settings.table import CLUSTER, NOTIFY
from ..units import parse_seconds

VARIABLE = "PYTHONHASHSEED"
#: for clusters, and for kernels of a Jupyter server, of which nobody says otherwise: they agree without a word
DEFAULT_HASH_SEED = "20131"
_PROBE = "a text of which the hash is asked"
_WORD = (1 << 64) - 1
#: rounds for each word and at the end
_SIPHASH = {"siphash13": (1, 3), "siphash24": (2, 4)}


def hash_seed_in(environment: Mapping[str, str]) -> str:
    """The seed of a Python that was started with this environment; empty: a random one."""
    seed = environment.get(VARIABLE, "")
    return seed if seed.isdigit() else ""


def hash_seed_for_kernel(environment: Mapping[str, str], cluster: str) -> dict[str, str]:
    """Variables with which a kernel agrees with the cluster (``cluster``: its seed, if known); what is set stays."""
    return {} if environment.get(VARIABLE) else {VARIABLE: cluster or DEFAULT_HASH_SEED}


@functools.cache
def is_seed_of_this_process(seed: str) -> bool:
    """Tell if texts have the hashes here that they have in a Python that was started with ``seed``.

    Asked of a hash, since the environment may say something else by now.
    """
    rounds = _SIPHASH.get(sys.hash_info.algorithm)
    if rounds is None or not seed.isdigit():
        return False
    expected = _siphash(_PROBE.encode(), *_keys(int(seed)), *rounds)
    return hash(_PROBE) & _WORD == expected


def _keys(seed: int) -> tuple[int, int]:
    """Python's own way from a seed to the two keys (``lcg_urandom`` in its ``bootstrap_hash.c``)."""
    found, state = bytearray(), seed
    for _ in range(16):
        state = (state * 214013 + 2531011) & 0xFFFFFFFF
        found.append(state >> 16 & 0xFF)
    first, second = struct.unpack("<QQ", bytes(found) if seed else bytes(16))
    return first, second


def _siphash(data: bytes, first: int, second: int, each: int, last: int) -> int:
    state = [first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D]
    state += [first ^ 0x6C7967656E657261, second ^ 0x7465646279746573]
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        state[3] ^= word
        _mix(state, each)
        state[0] ^= word
    state[2] ^= 0xFF
    _mix(state, last)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _mix(state: list[int], rounds: int) -> None:
    a, b, c, d = state
    for _ in range(rounds):
        a, c = a + b & _WORD, c + d & _WORD
        b, d = _turned(b, 13) ^ a, _turned(d, 16) ^ c
        a = _turned(a, 32)
        c, a = c + b & _WORD, a + d & _WORD
        b, d = _turned(b, 17) ^ c, _turned(d, 21) ^ a
        c = _turned(c, 32)
    state[:] = a, b, c, d


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _WORD


RAY_NAMESPACE = "jupyter_gpu_release"
GATEWAY_ACTOR = "gateway"


class RetentionPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rules for removing results of runs that are over. 0: no limit; nothing is removed by a policy without limits."""

    #: seconds since a run's results were last used (made, attached, loaded, reused)
    older_than_s: float = 0.0
    #: runs of one user's notebook that stay, newest first
    keep: int = 0
    #: bytes on the store for each user; the least recently used go first
    quota_bytes: int = 0

    @property
    def has_limits(self) -> bool:
        """Tell if anything is ever removed by it."""
        return bool(self.older_than_s or self.keep or self.quota_bytes)


class MailRules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The mail server that takes notifications. ``tls``: ``starttls``, ``tls`` from the first byte, or ``none``."""

    host: str
    sender: str
    port: int = NOTIFY["mail.port"].default
    tls: Literal["starttls", "tls", "none"] = NOTIFY["mail.tls"].default
    #: name to log in with; empty: without a login
    user: str = ""
    #: file with the password (0600)
    password_file: str = ""
    #: domains of the addresses that users may name, ``*``: any; empty: the sender's
    domains: list[str] = msgspec.field(default_factory=list)


class WebhookRules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Hosts that users' webhooks may be on, each ``name`` or ``name:port``."""

    hosts: list[str] = msgspec.field(default_factory=list)
    #: also addresses of the inner network and of this machine
    private_addresses: bool = False
    #: also ``http://``
    plain_http: bool = False
    #: ``http://host:port`` that asks on our behalf; it decides about addresses then
    proxy: str = ""


class NotifyRules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Ways in which users may be told of their detached runs; without any of them nobody is told."""

    mail: MailRules | None = None
    webhooks: WebhookRules = WebhookRules()
    #: a run that had to wait for less than this many seconds is not told of when it starts
    waited_s: float = msgspec.field(default=NOTIFY["waited"].default, name="waited")
    #: address of a run's page; ``{run}`` stands for its id
    link: str = ""


class StoreMode(StrEnum):
    """Users on the store: one for all, people who share a group, or each run as its owner."""

    SINGLE = "single"
    GROUP = "group"
    OWNER = "owner"


class UnixUser(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An account, with all that a process of it needs to know: nodes need not have it."""

    name: str
    uid: int
    gid: int
    groups: list[int] = msgspec.field(default_factory=list)
    home: str = ""
    shell: str = ""
    #: of its cells' processes, as ``ulimit`` sets them: name in the resource module → soft and hard, -1: unlimited
    limits: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)


class SlurmPool(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The file of ``start --slurm``: nodes that are borrowed from Slurm, each as one job."""

    max_nodes: Annotated[int, msgspec.Meta(ge=1)]
    gpus_per_node: Annotated[int, msgspec.Meta(ge=0)] = 1
    cpus_per_node: Annotated[int, msgspec.Meta(ge=1)] = 1
    min_nodes: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: as ``sbatch`` takes them; empty: Slurm's default
    partition: str = ""
    account: str = ""
    qos: str = ""
    memory: str = ""
    #: empty: ``gpu:`` and their number
    gres: str = ""
    #: type of the GPUs, so that nobody waits for another one
    gpu_type: str = ""
    #: of each job; then what is restartable goes on elsewhere
    walltime: str = "8h"
    #: a node without work goes back after this time
    idle_return: str = "10m"
    #: nodes wait so long for a head that is lost
    head_grace: str = "30m"
    #: further options of ``sbatch``, such as ``--constraint=a100``
    sbatch: list[str] = msgspec.field(default_factory=list)
    #: address of this machine that the nodes reach; empty: its first one beyond the loopback
    address: str = ""
    #: try it without GPUs
    simulated_gpus: bool = False

    @property
    def walltime_s(self) -> float:
        """Seconds of a job; raises :class:`OptionError`."""
        return parse_seconds(self.walltime, option="walltime")

    @property
    def idle_return_s(self) -> float:
        """Seconds that a node may be without work; raises :class:`OptionError`."""
        return parse_seconds(self.idle_return, option="idle_return")

    @property
    def head_grace_s(self) -> float:
        """Seconds that nodes wait for a head that is lost; raises :class:`OptionError`."""
        return parse_seconds(self.head_grace, option="head_grace")


_START = COMMANDS["start"].flags


class Listening(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Address, certificate and proxy of a gateway: flags of ``start``, of which each record has the same."""

    host: str = _START["host"].default
    port: int = _START["port"].default
    #: PEM files of certificate (with those that lead to its authority) and key; empty: plain text
    tls_cert: str = ""
    tls_key: str = ""
    #: address of a proxy in front of the gateway; the gateway answers to its name, with its path or without
    proxy_url: str = ""


class ClusterSettings(Listening, frozen=True, omit_defaults=True, kw_only=True):
    """Settings of one start that its daemon and its gateway have."""

    #: id of this cluster start (``JUPYTER_GPU_CLUSTER`` of its processes)
    cluster: str = ""
    simulated: bool = False
    #: file that the queues are written in, as the gateway sees it; empty: one queue for all
    queues: str = ""
    #: what ``store.json`` in the store must say; empty: what the ledger remembers
    store_id: str = ""
    #: where further nodes come from
    slurm: SlurmPool | None = None


Record = TypeVar("Record", bound=Listening)


def shared_by(kind: type[Record], record: Record) -> dict[str, Any]:
    """The fields of ``kind`` in a record of it: what another one of it is made with."""
    return {name: getattr(record, name) for name in kind.__struct_fields__}


class GatewayConfig(ClusterSettings, frozen=True, omit_defaults=True):
    """Everything a gateway needs to know. Holds no secret: tokens stay in their 0600 files."""

    #: state folder of the cluster on the head node (``JUPYTER_GPU_HOME``); the ledger lives here
    home: str
    #: root of the store as the nodes see it
    store: str
    #: file with the one token of the embedded cluster (0600); its user is the Unix user of the gateway
    token_file: str
    #: short local folder for sockets (``/tmp/jgr-<8 hex>``)
    runtime: str
    #: ``host:port`` of Ray's GCS, always explicit
    ray_address: str
    #: what clients are told to connect to; empty: ``http://host:port`` (``https://`` with a certificate)
    public_url: str = ""
    embedded: bool = True
    #: what these mean, and their bounds, is in the table of settings
    preload: list[str] = msgspec.field(default_factory=list)
    reconnect_grace_s: float = CLUSTER["reconnect_grace_s"].default
    node_grace_s: float = CLUSTER["node_grace_s"].default
    max_keep_s: float = CLUSTER["max_keep_s"].default
    max_prepared: int = CLUSTER["max_prepared"].default
    environments: str = CLUSTER["environments"].default
    environment_index: str = CLUSTER["environment_index"].default
    environment_wheels: list[str] = msgspec.field(default_factory=list)
    environment_source_builds: str = CLUSTER["environment_source_builds"].default
    environment_owned: list[str] = msgspec.field(default_factory=list)
    named_environments: str = CLUSTER["named_environments"].default
    environment_timeout_s: float = CLUSTER["environment_timeout_s"].default
    environment_retention_s: float = CLUSTER["environment_retention_s"].default
    max_environments: int = CLUSTER["max_environments"].default
    allowed_hosts: list[str] = msgspec.field(default_factory=list)
    #: what the gateway removes from the store by itself
    retention: RetentionPolicy = RetentionPolicy()
    #: how users are told of their detached runs
    notify: NotifyRules = NotifyRules()
    gc_interval_s: float = CLUSTER["gc_interval_s"].default
    free_attempts: int = CLUSTER["free_attempts"].default
    user_requests_per_s: float = CLUSTER["user_requests_per_s"].default
    #: SQLite file; empty: ``<home>/ledger.sqlite``
    ledger: str = ""
    store_mode: StoreMode = StoreMode.SINGLE
    #: group of a store with the mode ``group``: name or number
    store_group: str = ""
    #: user of the gateway → account (name, number, or all of it); others have the account of their own name
    unix_users: dict[str, str | UnixUser] = msgspec.field(default_factory=dict)
    #: user of the gateway (``*``: all) → limits of the processes of their cells, where these run as their owners
    user_limits: dict[str, dict[str, tuple[int, int]]] = msgspec.field(default_factory=dict)
    #: ``PYTHONHASHSEED`` of the cells; kernels learn it
    hash_seed: str = DEFAULT_HASH_SEED
    #: class of the node agents (``module:Class``)
    agent_entry: str = "jupyter_gpu_release.node.agent.agent:NodeAgent"
    #: entries put on the ``PYTHONPATH`` of the actors (a package that is not installed on the cluster)
    python_path: list[str] = msgspec.field(default_factory=list)
    spool: str = CLUSTER["spool"].default
    persist_memory_bytes: int = CLUSTER["persist_memory_bytes"].default
    persist_bytes_per_s: int = CLUSTER["persist_bytes_per_s"].default
    reconcile_interval_s: float = CLUSTER["reconcile_interval_s"].default
    idle_agent_s: float = CLUSTER["idle_agent_s"].default
    ready_timeout_s: float = CLUSTER["ready_timeout_s"].default
    ray_namespace: str = RAY_NAMESPACE
    gateway_actor: str = GATEWAY_ACTOR

    @property
    def url(self) -> str:
        """Address that clients connect to."""
        return self.public_url or f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def scheme(self) -> str:
        """``https`` with a certificate, else ``http``."""
        return "https" if self.tls_cert else "http"


class RayHead(msgspec.Struct, frozen=True):
    """Ray's head node on this machine, as ``python -m jupyter_gpu_release.gateway.head_node`` is to start it."""

    #: Ray's temp folder
    folder: str
    #: where it listens
    address: str
    #: of the GCS; 0: one that is free
    gcs_port: int
    gpus: int
    cpus: int
    object_store_bytes: int
    #: free on ``address`` until Ray's agent for runtime environments takes it
    runtime_env_port: int


class RayWorker(msgspec.Struct, frozen=True):
    """A further node of Ray's, as ``python -m jupyter_gpu_release.gateway.worker_node`` is to start it."""

    folder: str
    #: ``host:port`` of the GCS, and where this node listens
    gcs_address: str
    address: str
    gpus: int
    cpus: int
    object_store_bytes: int
    runtime_env_port: int
    labels: dict[str, str]


class StartedRay(msgspec.Struct, frozen=True):
    """Its first line: ``host:port`` of the GCS. A :class:`Deployed` follows."""

    ray_address: str


def url_for_others(url: str, host: str) -> str:
    """The address for other machines: that of ``host``, for a gateway that listens on all of its addresses."""
    for everywhere in ("//0.0.0.0:", "//[::]:"):
        url = url.replace(everywhere, f"//{host}:")
    return url


class Deployed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one JSON line that ``python -m jupyter_gpu_release.gateway.deploy`` prints.

    ``ok`` false: ``code``, ``message`` and ``hint`` as in errors.py, exit status 1.
    """

    ok: bool
    url: str = ""
    created: bool = False
    pid: int = 0
    python: str = ""
    ray_version: str = ""
    version: str = ""
    gpus_total: int = 0
    nodes: int = 0
    code: str = ""
    message: str = ""
    hint: str = msgspec.field(default="", name="mend")
