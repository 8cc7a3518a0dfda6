"""Sync and async REST clients."""

from __future__ import annotations

import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import httpx
import msgspec

from ..errors import GatewayUnavailableError, NoSuchRunError
from ..host.certificates import client_context
from ..protocol.admin import GcDocument, NodeDrain, TokenIssued, TokenRequest, TokenRevocation, TokensDocument
from ..protocol.environments import (
    BuildProgress,
    ClusterPackages,
    EnvironmentBuilt,
    EnvironmentRemoval,
    EnvironmentsDocument,
    PackagesAnswer,
    Plan,
    Question,
    Versions,
    WheelSent,
)
from ..protocol.lineage import CacheAnswer, CacheQuestion, CacheUse, Lineage
from ..protocol.rest import (
    EstimateDocument,
    EstimateQuestion,
    EventsPage,
    Health,
    LeaseExtension,
    NodeChecks,
    NotifyChange,
    NotifyDocument,
    QueuesDocument,
    ReportDocument,
    RunRow,
    RunsDocument,
    StatusDocument,
    WarmRow,
)
from ..protocol.runs import RunView
from ..protocol.states import RunState
from ..settings.built_in import BUILT_IN
from ..units import round_number
from .discovery import Target, refusal_error, unreachable

P = ParamSpec("P")
T = TypeVar("T")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def read_answer(url: str, path: str, response: httpx.Response, kind: type[T], *, configured: bool) -> T:
    """``response`` as a record of ``kind``.

    Raises what the gateway refused with, or :class:`GatewayUnavailableError` for an answer that no gateway gives.
    """
    if response.status_code >= 400:
        raise refusal_error(url, response.status_code, response.content, configured=configured)
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise GatewayUnavailableError(
            f"{url}{path} answered with something else than a gateway does: {error}",
            hint="is the address right, and the gateway of this version?",
        ) from error


def safe_path(name: str) -> str:
    """``name`` (an id from outside) with nothing in it that could lead elsewhere in a URL."""
    return "".join(letter for letter in name if letter.isalnum() or letter in "-_.").strip(".") or "-"


#: for a node to ask an index; for all of them to build, as long as the operator allows
_INDEX_S, _BUILD_S = 90.0, 3600.0
_MOST_RUNS: int = BUILT_IN["listed_runs"].default


@dataclass(frozen=True)
class _Request:
    """One request; ``patience_s``: how much longer than usual its answer may take."""

    method: str
    path: str
    kind: Any
    parameters: dict[str, Any]
    body: msgspec.Struct | bytes | None = None
    patience_s: float = 0.0

    def arguments(self, timeout_s: float) -> dict[str, Any]:
        """Arguments of httpx's ``request``; ``timeout_s``: for each step of a usual one."""
        content = self.body if self.body is None or isinstance(self.body, bytes) else msgspec.json.encode(self.body)
        return {
            "method": self.method,
            "url": self.path,
            "params": self.parameters,
            "content": content,
            "timeout": httpx.Timeout(timeout_s, read=timeout_s + self.patience_s),
        }


