"""The extension's life in a Jupyter server: what it is made of, what it starts, what it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import ensure_async
from traitlets import TraitError

from .._version import __version__
from ..checks.finding import Report
from ..client.config import FILE_NAME, GpuRelease
from ..errors import ConflictError, ForbiddenError, NoSuchRunError
from ..host.gpus import Nvml
from ..protocol.config import hash_seed_for_kernel
from ..settings.table import RELEASE
from . import metrics
from .api import views
from .api.routes import HANDLERS
from .audit import Act, ActionLog
from .culling.actions import Actor
from .culling.config import GpuCuller
from .culling.monitor import Monitor
from .doctor import ServerFacts, examine
from .gateway import GatewayConnection, GatewayListener, LatestMemo, encoded_json
from .hub_token import HubToken
from .kernel_websocket import WEBSOCKET, without_delay
from .local_start import LocalStart
from .models import (
    DOCUMENT_VERSION,
    ClusterStart,
    GatewayState,
    Health,
    KeepReply,
    KernelsDocument,
    LocalGpu,
    Problem,
    Released,
    ServerStatus,
    choices_of,
)
from .monitoring.kernels import Watch, Watches
from .monitoring.sampling import Sample, SampleLoop, Sampler
from .runs.page import RunRecords
from .user_tokens import UserConnections

T = TypeVar("T", GpuCuller, GpuRelease)
#: the policy of a server whose settings are wrong: looks, and never acts
_NEVER = {"cull_idle_timeout": 0, "lease_idle_timeout": 0}
_NVML_MEND = "nothing to do on a machine without NVIDIA GPUs; else `jupyter gpu doctor`"


class _ChangeListener(GatewayListener):
    """Tells the sidebars that the gateway shows something new."""

    def __init__(self, record: ActionLog) -> None:
        self._record = record

    def on_change(self) -> None:
        self._record.changed("cluster")


class _ServersListener(_ChangeListener):
    """Of the server's own connection: its latency is measured, and a JupyterHub renews a token that is refused."""

    def __init__(self, record: ActionLog, on_refused: Callable[[], None]) -> None:
        super().__init__(record)
        self._on_refused = on_refused

    def on_refused(self) -> None:
        self._on_refused()

    def on_latency(self, seconds: float) -> None:
        metrics.GATEWAY_LATENCY.observe(seconds)


