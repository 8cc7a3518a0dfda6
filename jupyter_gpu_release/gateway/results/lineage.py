"""Records of what runs were made from, where they ran, and which results may be used again instead of running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from functools import partial

import msgspec
from blake3 import blake3
from sqlalchemy.engine import Engine

from ...errors import ClusterError
from ...host.background import BackgroundWork
from ...protocol.environments import Plan
from ...protocol.lineage import (
    ABSENT,
    MOST_DEPTH,
    MOST_RUNS,
    CacheAnswer,
    CacheCandidate,
    CacheQuestion,
    CacheUse,
    Environment,
    Lineage,
    Link,
    RunFacts,
    RunSummary,
)
from ...protocol.runs import RunRequest, RunView
from ...protocol.states import RunState
from ...protocol.wire import encode
from ..auth.permissions import Act, Caller, may
from ..cluster.nodes import Node, NodeTable
from ..db import lineage as db_lineage
from ..db.writer import LedgerWriter
from ..runs.manifests import Manifests
from ..runs.record import Persisting, Releasing, RunRecord

log = logging.getLogger(__name__)
#: how long an answer about a node's packages is good for a run's record (for reuse it is always asked anew)
_KNOWN_S = 60.0
#: small results are on the store a moment after their lease is gone: "Run All" again may be as quick
_SOON_S, _LOOK_S = 1.0, 0.02


class LineageService:
    """Every method runs on the event loop."""

    def __init__(self, engine: Engine, ledger: LedgerWriter, nodes: NodeTable, manifests: Manifests) -> None:
        self._engine = engine
        self._ledger = ledger
        self._nodes = nodes
        self._manifests = manifests
        self._noting = BackgroundWork()
        #: (node's agent, packages) → (when asked, answer)
        self._known: dict[tuple[str, tuple[str, ...]], tuple[float, Environment]] = {}
        #: run with a cache key → the nodes' packages when it was submitted
        self._submitted_in: dict[str, str] = {}

    # ------------------------------------------------------------------------------------- a run's life
    async def submitted(self, request: RunRequest) -> None:
        """A run that may be used again: remember what the nodes have now."""
        self._submitted_in[request.run] = (await self._common_environment(request.packages))[0]

    def finished(self, record: RunRecord) -> None:
        """The run is over: note where it was; if it went well it may be used again."""
        self._noting.spawn(self._note_end(record))

    async def _note_end(self, record: RunRecord) -> None:
        view, request, outcome = record.view, record.request, record.outcome
        before = self._submitted_in.pop(record.run, "")
        try:
            environment = await self._environment_of(view, request)
            if environment is not None:
                environment = in_front_of(environment, request.environment)
                write = partial(db_lineage.put_environment, request=request, environment=environment)
                self._ledger.write_later(f"facts of {view.run}", write)
                self._manifests.write_manifest(view, outcome, request, environment)
            if view.state == RunState.SUCCEEDED.word and request.cache_key and before:
                now, _ = await self._common_environment(request.packages)
                if now == before and await self._manifests.may_have_values(view.user, view.run, outcome):
                    key = partial(db_lineage.put_key, view=view, request=request, environment=now)
                    await asyncio.wait([self._ledger.write(key)])
        except ClusterError as error:
            log.info("run %s: its environment is not known: %s", view.run, error.message)

    async def _environment_of(self, view: RunView, request: RunRequest) -> Environment | None:
        node = next((node for node in self._nodes.ready() if node.host in view.hosts), None)
        if node is None:
            return None
        key = (f"{node.node}:{node.info.incarnation if node.info else ''}", tuple(request.packages))
        asked_at, known = self._known.get(key, (0.0, None))
        if known is None or time.monotonic() - asked_at > _KNOWN_S:
            known = await self._nodes.agent(node.node).environment(request.packages)
            self._known = dict(list(self._known.items())[-100:])
            self._known[key] = time.monotonic(), known
        return known

    # ------------------------------------------------------------------------------------------- reuse
    async def _common_environment(self, packages: list[str]) -> tuple[str, str]:
        """Digest of what all nodes have of these packages, or an empty one and why there is none."""
        nodes = self._nodes.ready()
        try:
            found = await asyncio.gather(*(self._nodes.agent(node.node).environment(packages) for node in nodes))
        except ClusterError as error:
            return "", f"the packages of the nodes are not known: {error.message}"
        return _agreed(nodes, list(found))

    async def candidates(self, caller: Caller, question: CacheQuestion, live: Iterable[RunRecord]) -> CacheAnswer:
        """The caller's own runs with this key whose results are at hand, newest first; ``live``: runs not over."""
        environment, reason = await self._common_environment(question.packages)
        if not environment:
            return CacheAnswer(reason=reason)
        twins = [each for each in live if each.view.user == caller.user and each.request.cache_key == question.key]
        await self._until_noted(twins)
        found = await self._manifests.threads.run(self._find, caller.user, question.key, environment)
        still = [twin.run for twin in twins if not twin.state.is_terminal]
        return CacheAnswer(found, under_way=still[-1] if still and not found else "")

    async def _until_noted(self, twins: list[RunRecord]) -> None:
        """Runs whose results are being written, and ends that are being noted, get a moment."""
        deadline = time.monotonic() + _SOON_S
        while any(_is_being_noted(twin) for twin in twins):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(_LOOK_S)
        if self._noting.tasks:
            await asyncio.wait(list(self._noting.tasks), timeout=max(0.0, deadline - time.monotonic()))

    def _find(self, user: str, key: str, environment: str) -> list[CacheCandidate]:
        with self._engine.connect() as connection:
            found = db_lineage.find_key(connection, user, key, environment)
        return [
            CacheCandidate(run, finished_at, marks, outcome.tracked)
            for run, finished_at, marks, outcome in found
            if outcome.status == "ok" and self._manifests.has_values(user, run, outcome)
        ]

    async def reused(self, run: str, use: CacheUse) -> None:
        """Results of ``run`` were bound again; returns once that is committed."""
        await self._ledger.write(partial(db_lineage.put_use, run=run, use=use))

    # ----------------------------------------------------------------------------------------- lineage
    async def document_of(self, caller: Caller, record: RunRecord) -> Lineage:
        """A run with what it was made from and what was made from it."""
        await self._until_noted([])
        self._ledger.flush()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ledger.drain(), _SOON_S)
        return await asyncio.to_thread(self._document_of, caller, record)

    def _document_of(self, caller: Caller, record: RunRecord) -> Lineage:
        is_own = may(caller, record.view.user, Act.LOAD)
        with self._engine.connect() as connection:
            up, cut_up = _walk(partial(db_lineage.links_of, connection, up=True), record.run, up=True)
            down, cut_down = _walk(partial(db_lineage.links_of, connection, up=False), record.run, up=False)
            links = list(dict.fromkeys([*up, *down]))
            names = dict.fromkeys([record.run, *(run for link in links for run in (link.source, link.run))])
            views = db_lineage.views_of(connection, names)
            facts = db_lineage.facts_of(connection, record.run) if is_own else RunFacts()
            reused = db_lineage.uses_of(connection, record.run)
            is_reusable = db_lineage.is_keyed(connection, record.run)
        runs = [_summary(run, views.get(run), caller) for run in names]
        tracked = record.outcome.tracked if is_own and record.outcome is not None else []
        return Lineage(record.run, facts, tracked, runs, links, reused, is_reusable, cut_up or cut_down)


