"""``AgentClient``: the calls to one node's agent, with limits; on the gateway's own host past Ray."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

import msgspec
import ray

from ...errors import ClusterError
from ...host.unix_socket_calls import ConnectionClosedError, LocalCallError, LocalConnection
from ...protocol.config import UnixUser
from ...protocol.environments import (
    BuildReport,
    ClusterPackages,
    EnvironmentRow,
    PackagesAnswer,
    Plan,
    Question,
    Versions,
)
from ...protocol.events import Event
from ...protocol.lineage import Environment
from ...protocol.node import (
    AGENT_PROTOCOL,
    AttemptId,
    GpuInfo,
    JoinOrder,
    NodeAgentApi,
    NodeInfo,
    NodeRun,
    PrepareOrder,
    ProbeOrder,
    ProbeReport,
    StartOrder,
)
from ...protocol.runs import Outcome
from ...protocol.wire import Packed, decode, encode, pack, unpack
from ...settings.built_in import BUILT_IN
from .ray_calls import awaited, last_line

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")
#: an agent answers within milliseconds, but for what is said below
CALL_S = 10.0
#: an agent that has not taken an order after this will not
START_S = 30.0
#: ranks whose leader is gone are killed at once; a node that has not done so after this is in trouble
_LEAVE_S = 5.0
#: a driver or a package that is slow keeps nobody waiting
_GPUS_S, _IMPORTS_S = 2.0, 5.0
#: an agent whose connection broke says through Ray that it lives, or that it is another one
_ALIVE_S = 3.0
#: for what is read from disks
_READ_S, _PROBE_S = 30.0, 20.0
#: for an index to say what it has
_CHECK_S = 90.0
#: for imports, one library after another
_PREPARE_S: float = BUILT_IN["prepare_s"].default


class AgentDiedError(ClusterError):
    """The agent is not there any more. One that is only silent, or that says what hinders it, may be well."""


class AgentListener(Protocol):
    """Hears of agents that fail. Called on the gateway's event loop; nothing here may wait or raise."""

    def life_of(self, node: str) -> str:
        """The life of the node's agent as it last introduced itself. Called before each call."""

    def protocol_of(self, node: str) -> int:
        """The protocol that the node's agent speaks (:data:`.AGENT_PROTOCOL`). Called before each call."""

    def on_agent_died(self, node: str) -> None:
        """Ray will not restart the node's agent. Called before the call that found it raises."""

    def on_agent_unreachable(self, node: str, life: str, problem: str) -> None:
        """A call to the agent, in this ``life`` of it, did not reach it. Called before that call raises."""


class AgentCall(Generic[_Answer]):
    """A call to an agent that has been sent; ``sent`` is Ray's reference of the answer, or its future.

    A connection may break over it: ``through_ray`` is the same agent, called through Ray, and ``send_again`` sends the
    call there.
    """

    def __init__(
        self,
        node: str,
        sent: Any,
        listener: AgentListener,
        through_ray: AgentClient | None = None,
        send_again: Callable[[], AgentCall[_Answer]] | None = None,
    ) -> None:
        self._node = node
        self._sent = sent
        self._listener = listener
        self._through_ray = through_ray
        self._send_again = send_again
        self._life = listener.life_of(node)

    async def answer(self, timeout_s: float | None = None) -> _Answer:
        """Await the answer; raises :class:`ClusterError` when it does not come in time (:data:`CALL_S`).

        An agent that cannot be reached takes no runs until it is heard of again: each would be lost. One that lives on
        after its connection broke is asked once more: it takes each call twice.
        """
        limit_s = CALL_S if timeout_s is None else timeout_s
        try:
            answer: _Answer = await asyncio.wait_for(awaited(self._sent), limit_s)
        except TimeoutError as error:
            raise ClusterError(f"the agent of node {self._node[:8]} did not answer within {limit_s:g} s") from error
        except ConnectionClosedError as error:
            if self._send_again is None or not await self._lives_on():
                raise self._failed(error) from error
            return await self._send_again().answer(limit_s)
        except (ray.exceptions.RayError, LocalCallError) as error:
            raise self._failed(error) from error
        return answer

    async def _lives_on(self) -> bool:
        """Tell if the agent is still in the life that was called: another one might begin a cell a second time."""
        if self._through_ray is None or not self._life:
            return False
        with contextlib.suppress(ClusterError):
            return (await self._through_ray.hello(_ALIVE_S)).incarnation == self._life
        return False

    def _failed(self, error: Exception) -> ClusterError:
        problem = f"the agent of node {self._node[:8]} failed: {last_line(error)}"
        if isinstance(error, ray.exceptions.ActorDiedError):
            self._listener.on_agent_died(self._node)
        if isinstance(error, ray.exceptions.RayActorError | ConnectionClosedError):
            self._listener.on_agent_unreachable(self._node, self._life, problem)
        is_only_silent = isinstance(error, ray.exceptions.ActorUnavailableError)  # a network may do that
        is_dead = isinstance(error, ray.exceptions.RayActorError | ConnectionClosedError) and not is_only_silent
        return AgentDiedError(problem) if is_dead else ClusterError(problem)