class GpuReleaseExtension(ExtensionApp):
    """Shows who holds which GPU and acts by the idle policy; works, and says what it misses, where there is none."""

    name = "jupyter_gpu_release"
    description = "GPUs of this server's kernels and of the team's cluster"
    version = __version__
    load_other_extensions = True
    _tasks: tuple[asyncio.Task[None], ...] = ()
    classes = [ServerApp, GpuRelease, GpuCuller]  # noqa: RUF012 (traitlets declares it so)

    def _config_file_name_default(self) -> str:
        """The file that the kernels read, too."""
        return FILE_NAME

    def initialize_settings(self) -> None:
        """Make the parts; nothing runs yet."""
        serverapp = self.serverapp
        assert serverapp is not None
        assert serverapp.event_logger is not None
        self._wrong: list[Problem] = []
        self._gpus: LatestMemo[Sample, list[LocalGpu]] = LatestMemo(lambda sample: encoded_json(views.gpu_rows(sample)))
        self.culler = self._configured(GpuCuller, "idle policy", "no kernel and no lease is acted on", **_NEVER)
        settings = self._configured(GpuRelease, "gateway", "the settings of c.GpuRelease are not used")
        self._automatic = settings.automatic
        self.record = ActionLog(serverapp.event_logger, self.culler.audit_log, parent=self)
        self.hub_token = HubToken(
            serverapp.runtime_dir, lambda: self.gateway.look_now(), self, has_other=bool(settings.token_file)
        )
        self.gateway = GatewayConnection(settings, _ServersListener(self.record, self.hub_token.renew_now))
        self.local_start = LocalStart(settings, self.gateway, _ChangeListener(self.record))
        self.identities = UserConnections(settings, self.gateway, _ChangeListener(self.record))
        self.records = RunRecords()
        #: checks under way, by who asked for them
        self._examinations: dict[tuple[str, bool], asyncio.Task[Report]] = {}
        self.actor = Actor(self.culler, self.gateway, serverapp.kernel_manager)
        self.watches = Watches(serverapp, self._on_execute, self._for_kernels, parent=self)
        samples = SampleLoop(Sampler(Nvml(), self.culler.device_files))
        self.monitor = Monitor(
            self.culler, self.watches, samples, self.gateway, self.actor, self.record, serverapp.web_app.settings
        )
        if connection := self.settings.get(WEBSOCKET):
            self.settings[WEBSOCKET] = without_delay(connection)

    def _configured(self, kind: type[T], what: str, instead: str, **fallback: Any) -> T:
        """``kind`` as configured. A wrong value costs the operator what depends on it, and never the extension."""
        try:
            return kind(parent=self)
        except TraitError as error:
            hint = f"correct c.{kind.__name__} in Jupyter's configuration and start the server again"
            self._wrong.append(Problem(what, f"c.{kind.__name__}: {error}; until then {instead}", hint))
            self.log.critical("GPU %s: c.%s: %s. Until that is corrected %s", what, kind.__name__, error, instead)
            return kind(**fallback)

    def _for_kernels(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Variables for kernels that start now, besides ``environment``."""
        known = self.gateway.status
        seed = hash_seed_for_kernel(environment, known.gateway.hash_seed if known is not None else "")
        return seed if self._automatic else {**seed, RELEASE["automatic"].variable: "0"}

    def _on_execute(self, kernel: str) -> None:
        self.monitor.on_execute(kernel)

    def initialize_handlers(self) -> None:
        """Append the routes."""
        self.handlers.extend(HANDLERS)

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Start the loops (called by the server once its event loop runs)."""
        loops = {"gateway": self._follow_gateway(), "monitor": self.monitor.run()}
        if self.hub_token.is_wanted:
            loops["hub token"] = self.hub_token.run()
        self._tasks = tuple(asyncio.create_task(loop, name=name) for name, loop in loops.items())
        self._probe = asyncio.create_task(self.actor.probe())
        self._hello = asyncio.create_task(self._say_what_is_here())

    async def _follow_gateway(self) -> None:
        if self.hub_token.is_wanted:
            await self.hub_token.tried.wait()
        await self.gateway.run()

    async def _say_what_is_here(self) -> None:
        """One line in the server's log, so that nobody has to ask whether the extension works and what it sees."""
        await asyncio.gather(self.gateway.looked.wait(), self.monitor.looked.wait())
        sample, line = self.monitor.sample, self.gateway.state()
        here = f"{len(sample.gpus)} on this machine" if sample.gpus else f"none on this machine ({sample.problem})"
        cluster = f"cluster at {line.url}" if line.state == "connected" else f"no cluster ({line.message})"
        self.log.info("GPUs: %s; %s; %s", here, cluster, self.culler.facts().in_words)

    async def stop_extension(self) -> None:
        """End the loops (called by the server when it ends, also when the start failed)."""
        if not self._tasks:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.local_start.close()
        await self.identities.close()

    # ------------------------------------------------------------------------------------- answers
    async def status(self, user: str, *, may_act: bool = True) -> ServerStatus:
        """``GET status`` as ``user`` may see it: from what is known, without asking anybody.

        ``may_act``: what the authoriser says of the routes that change something.
        """
        try:
            line = await self.identities.seen_by(user)
            state = line.state()
            # while the gateway is silent: as it was when it was heard last, `gateway.age_s` ago
            status = line.remembered if state.state == "unreachable" else line.status
            cluster, choices = line.shown.value_for(status), line.choices.value_for(status)
            usage = status.usage if status is not None else None
        except ForbiddenError as error:
            state = GatewayState("refused", message=error.message, hint=error.hint)
            cluster, choices = None, choices_of(None)
            usage = None
        return ServerStatus(
            DOCUMENT_VERSION,
            __version__,
            state,
            cluster,
            self._gpus.value_for(self.monitor.sample),
            self.problems(state),
            self.culler.facts(),
            choices,
            may_act,
            usage,
            self.local_start.facts() if state.state == "none" else None,
        )

    async def doctor(self, user: str, *, alone: bool) -> Report:
        """``GET doctor`` as ``user`` may see it; who asks meanwhile again gets the same report."""
        key = user, alone
        known = self._examinations.get(key)
        if known is None:
            task = asyncio.create_task(self._examine(user, alone=alone), name=f"doctor for {user}")
            known = self._examinations[key] = task
            known.add_done_callback(lambda _: self._examinations.pop(key, None))
        return await asyncio.shield(known)

    async def _examine(self, user: str, *, alone: bool) -> Report:
        serverapp = self.serverapp
        assert serverapp is not None
        assert serverapp.kernel_spec_manager is not None
        specs = await ensure_async(serverapp.kernel_spec_manager.get_all_specs())
        dead = self._dead_loops()
        facts = ServerFacts(
            len(self._tasks) - len(dead),
            dead,
            self.problems(),
            self.record.schemas,
            {
                name: list(spec["spec"].get("argv", []))
                for name, spec in specs.items()
                if spec["spec"].get("language", "python").lower() == "python"
            },
        )
        return await examine(facts, None if alone else lambda: self.identities.line_of(user))

    def _dead_loops(self) -> list[Problem]:
        return [Problem(task.get_name(), "this loop ended") for task in self._tasks if task.done()]

    def start_cluster(self, user: str) -> ClusterStart:
        """``POST cluster/start``."""
        began = self.local_start.begin()
        self.note_action("start", "this machine's cluster", user)
        return began

    def health(self) -> Health:
        """``GET health``."""
        dead = self._dead_loops()
        sampled_s = time.monotonic() - self.monitor.sample.at_s
        suspend = "available" if self.actor.suspender is not None else self.actor.cannot_suspend
        return Health(not dead, __version__, self.gateway.state().state, sampled_s, suspend, dead + self.problems())

    def kernels(self) -> KernelsDocument:
        """``GET kernels``."""
        rows = [views.kernel_row(self.monitor, watch) for watch in self.watches.watches.values()]
        return KernelsDocument(DOCUMENT_VERSION, self._gpus.value_for(self.monitor.sample), rows, self.problems())

    async def release(self, kernel: str, patterns: list[str], user: str) -> Released:
        """``POST kernels/<id>/release``: now, because a person asks for it."""
        answer = await self.actor.release(self._watch(kernel), patterns)
        self.note_action("release", kernel, user, result=f"{answer.freed_bytes} bytes")
        return answer

    def keep_kernel(self, kernel: str, keep_s: float | None, user: str) -> KeepReply:
        """``POST kernels/<id>/keep``: the answer to a warning."""
        self._watch(kernel)
        span_s = float(self.culler.keep_time if keep_s is None else keep_s)
        track = self.monitor.tracks.get(kernel)
        if track is None:
            raise ConflictError(f"kernel {kernel} is not watched yet", hint="try again in some seconds")
        track.keep_until(time.monotonic() + span_s)
        self.note_action("keep", kernel, user, result=f"{span_s:.0f} s")
        return KeepReply(kernel, span_s)

    def keep_lease(self, lease: str, until: float) -> None:
        """``POST leases/<id>/extend`` answers a warning, too: the policy leaves it alone until then (unix seconds)."""
        found = self.monitor.leases.get(lease)
        if found is not None:
            found[0].keep_until(time.monotonic() + until - time.time())

    def _watch(self, kernel: str) -> Watch:
        watch = self.watches.watches.get(kernel)
        if watch is None:
            raise NoSuchRunError(f"this server has no kernel {kernel[:60]}", hint="GET kernels lists them")
        return watch

    def problems(self, line: GatewayState | None = None) -> list[Problem]:
        """List what is missing, in words; ``line``: that of the user who asks, else the server's own."""
        found = [*self._wrong, *self.hub_token.problems()]
        state = line or self.gateway.state()
        if state.state != "connected":
            found.append(Problem("gateway", state.message, state.hint))
        if problem := self.monitor.samples.problem:
            found.append(Problem("nvml", f"GPUs of this machine are not seen: {problem}", _NVML_MEND))
        for gpu in self.monitor.sample.gpus:
            if gpu.problem:
                found.append(Problem(f"gpu {gpu.index}", f"GPU {gpu.index}: {gpu.problem}", "ask its administrator"))
        if self.culler.action == "suspend" and self.actor.suspender is None:
            found.append(Problem("suspend", f"suspending is {self.actor.cannot_suspend}", "choose another action"))
        if self.record.problem:
            found.append(Problem("audit log", self.record.problem, "mend c.GpuCuller.audit_log"))
        return found

    def note_action(self, action: Act, subject: str, user: str, result: str = "") -> None:
        """Record what a person did."""
        self.record.request(time.time(), action, subject, user, result)