class GatewayRequests(ABC):
    """The requests to a gateway, a method each. :class:`GatewayClient` makes them, and :class:`AsyncGatewayClient`.

    Raises :class:`GatewayUnavailableError` when nobody answers, else what the gateway refuses with
    (:class:`AuthenticationError`, :class:`NoSuchRunError` …).
    """

    @abstractmethod
    def _send(self, request: _Request) -> Any:
        """Make the request; returns its answer, read."""

    def health(self) -> Health:
        """Tell if the gateway can take runs now."""
        return self._get("/v1/health", Health)

    def checks(self) -> NodeChecks:
        """Each node probed now, as ``doctor`` wants it."""
        return self._get("/v1/checks", NodeChecks)

    def status(self) -> StatusDocument:
        """The cluster's status: who holds what, who waits and why."""
        return self._get("/v1/status", StatusDocument)

    def queues(self) -> QueuesDocument:
        """The tree of queues: guarantees, use, fair shares, who waits."""
        return self._get("/v1/queues", QueuesDocument)

    def report(self, last_s: float) -> ReportDocument:
        """GPU-hours that were held in so many seconds up to now: the caller's, for admins everybody's."""
        return self._get("/v1/report", ReportDocument, seconds=int(last_s))

    def packages(self) -> ClusterPackages:
        """Packages that are installed on the nodes."""
        return self._get("/v1/packages", ClusterPackages)

    def check_packages(self, plan: Plan) -> PackagesAnswer:
        """Ask if nodes can get the packages of an environment."""
        return self._ask("POST", "/v1/packages/check", PackagesAnswer, {}, plan, _INDEX_S)

    def resolve_packages(self, question: Question) -> Versions:
        """Versions of packages that go with the nodes' own."""
        return self._ask("POST", "/v1/packages/resolve", Versions, {}, question, _INDEX_S)

    def send_wheel(self, digest: str, content: bytes) -> WheelSent:
        """Send a wheel of this machine's own."""
        return self._ask("POST", f"/v1/packages/wheels/{digest}", WheelSent, {}, content)

    def ask_estimate(self, question: EstimateQuestion) -> EstimateDocument:
        """When a run would start that asks for this; raises what its submission would be refused with."""
        return self._ask("POST", "/v1/outlook", EstimateDocument, {}, question)

    def estimate(self, run: str) -> EstimateDocument:
        """When a waiting run will start, and what would start sooner."""
        return self._get(f"/v1/runs/{safe_path(run)}/outlook", EstimateDocument)

    def runs(self, limit: int = 100, *, mine: bool = False, brief: bool = False) -> RunsDocument:
        """The newest runs first, everybody's or the caller's own; ``brief``: without what came out of them."""
        asked = {"mine": "true"} if mine else {}
        return self._get("/v1/runs", RunsDocument, limit=limit, **asked | ({"brief": "true"} if brief else {}))

    def trials(self, *sweeps: str) -> RunsDocument:
        """The runs of sweeps' trials, newest first, and those that drive them, if there are any."""
        return self._get("/v1/runs", RunsDocument, limit=_MOST_RUNS, mine="true", sweep=",".join(sweeps))

    def run(self, run: str) -> RunRow:
        """One run."""
        return self._get(f"/v1/runs/{safe_path(run)}", RunRow)

    def view(self, run: str, *, session: str = "") -> RunView:
        """One run with its outcome: the values' digest, and small ones whole (for its owner).

        ``session``: the kernel that loads them; they are not collected while it is there.
        """
        return self._get(f"/v1/runs/{safe_path(run)}/outcome", RunView, **({"session": session} if session else {}))

    def cancel(self, run: str, *, kill: bool = False) -> RunRow:
        """End a run: an interrupt first, the second time (or with ``kill``) a kill."""
        parameters = {"kill": "true"} if kill else {}
        return self._ask("POST", f"/v1/runs/{safe_path(run)}/cancel", RunRow, parameters)

    def preempt(self, run: str) -> RunRow:
        """Preempt a restartable run; it is saved, and resumed later."""
        return self._ask("POST", f"/v1/runs/{safe_path(run)}/preempt", RunRow, {})

    def release_lease(self, lease: str) -> WarmRow:
        """Give back GPUs that are kept warm after run ``lease``; returns when they are free."""
        return self._ask("POST", f"/v1/leases/{safe_path(lease)}/release", WarmRow, {})

    def extend_lease(self, lease: str, keep_s: float) -> WarmRow:
        """Keep GPUs warm for ``keep_s`` seconds from now, as far as the gateway allows."""
        return self._ask("POST", f"/v1/leases/{safe_path(lease)}/extend", WarmRow, {}, LeaseExtension(keep_s))

    def pin(self, run: str, *, pinned: bool = True) -> RunRow:
        """Keep a run's results for good, or no longer."""
        return self._ask("POST", f"/v1/runs/{safe_path(run)}/{'pin' if pinned else 'unpin'}", RunRow, {})

    def import_run(self, name: str, exported_by: str) -> RunRow:
        """Make a run of what was unpacked on the store as ``name``."""
        return self._ask("POST", f"/v1/imports/{safe_path(name)}", RunRow, {"exported_by": exported_by})

    def collect(self, *, dry_run: bool = False, **limits: int) -> GcDocument:
        """Collect old results; ``limits``: ``older_than_s``, ``keep``, ``quota_bytes`` in place of the settings'."""
        return self._ask("POST", "/v1/gc", GcDocument, {"dry_run": str(dry_run).lower(), **limits})

    def events(self, run: str, after: int = 0) -> EventsPage:
        """A page of recorded output."""
        return self._get(f"/v1/runs/{safe_path(run)}/events", EventsPage, after=after)

    def create_token(self, asked: TokenRequest) -> TokenIssued:
        """A new token with its secret; for admins, as the next two."""
        return self._ask("POST", "/v1/tokens", TokenIssued, {}, asked)

    def tokens(self) -> TokensDocument:
        """All tokens, without secrets."""
        return self._get("/v1/tokens", TokensDocument)

    def revoke_tokens(self, which: TokenRevocation) -> TokensDocument:
        """Refuse a token (or all of a user) from now on; returns those that were revoked."""
        return self._ask("POST", "/v1/tokens/revoke", TokensDocument, {}, which)

    def environments(self) -> EnvironmentsDocument:
        """Environments that are ready on nodes. For admins."""
        return self._ask("GET", "/v1/environments", EnvironmentsDocument, {})

    def build_environment(self, plan: Plan) -> EnvironmentBuilt:
        """Have all nodes build one. For admins."""
        return self._ask("POST", "/v1/environments/build", EnvironmentBuilt, {}, plan, _BUILD_S)

    def build_progress(self, plan: Plan) -> BuildProgress:
        """How far the nodes are with that. For admins."""
        return self._ask("POST", "/v1/environments/progress", BuildProgress, {}, plan)

    def remove_environment(self, asked: EnvironmentRemoval) -> EnvironmentsDocument:
        """Remove one on all nodes; returns what is left of it. For admins."""
        return self._ask("POST", "/v1/environments/remove", EnvironmentsDocument, {}, asked)

    def drain_node(self, asked: NodeDrain) -> StatusDocument:
        """Give a node no new runs; for admins, as the next one."""
        return self._ask("POST", "/v1/nodes/drain", StatusDocument, {}, asked)

    def resume_node(self, asked: NodeDrain) -> StatusDocument:
        """Give runs to a node again."""
        return self._ask("POST", "/v1/nodes/resume", StatusDocument, {}, asked)

    def notify(self) -> NotifyDocument:
        """How this user is told of detached runs."""
        return self._get("/v1/notify", NotifyDocument)

    def change_notify(self, change: NotifyChange) -> NotifyDocument:
        """Change how this user is told of detached runs."""
        return self._ask("POST", "/v1/notify", NotifyDocument, {}, change)

    def test_notify(self, patience_s: float = 0.0) -> NotifyDocument:
        """Have a message sent by each way now; mail servers may take ``patience_s`` seconds more than other answers."""
        return self._ask("POST", "/v1/notify/test", NotifyDocument, {}, patience_s=patience_s)

    def lineage(self, run: str) -> Lineage:
        """The lineage of a run: what it was made from, and what was made from it."""
        return self._get(f"/v1/runs/{safe_path(run)}/lineage", Lineage)

    def cached(self, question: CacheQuestion) -> CacheAnswer:
        """Runs of this user with a key of ``--cache``."""
        return self._ask("POST", "/v1/cache", CacheAnswer, {}, question)

    def reused(self, run: str, use: CacheUse) -> RunRow:
        """Tell that a run's results were bound again."""
        return self._ask("POST", f"/v1/runs/{safe_path(run)}/reused", RunRow, {}, use)

    def document(self, path: str) -> dict[str, Any]:
        """Any JSON document as it is (``/openapi.json``)."""
        return self._get(path, dict)

    def _get(self, path: str, kind: type[T], **parameters: Any) -> T:
        return self._ask("GET", path, kind, parameters)

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        parameters: dict[str, Any],
        body: msgspec.Struct | bytes | None = None,
        patience_s: float = 0.0,
    ) -> T:
        answer: T = self._send(_Request(method, path, kind, parameters, body, patience_s))
        return answer


