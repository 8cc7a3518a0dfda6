"""How a gateway is set up: written by the command line (0600), read by ``broker.deploy`` and the gateway actor."""

from __future__ import annotations

import msgspec

from .hash_seed import DEFAULT as DEFAULT_HASH_SEED

RAY_NAMESPACE = "jupyter_gpu_release"
GATEWAY_ACTOR = "gateway"


class RetentionPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which results of runs that are over may go. 0: no limit; nothing is removed by a policy without limits."""

    #: seconds since a run's results were last used (made, attached, loaded, reused)
    older_than_s: float = 0.0
    #: runs of one user's notebook that stay, newest first
    keep: int = 0
    #: bytes on the store for each user; the least recently used go first
    quota_bytes: int = 0

    @property
    def has_limits(self) -> bool:
        """Whether anything is ever removed by it."""
        return bool(self.older_than_s or self.keep or self.quota_bytes)


class GatewayConfig(msgspec.Struct, frozen=True, omit_defaults=True):
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
    host: str = "127.0.0.1"
    port: int = 0
    #: what clients are told to connect to; empty: ``http://host:port``
    public_url: str = ""
    #: id of this cluster start (``JUPYTER_GPU_CLUSTER`` of its processes)
    cluster: str = ""
    simulated: bool = False
    embedded: bool = True
    #: libraries that the fork servers import; empty: the default list
    preload: list[str] = msgspec.field(default_factory=list)
    #: seconds that runs of a kernel whose connection closed are kept waiting for it
    reconnect_grace_s: float = 30.0
    #: seconds for which a node that does not answer is waited for, before the runs on it are lost
    node_grace_s: float = 60.0
    #: seconds for which GPUs may stay with a kernel after a cell (``--keep``) at most; 0: not at all
    max_keep_s: float = 600.0
    #: names under which clients may reach the gateway besides ``host`` and loopback
    allowed_hosts: list[str] = msgspec.field(default_factory=list)
    #: what the gateway removes from the store by itself
    retention: RetentionPolicy = RetentionPolicy()
    #: seconds between two collections (only where ``retention`` has limits)
    gc_interval_s: float = 3600.0
    #: unknown tokens that an address may show before it has to wait longer and longer
    free_attempts: int = 20
    #: SQLite file; empty: ``<home>/ledger.sqlite``
    ledger: str = ""
    #: what ``store.json`` in the store must say; empty: what the ledger remembers
    store_id: str = ""
    #: ``PYTHONHASHSEED`` of the cells; kernels learn it
    hash_seed: str = DEFAULT_HASH_SEED
    #: class of the node agents (``module:Class``)
    agent_entry: str = "jupyter_gpu_release.node.agent:NodeAgent"
    #: entries put on the ``PYTHONPATH`` of the actors (a package that is not installed on the cluster)
    python_path: list[str] = msgspec.field(default_factory=list)
    #: folder on a local disk of each node for results that cannot be written to the store yet
    spool: str = ""
    #: most bytes of results that may wait in a node's memory; 0: a quarter of it
    persist_memory_bytes: int = 0
    #: writes of results to the store, bytes a second and run; 0: no limit
    persist_bytes_per_s: int = 0
    reconcile_interval_s: float = 3.0
    #: how long ``broker.deploy`` waits for the first node agent
    ready_timeout_s: float = 90.0
    ray_namespace: str = RAY_NAMESPACE
    gateway_actor: str = GATEWAY_ACTOR

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return self.public_url or f"http://{self.host}:{self.port}"


class Deployed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one JSON line that ``python -m jupyter_gpu_release.broker.deploy`` prints.

    ``ok`` false: ``code``, ``message`` and ``mend`` as in errors.py, exit status 1.
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
    mend: str = ""