class AgentClient:
    """The agent of one node, as the gateway calls it: what each call does is said in :class:`.NodeAgentApi`.

    Every method is called on the gateway's event loop, and raises :class:`ClusterError` when the agent does not answer
    in time, is dead, or says so itself.
    """

    def __init__(
        self, node: str, handle: Any, listener: AgentListener, connection: LocalConnection | None = None
    ) -> None:
        self._node = node
        #: Ray's handle of the actor
        self._handle = handle
        self._connection = connection
        self._listener = listener

    def _send(
        self,
        method: Callable[Concatenate[NodeAgentApi, _Asked], Coroutine[Any, Any, _Answer]],
        *arguments: _Asked.args,
        **named: _Asked.kwargs,
    ) -> AgentCall[_Answer]:
        """Send a call: in this order they arrive."""
        if self._connection is not None and self._connection.is_open:
            sent: Any = self._connection.call(method.__name__, *arguments, **named)
            through_ray = AgentClient(self._node, self._handle, self._listener)
            send_again = partial(through_ray._send, method, *arguments, **named)
            return AgentCall(self._node, sent, self._listener, through_ray, send_again)
        sent = getattr(self._handle, method.__name__).remote(*arguments, **named)
        return AgentCall(self._node, sent, self._listener)

    @property
    def _is_earlier(self) -> bool:
        """Tell if the agent is from before `start --upgrade`, and knows runs without their attempts."""
        return self._listener.protocol_of(self._node) < AGENT_PROTOCOL

    def _named(self, attempt_id: AttemptId) -> Packed[AttemptId]:
        return cast("Packed[AttemptId]", attempt_id.run) if self._is_earlier else pack(attempt_id)

    def _all_named(self, attempt_ids: list[AttemptId]) -> Packed[list[AttemptId]]:
        if self._is_earlier:
            return cast("Packed[list[AttemptId]]", [attempt_id.run for attempt_id in attempt_ids])
        return pack(attempt_ids)

    # ------------------------------------------------------------------------------------- a run's beginning
    def start(self, order: StartOrder) -> AgentCall[None]:
        """Send an order; await its acceptance with :data:`START_S`."""
        return self._send(NodeAgentApi.start, pack(order))

    async def grant(self, attempt_id: AttemptId, gpu_ids: list[str]) -> None:
        """Say which accelerators a run has on this node."""
        await self._send(NodeAgentApi.grant, self._named(attempt_id), gpu_ids).answer(START_S)

    def abandon(self, attempt_id: AttemptId) -> None:
        """Have it forget a run whose lease came to nothing, or end it if it has begun; nobody waits for that."""
        self._send(NodeAgentApi.abandon, self._named(attempt_id))

    async def forget_unbegun(self, attempt_id: AttemptId) -> bool:
        """Have it forget a run that has not begun; False: it may have."""
        return await self._send(NodeAgentApi.forget_unbegun, self._named(attempt_id)).answer()

    async def has_begun(self, attempt_id: AttemptId) -> bool:
        """Tell if a run began there, also in an earlier life of the agent."""
        return await self._send(NodeAgentApi.has_begun, self._named(attempt_id)).answer()

    # ------------------------------------------------------------------------------------ gangs over nodes
    async def open_rank_listener(self) -> tuple[str, int]:
        """Address and port at which other nodes lend their ranks to gangs that it leads."""
        return await self._send(NodeAgentApi.open_rank_listener).answer()

    def start_remote_ranks(self, order: JoinOrder) -> AgentCall[None]:
        """Send the order to lend ranks to a gang; await its acceptance with :data:`START_S`."""
        return self._send(NodeAgentApi.start_remote_ranks, pack(order))

    async def has_remote_ranks(self, attempt_id: AttemptId) -> bool:
        """Tell if it lends ranks to this gang."""
        return await self._send(NodeAgentApi.has_remote_ranks, self._named(attempt_id)).answer()

    async def end_ranks(self, attempt_id: AttemptId) -> None:
        """Have it end all that it has of an attempt, lent or led; returns when none of its processes is left."""
        await self._send(NodeAgentApi.end_remote_ranks, self._named(attempt_id)).answer(_LEAVE_S)

    async def lose_member(self, attempt_id: AttemptId, node: str) -> None:
        """Tell the leader of a gang that ``node`` is gone."""
        await self._send(NodeAgentApi.lose_member, self._named(attempt_id), node).answer()

    # --------------------------------------------------------------------------------------- while it runs
    async def signal(self, attempt_id: AttemptId, name: str, reason: str = "interrupted") -> None:
        """``interrupt`` or ``kill`` a run."""
        await self._send(NodeAgentApi.signal, self._named(attempt_id), name, reason).answer()

    async def step_aside(self, attempt_id: AttemptId) -> bool:
        """Have a restartable run save itself and end at its next safe point; False: it cannot."""
        if self._is_earlier:
            named = cast("tuple[Packed[AttemptId]]", (attempt_id.run, attempt_id.attempt))
            return await self._send(NodeAgentApi.step_aside, *named).answer()
        return await self._send(NodeAgentApi.step_aside, pack(attempt_id)).answer()

    async def pass_answer(self, attempt_id: AttemptId, rank: int, body: bytes) -> None:
        """Pass a kernel's answer on to a rank that has asked."""
        await self._send(NodeAgentApi.answer_rank, self._named(attempt_id), rank, body).answer()

    async def runs(self) -> list[NodeRun]:
        """The runs of the node, as its agent knows them."""
        return runs_of_any_version(await self._send(NodeAgentApi.runs).answer())

    async def events(self, attempt_id: AttemptId, after: int) -> list[Event]:
        """Recorded events of a run above ``after``."""
        return unpack(
            await self._send(NodeAgentApi.events, self._named(attempt_id), after).answer(_READ_S), list[Event]
        )

    # --------------------------------------------------------------------------------------- after it ended
    async def forget_runs(self, attempt_ids: list[AttemptId]) -> None:
        """Tell it that the end of these attempts is recorded."""
        if attempt_ids:
            await self._send(NodeAgentApi.forget_runs, self._all_named(attempt_ids)).answer()

    async def give_up_results(self, attempt_id: AttemptId, reason: str) -> bool:
        """Have it drop a run's results that are not durable yet; False: there are none."""
        return await self._send(NodeAgentApi.give_up_results, self._named(attempt_id), reason).answer()

    async def keep_results(self, attempt_id: AttemptId, folder: str, outcome: Outcome) -> None:
        """Have it write small results that the gateway has."""
        await self._send(NodeAgentApi.keep_results, self._named(attempt_id), folder, pack(outcome)).answer()

    # ------------------------------------------------------------------------------------------- the node
    async def hello(self, timeout_s: float | None = None) -> NodeInfo:
        """Facts about the node, and which life of its agent this is."""
        return unpack(await self._send(NodeAgentApi.hello).answer(timeout_s), NodeInfo)

    async def gpus(self) -> list[GpuInfo]:
        """The node's GPUs with their use now."""
        return unpack(await self._send(NodeAgentApi.gpus).answer(_GPUS_S), list[GpuInfo])

    async def missing_imports(self, names: list[str]) -> list[str]:
        """The top-level packages of ``names`` that are not installed there."""
        return await self._send(NodeAgentApi.missing_imports, names).answer(_IMPORTS_S)

    async def prepare(self, order: PrepareOrder) -> None:
        """Have it import what cells need; returns when that is done, as far as it can be."""
        await self._send(NodeAgentApi.prepare, pack(order)).answer(_PREPARE_S)

    async def end_session(self, session: str) -> None:
        """Tell it that a kernel has ended."""
        await self._send(NodeAgentApi.end_session, session).answer()

    async def environment(self, imports: list[str]) -> Environment:
        """The packages that these top-level imports mean there."""
        return unpack(await self._send(NodeAgentApi.environment, imports).answer(_READ_S), Environment)

    async def installed_packages(self, pythons: list[str]) -> ClusterPackages:
        """Packages that are installed there, and in these other Pythons."""
        answer = self._send(NodeAgentApi.installed_packages, pythons).answer(_CHECK_S if pythons else _READ_S)
        return unpack(await answer, ClusterPackages)

    async def check_environment(self, plan: Plan) -> PackagesAnswer:
        """Tell if the packages of an environment can be had there."""
        answer = self._send(NodeAgentApi.check_environment, pack(plan)).answer(_CHECK_S)
        return unpack(await answer, PackagesAnswer)

    async def resolve_packages(self, question: Question) -> Versions:
        """Versions of packages for an environment."""
        return unpack(await self._send(NodeAgentApi.resolve_packages, pack(question)).answer(_CHECK_S), Versions)

    async def build_environment(
        self, plan: Plan, wheels: list[bytes], owner: UnixUser | None, limit_s: float
    ) -> BuildReport:
        """Have an environment built, and a fork server started in it, as ``owner`` where that matters."""
        whose = () if owner is None else (pack(owner),)
        answer = self._send(NodeAgentApi.build_environment, pack(plan), wheels, *whose).answer(limit_s)
        return unpack(await answer, BuildReport)

    async def list_environments(self) -> list[EnvironmentRow]:
        """Environments that are ready there."""
        return unpack(await self._send(NodeAgentApi.list_environments).answer(_READ_S), list[EnvironmentRow])

    async def remove_environment(self, digest: str) -> bool:
        """Remove one there; False: it is in use, or not there."""
        return bool(await self._send(NodeAgentApi.remove_environment, digest).answer(_READ_S))

    async def count_fetched(self, plan: Plan) -> int:
        """Packages of an environment that are there already."""
        return int(await self._send(NodeAgentApi.count_fetched, pack(plan)).answer())

    async def stop_build(self, digest: str) -> None:
        """End a build that nobody waits for."""
        await self._send(NodeAgentApi.stop_build, digest).answer()

    async def probe_store(self, path: str) -> str:
        """Have it write and read the store: empty when well, else the error."""
        return await self._send(NodeAgentApi.probe_store, path).answer(_PROBE_S)

    async def probe_node(self, order: ProbeOrder) -> ProbeReport:
        """Have it try ports and names of the other nodes, and say what its frameworks and driver are."""
        return unpack(await self._send(NodeAgentApi.probe_node, pack(order)).answer(_PROBE_S), ProbeReport)


