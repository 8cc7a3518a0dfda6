"""The gateway's life in its process: HTTP in its event loop, recovery, and a look around every few seconds."""

from __future__ import annotations

import asyncio
import gc
import logging
import logging.handlers
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import ray
from sqlalchemy.engine import Connection

from .._version import __version__
from ..errors import ClusterError, GpuReleaseError, OptionError
from ..host.certificates import OwnCertificate
from ..protocol.config import Deployed, GatewayConfig
from ..protocol.node import GatewayApi, NodeInfo, NodeReport, RunAsks
from ..protocol.wire import Packed, decode, unpack
from ..store.files import make_private_folder
from .api.app import build_app, open_port, serve
from .api.route_table import ROUTES
from .cluster.agent_client import with_attempts
from .cluster.lease_workers import warm_worker
from .cluster.ray_calls import START_S
from .db import database
from .db.ledger_copy import restore_ledger
from .db.store_identity import meant_store
from .reconcile import node_liveness
from .reconcile.recovery import compare_with_cluster, read_ledger, restore_sessions
from .reconcile.scaling import Scaling
from .reconcile.stray_leases import Reconciliation
from .runs.events import RawMessage, RawReport, RawRunEvents
from .runs.record import RunRecord
from .service import GatewayService

log = logging.getLogger(__name__)
_PORT_PATIENCE_S = 20.0
#: between two looks at the nodes at least, and for each of them
_NODES_S, _NODE_S = 1.0, 0.01
#: rounds of the look-around between two of its slower parts
_SLOW_EVERY = 20
#: small results are read from the ledger for so long after a run, then from the store
_VALUES_KEPT_S = 300.0
#: Ray is asked in threads: their answers need not wait for the loop's next pause (5 ms by Python's default)
_SWITCH_S = 0.0005