class GatewayClient(GatewayRequests):
    """Makes each request when its method is called, and waits for the answer."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = 10.0,
        configured: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``tls``: whom to trust; None: whom this machine trusts."""
        self.url = url.rstrip("/")
        self._configured = configured
        self._timeout_s = timeout_s
        loopback = (httpx.URL(self.url).host or "") in LOOPBACK
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            trust_env=not loopback,
            verify=tls or (client_context() if self.url.startswith("https:") else False),
        )

    @classmethod
    def for_target(cls, target: Target, *, timeout_s: float = 10.0) -> GatewayClient:
        """A client for a gateway that :func:`find_gateway` found."""
        return cls(target.url, target.token, timeout_s=timeout_s, configured=target.configured, tls=target.tls())

    def __enter__(self) -> GatewayClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def newest(self, *, live: bool = False) -> RunRow:
        """The caller's newest run, which ``last`` means; ``live``: the newest that is not over. Raises without one."""
        runs = self.runs(_MOST_RUNS if live else 1, mine=True, brief=live).runs
        found = next((run for run in runs if not (live and RunState.of(run.state).is_terminal)), None)
        if found is None and runs:
            raise NoSuchRunError("no run is under way: all are over", hint="`jupyter gpu runs` (%gpu_runs) lists them")
        if found is None:
            raise NoSuchRunError("there is no run yet", hint="run a %%gpu_train cell first")
        return found

    def _send(self, request: _Request) -> Any:
        try:
            response = self._client.request(**request.arguments(self._timeout_s))
        except httpx.HTTPError as error:
            raise unreachable(self.url, error, configured=self._configured) from error
        return read_answer(self.url, request.path, response, request.kind, configured=self._configured)