# ------------------------------------------------------------------------- agents from before `start --upgrade`
class _EarlierReport(msgspec.Struct):
    node: str
    incarnation: str
    messages: list[dict[str, msgspec.Raw]]


def runs_of_any_version(answer: bytes) -> list[NodeRun]:
    """The attempts that an agent knows: which version it has may not have been heard yet."""
    found: list[NodeRun]
    try:
        found = decode(answer, list[NodeRun])
    except msgspec.ValidationError:
        told = [_with_attempt(run, lambda _: 0) for run in decode(answer, list[dict[str, msgspec.Raw]])]
        found = decode(encode(told), list[NodeRun])
    return found


def with_attempts(report: bytes, attempt_of: Callable[[str], int]) -> bytes:
    """A report with the attempts that an agent from before did not say: ``attempt_of`` tells those of its runs."""
    told = decode(report, _EarlierReport)
    messages = [_with_attempt(message, attempt_of) for message in told.messages]
    return encode({"node": told.node, "incarnation": told.incarnation, "messages": messages})


def _with_attempt(fields: dict[str, msgspec.Raw], attempt_of: Callable[[str], int]) -> dict[str, Any]:
    run = decode(bytes(fields["run"]), str)
    attempt = decode(bytes(fields["attempt"]), int) if "attempt" in fields else attempt_of(run)
    others = {name: value for name, value in fields.items() if name not in ("run", "attempt")}
    return {**others, "attempt_id": AttemptId(run, attempt)}