class Gateway(GatewayApi):
    """Answers the node agents and ``gateway.deploy`` (through ``ray_actor``). Clients come through HTTP."""

    def __init__(self, config: bytes) -> None:
        self._config = decode(config, GatewayConfig)
        _log_to_file(Path(self._config.home) / "log")
        log.info("gateway %s starts, pid %d", __version__, os.getpid())
        sys.setswitchinterval(_SWITCH_S)
        restore_ledger(self._config)
        self._service = self._build_service()
        self._reconciliation = Reconciliation(self._service)
        self._scaling = Scaling(self._service)
        self._serving: asyncio.Task[None] | None = None
        self._certificate: OwnCertificate | None = None
        self._failure: GpuReleaseError | None = None
        self._rounds = 0
        self._collect_at = 0.0
        self._stripped_to = 0.0
        self._warmed: set[str] = set()
        self._main = asyncio.get_event_loop().create_task(self._run())

    # --------------------------------------------------------------------------------- called through Ray
    async def describe(self) -> bytes:
        """JSON :class:`Deployed`: where the gateway is, or why it is not."""
        if self._failure is not None:
            error = self._failure
            return msgspec.json.encode(Deployed(False, code=error.code, message=error.message, hint=error.hint))
        health = self._service.health()
        answer = Deployed(
            ok=self._serving is not None and self._service.recovered.is_set(),
            url=self._service.url,
            pid=os.getpid(),
            version=__version__,
            python=platform.python_version(),
            ray_version=ray.__version__,
            gpus_total=health.gpus_total,
            nodes=health.agents,
        )
        return msgspec.json.encode(answer)

    async def node_up(self, info: Packed[NodeInfo]) -> None:
        """A node agent introduces itself; a new incarnation means that its earlier runs are gone."""
        await self._service.recovered.wait()
        await node_liveness.on_node_up(self._service, unpack(info, NodeInfo))
        self._warm_workers()

    async def node_report(self, report: Packed[NodeReport]) -> None:
        """Events and phases of runs; may be repeated."""
        await self._service.recovered.wait()
        told, service = self._decoded(report), self._service
        service.end_attempts(told.node, {m.attempt_id for m in told.messages if service.runs.is_outdated(m.attempt_id)})
        for message in told.messages:
            record = service.runs.find(message.attempt_id.run)
            if record is None or message.attempt_id != record.attempt_id:
                continue
            try:
                self._hear(record, message)
            except Exception:  # a node says again what raises: one message must not hold back all that follow it
                log.exception("run %s: a %s of its node could not be taken in", record.run, type(message).__name__)

    def _hear(self, record: RunRecord, message: RawMessage) -> None:
        if isinstance(message, RawRunEvents):
            record.tail.add(message.events)
            record.notify()
        elif isinstance(message, RunAsks):
            self._service.fetches.on_question(record, message.rank)
        else:
            self._service.lifecycle.hear(record, message)

    # ------------------------------------------------------------------------------------------ inside
    def _decoded(self, report: bytes) -> RawReport:
        try:
            return decode(report, RawReport)
        except msgspec.ValidationError:
            return decode(with_attempts(report, self._service.runs.attempt_of), RawReport)

    def _build_service(self) -> GatewayService:
        return GatewayService(self._config, end_process, api=self)

    async def _run(self) -> None:
        try:
            await self._start_up()
        except GpuReleaseError as error:
            self._failure = error
            log.error("the gateway cannot start: %s", error)
            return
        except Exception as error:  # deploy must hear of it, whatever it is
            self._failure = ClusterError(f"the gateway cannot start: {error!r}", hint="see log/gateway.log in its home")
            log.exception("the gateway cannot start")
            return
        interval_s = self._config.reconcile_interval_s
        due_s = time.monotonic() + interval_s
        while True:
            pause, queue = pause_s(len(self._service.nodes.alive()), interval_s), self._service.lifecycle.queue
            await (queue.until_more_lack(pause) if self._service.node_source.scales else asyncio.sleep(pause))
            if time.monotonic() < due_s:
                await self._look([self._look_at_nodes])
                continue
            await self._look_around()
            due_s = time.monotonic() + interval_s

    async def _start_up(self) -> None:
        started = time.monotonic()
        await self._service.queue_rules.load()
        service = self._service
        service.nodes.store_id = await meant_store(service.engine, service.config, service.store_threads)
        remembered = read_ledger(self._service)
        await self._listen()
        restore_sessions(self._service, remembered)
        self._service.nodes.refresh(await self._service.ray_leases.nodes(START_S))
        self._service.usage.note_capacity(sum(self._service.nodes.totals().values()))
        self._warm_workers()
        await compare_with_cluster(self._service, remembered)
        await self._service.withheld_gpus.adopt()
        self._service.on_queues_changed()  # the file may be another than in an earlier life
        self._service.recovered.set()
        self._service.lifecycle.queue.open()
        self._service.notifier.resume()
        gc.freeze()  # what is loaded stays: collections that walk through it hold up every cell for 50 ms and more
        log.info("ready after %.2f s: %d runs live", time.monotonic() - started, len(self._service.runs.live()))

    async def _listen(self) -> None:
        """The same port as in an earlier life of this cluster's gateway."""
        config = self._config
        if config.tls_cert:
            self._certificate = OwnCertificate(config.tls_cert, config.tls_key)
        with self._service.engine.begin() as connection:
            ours = int(database.read_meta(connection, f"port {config.cluster}") or 0)
            port = config.port or ours
            try:
                listener = await open_port(config.host, port, _PORT_PATIENCE_S if port == ours else 0.0)
            except OSError as error:
                raise ClusterError(
                    f"the gateway cannot listen on {config.host}:{port}: {error.strerror}", hint="choose another --port"
                ) from error
            port = listener.getsockname()[1]
            database.write_meta(connection, f"port {config.cluster}", str(port))
        self._service.url = msgspec.structs.replace(config, port=port).url
        tls = self._certificate.context if self._certificate is not None else None
        self._serving = serve(build_app(self._service, ROUTES), listener, tls)

    async def _look_around(self) -> None:
        """Nodes that came or went, agents that are missing, groups that nobody holds, sockets that fell silent."""
        await self._look(
            [
                self._look_at_clients,
                self._look_at_nodes,
                self._reconciliation.compare_once,
                self._look_at_others,
                self._tidy,
            ]
        )

    async def _look(self, looks: Sequence[Callable[[], Awaitable[None]]]) -> None:
        for look in looks:
            try:
                await look()
            except ClusterError as error:
                log.warning("the look around: %s", error.message)
            except Exception:  # the next round may do better, but there must be one
                log.exception("the look around failed")

    async def _look_at_nodes(self) -> None:
        """Nodes that came or went, and whether there should be others."""
        await node_liveness.refresh_nodes(self._service)
        await self._scaling.look()

    async def _look_at_clients(self) -> None:
        self._renew_certificate()
        self._service.ledger.probe_disk()
        await self._service.sessions.check_silence()

    def _renew_certificate(self) -> None:
        try:
            if self._certificate is not None and self._certificate.renew():
                log.info("the certificate %s was renewed; new connections get it", self._config.tls_cert)
        except OptionError as error:
            log.error("the certificate is not replaced: %s", error.message)

    async def _tidy(self) -> None:
        self._service.withheld_gpus.look_anew()
        self._service.lifecycle.spawn(self._service.queue_rules.look())
        self._service.warm.tidy()
        self._service.audit.write_counts()
        self._warm_workers()
        self._service.lifecycle.queue.serve()
        self._collect_when_due()
        self._service.ledger_copy.look()
        self._rounds += 1
        if self._rounds % _SLOW_EVERY == 1:
            self._service.ledger.write(self._strip_old_values)

    def _strip_old_values(self, connection: Connection) -> None:
        """Drop old values from the ledger, on the ledger's thread."""
        before_s = time.time() - _VALUES_KEPT_S
        self._stripped_to = database.strip_old_values(connection, self._stripped_to, before_s)

    async def _look_at_others(self) -> None:
        """GPUs that others than us use in Ray, and how many there are."""
        leases = self._service.leases
        self._service.usage.note_capacity(sum(self._service.nodes.totals().values()))
        external = await self._service.ray_leases.external_gpus(self._service.nodes.totals())
        if external is not None and external != leases.external:
            leases.external = external
            self._service.status_feed.note_change()

    def _collect_when_due(self) -> None:
        """Collect where the operator has set limits; what a crash interrupted is finished in any case."""
        now_s = time.monotonic()
        if now_s < self._collect_at:
            return
        limited = self._config.retention.has_limits
        self._collect_at = now_s + self._config.gc_interval_s if limited else float("inf")
        self._service.lifecycle.spawn(self._service.result_collector.tidy(self._config.retention))

    def _warm_workers(self) -> None:
        """Warm one worker of each node, while its agent is still starting, and whenever the agent has none."""
        for node in self._service.nodes.alive():
            if node.is_asleep:
                continue
            if node.node not in self._warmed or (node.info is not None and not node.info.has_lease_worker):
                self._warmed.add(node.node)
                self._service.lifecycle.spawn(warm_worker(node.node, self._config.runtime))


def pause_s(nodes: int, interval_s: float) -> float:
    """The pause between two looks at the nodes: what comes or goes is noticed within 2 s, and many cost more."""
    return min(interval_s, max(_NODES_S, nodes * _NODE_S))


def end_process() -> None:
    """End at once, as by a kill: Ray starts the next gateway, which goes on from what is committed."""
    log.critical("nothing can be committed any more: the gateway ends, and Ray starts the next one")
    logging.shutdown()
    os._exit(1)


def _log_to_file(folder: Path) -> None:
    make_private_folder(folder)
    handler = logging.handlers.RotatingFileHandler(folder / "gateway.log", maxBytes=5 << 20, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name, level in (("jupyter_gpu_release", logging.INFO), ("uvicorn", logging.ERROR), ("asyncio", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs whole URLs, and a webhook's is a secret