class _Noted(GatewayRequests):
    """Returns the request itself, in place of its answer."""

    def _send(self, request: _Request) -> _Request:
        return request


class AsyncGatewayClient:
    """Makes requests on an event loop; never starts a cluster."""

    def __init__(self, target: Target, *, timeout_s: float = 10.0) -> None:
        self.target = target
        self._timeout_s = timeout_s
        #: as it was when the certificates' file was read
        self.tls = target.tls()
        loopback = (httpx.URL(target.url).host or "") in LOOPBACK
        self._client = httpx.AsyncClient(
            base_url=target.url.rstrip("/"),
            headers={"Authorization": f"Bearer {target.token}"},
            trust_env=not loopback,
            verify=self.tls or False,  # without TLS there is nothing to verify
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def ask(
        self, request: Callable[Concatenate[GatewayRequests, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Make a request: ``await client.ask(GatewayRequests.cancel, run)``."""
        asked = cast(_Request, request(_Noted(), *arguments, **named))
        answer: T = self._read(asked, await self._send(asked))
        return answer

    async def next_status(self, after: str, wait_s: float) -> tuple[StatusDocument, float]:
        """The status once its ``serial`` is another than ``after``, at the latest after ``wait_s`` seconds.

        Also the seconds that the gateway waited. A gateway that does not know of serials answers at once.
        """
        parameters = {"after": after, "wait_ms": round_number(wait_s * 1000)}
        asked = _Request("GET", "/v1/status", StatusDocument, parameters, patience_s=wait_s)
        response = await self._send(asked)
        return self._read(asked, response), _waited_s(response.headers.get("Server-Timing", ""))

    def _read(self, asked: _Request, response: httpx.Response) -> Any:
        return read_answer(self.target.url, asked.path, response, asked.kind, configured=self.target.configured)

    async def _send(self, asked: _Request) -> httpx.Response:
        try:
            return await self._client.request(**asked.arguments(self._timeout_s))
        except httpx.HTTPError as error:
            raise unreachable(self.target.url, error, configured=self.target.configured) from error


def _waited_s(server_timing: str) -> float:
    """Waiting time, from ``wait;dur=12.3`` (milliseconds); 0 where the gateway does not tell."""
    found = re.search(r"\bwait;dur=(\d+(?:\.\d+)?)", server_timing)
    return float(found[1]) / 1000 if found is not None else 0.0