def _is_being_noted(record: RunRecord) -> bool:
    """Tell if its cell has ended well, or not, and that is not written down yet."""
    stage = record.stage
    return isinstance(stage, Persisting) or (isinstance(stage, Releasing) and stage.outcome is not None)


def _agreed(nodes: list[Node], found: list[Environment]) -> tuple[str, str]:
    if not found:
        return "", "no node is there to tell its packages"
    unknown = sorted({name for environment in found for name in environment.unknown})
    if unknown:
        return "", f"it is not known which {', '.join(unknown)} the nodes have"
    digests = {_digest(environment) for environment in found}
    if len(digests) > 1:
        hosts = ", ".join(node.host for node in nodes[:4])
        return "", f"the nodes have different packages ({hosts})"
    return digests.pop(), ""


def in_front_of(nodes: Environment, plan: Plan | None) -> Environment:
    """Packages of a run that found those of ``plan`` in front of its node's own."""
    if plan is None:
        return nodes
    behind = {} if plan.interpreter else nodes.packages
    packages = {name: version for name, version in behind.items() if version != ABSENT}
    packages |= {each.name: f"{each.version} {each.digest}".strip() for each in plan.packages}
    python = plan.python if plan.interpreter else nodes.python
    return msgspec.structs.replace(nodes, packages=dict(sorted(packages.items())), python=python, digest=plan.digest)


def _digest(environment: Environment) -> str:
    counts = msgspec.structs.replace(environment, platform="")  # a kernel's security update is no other environment
    return str(blake3(encode(counts)).hexdigest())


def _walk(links_of: partial[list[Link]], run: str, *, up: bool) -> tuple[list[Link], bool]:
    """All links in one direction, breadth first; each run is visited once, so that even a loop would end."""
    seen, layer = {run}, [run]
    found: list[Link] = []
    for _ in range(MOST_DEPTH):
        if not layer:
            return found, False
        links: list[Link] = links_of(layer)
        found += links
        layer = list(dict.fromkeys(other for link in links if (other := link.source if up else link.run) not in seen))
        seen.update(layer)
        if len(seen) > MOST_RUNS:
            return found, True
    return found, bool(layer)


def _summary(run: str, view: RunView | None, caller: Caller) -> RunSummary:
    if view is None or not may(caller, view.user, Act.READ):
        return RunSummary(run, is_known=False)
    return RunSummary(
        run, True, view.state, view.name, view.notebook, view.submitted_at, view.gpus, view.gpu_name, view.simulated
    )
