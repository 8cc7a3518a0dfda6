"""The loop that samples, observes, asks the policy and has it carried out."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime
from typing import Any

from jupyter_server._tz import utcnow
from traitlets.config import LoggingConfigurable

from ...errors import GpuReleaseError
from ...host.accounts import own_name
from ...host.process_control import is_gone
from ...protocol.rest import StatusDocument
from .. import metrics
from ..audit import ActionLog
from ..gateway import GatewayConnection
from ..monitoring.kernels import Watch, Watches
from ..monitoring.sampling import Sample, SampleLoop
from .actions import Actor, Result
from .config import GpuCuller, SiteSignals
from .idle_tracker import Track
from .overrides import Subject
from .policy import Action, Decision, Signal, decide
from .signals import LeaseSeen, conversation_signal, cpu_signal, gpu_signal, held_bytes, leases_of, run_signal

#: kernels looked at before the event loop gets its turn
_AT_ONCE = 50
_UNKNOWN = Decision(Action.LEAVE, "unknown", "not looked at yet")


class Monitor(LoggingConfigurable):
    """Everything that is known of this server's kernels, and the policy's passes over them."""

    def __init__(
        self,
        culler: GpuCuller,
        watches: Watches,
        samples: SampleLoop,
        gateway: GatewayConnection,
        actor: Actor,
        record: ActionLog,
        settings: dict[str, Any],
    ) -> None:
        super().__init__(parent=culler)
        self._culler, self._gateway, self._actor, self._record = culler, gateway, actor, record
        self._site = SiteSignals(self.log)
        self._settings = settings
        self._user = os.environ.get("JUPYTERHUB_USER") or own_name()
        self.watches, self.samples = watches, samples
        self.sample = samples.last
        self.tracks: dict[str, Track] = {}
        self.leases: dict[str, tuple[Track, LeaseSeen]] = {}
        self.signals: dict[str, tuple[Signal, ...]] = {}
        self.decisions: dict[str, Decision] = {}
        self._suspended: dict[str, list[int]] = {}
        self._acting: dict[str, asyncio.Task[None]] = {}
        self._last_cpu: dict[str, tuple[float, tuple[float, float]]] = {}
        self._uses: dict[str, float | None] = {}
        self._shown: object = None
        self._limits = culler.thresholds()
        self._heard: StatusDocument | None = None
        #: kernel → GPUs that it held when they could last be read
        self._gpus_of: dict[str, set[int]] = {}
        self._complaint = ""
        #: set when the first look is over
        self.looked = asyncio.Event()

    async def run(self) -> None:
        """Sample and decide until cancelled."""
        pass_s = time.monotonic() + self._culler.cull_interval
        try:
            while True:
                began_s = time.monotonic()
                try:
                    await self.take_sample()
                    if time.monotonic() >= pass_s:
                        self.decide_all(time.monotonic())
                        pass_s = time.monotonic() + self._culler.cull_interval
                    self._complaint = ""
                except Exception as error:  # the next round may do better, but there must be one
                    if repr(error) != self._complaint:  # said once, not every two seconds
                        self.log.exception("GPU policy: a look failed; nothing is acted on until one succeeds")
                    self._complaint = repr(error)
                self.looked.set()
                next_s = min(began_s + self._culler.sample_interval, max(pass_s, began_s + 0.05))
                await asyncio.sleep(max(0.02, next_s - time.monotonic()))
        finally:
            for task in self._acting.values():
                task.cancel()
            self.watches.close()

    # --------------------------------------------------------------------------------------------- looking
    async def take_sample(self) -> None:
        """One sample of everything, into the tracks."""
        await self.watches.refresh()
        sample = await self.samples.next(self.watches.processes(), self.watches.terminals())
        now_s = time.monotonic()
        fresh = sample is not None
        if sample is not None:
            metrics.SAMPLE_SECONDS.observe(now_s - sample.at_s)
            self._count_seconds(sample)
            self.sample = sample
        self._limits = self._culler.thresholds()
        for number, (kernel, watch) in enumerate(list(self.watches.watches.items())):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)  # hundreds of kernels must not keep a front end waiting
            self._look_at(kernel, watch, now_s, fresh=fresh)
        for gone in set(self.tracks) - set(self.watches.watches):
            for memory in self._memories():
                memory.pop(gone, None)
        self._look_at_leases(now_s)
        metrics.SHOWN.status, metrics.SHOWN.sample = self._gateway.status, self.sample
        self._say_what_changed()

    def _memories(self) -> tuple[dict[str, Any], ...]:
        """Everything that is kept by kernel."""
        return (self.tracks, self.signals, self.decisions, self._last_cpu, self._uses, self._suspended, self._gpus_of)

    def _look_at(self, kernel: str, watch: Watch, now_s: float, *, fresh: bool) -> None:
        track = self.tracks.setdefault(kernel, Track(kernel, "kernel", watch.conversation.began_s))
        if kernel in self._suspended:
            self._forget_ended(kernel, track)
        cpu = self.sample.cpu_s.get(kernel)
        if cpu is not None:
            watch.known_start(cpu[0])
        signals = self._signals_of(kernel, watch, (self.sample.at_s, cpu) if cpu is not None else None, fresh=fresh)
        self.signals[kernel] = signals
        use = self._uses.get(kernel)
        window_s = self._culler.utilization_window
        track.add(signals, now_s, active_s=watch.conversation.last_activity_s, use=use, window_s=window_s)
        if fresh and cpu is not None:
            self._last_cpu[kernel] = (self.sample.at_s, cpu)
        self._tell_jupyter(kernel, watch, signals)

    def _forget_ended(self, kernel: str, track: Track) -> None:
        """Of suspended processes those that are gone (a restart) are not to be restored."""
        left = [pid for pid in self._suspended.pop(kernel) if not is_gone(pid)]
        if left:
            self._suspended[kernel] = left
        track.suspended = bool(left)

    def _signals_of(
        self, kernel: str, watch: Watch, cpu: tuple[float, tuple[float, float]] | None, *, fresh: bool
    ) -> tuple[Signal, ...]:
        limits, held = self._limits, self.sample.held_by(kernel)
        gpu, self._uses[kernel] = gpu_signal(held, self.sample.by_index, limits)
        if trouble := self._trouble(kernel, fresh=fresh):
            gpu = Signal("gpu", None, trouble)
        gateway = self._gateway
        signals = (
            conversation_signal(watch.conversation.busy(), watch.execution_state),
            gpu,
            cpu_signal(self._last_cpu.get(kernel), cpu, limits),
            run_signal(kernel, watch.path, gateway.remembered, current=gateway.status is not None),
        )
        if not self._site.known:
            return signals
        facts = {
            "kernel": kernel,
            "kernelspec": watch.name,
            "path": watch.path,
            "user": self._user,
            "held_bytes": held_bytes(held),
            "signals": {signal.name: signal.busy for signal in signals},
        }
        return signals + self._site.signals_for(facts)

    def _trouble(self, kernel: str, *, fresh: bool) -> str:
        """Reason why the figures of a kernel's GPUs are incomplete now. Nothing runs on a GPU that is lost, so that
        concerns those who held it; what cannot be read for another reason concerns everybody.
        """
        held = self._gpus_of.setdefault(kernel, set())
        if not fresh or (self.sample.problem and held):
            return self.samples.problem or "the driver does not answer"
        if self.sample.problem:
            return ""  # no driver, and it never held anything
        for gpu in self.sample.gpus:
            if gpu.problem and (not gpu.lost or gpu.index in held):
                return f"GPU {gpu.index}: {gpu.problem}"
        now = {entry.gpu for entry in self.sample.held_by(kernel)}
        lost = {gpu.index for gpu in self.sample.gpus if gpu.problem}
        self._gpus_of[kernel] = now | (held & lost)
        return ""

    def _tell_jupyter(self, kernel: str, watch: Watch, signals: tuple[Signal, ...]) -> None:
        """Jupyter's own culling and a Hub look at ``last_activity``: what is at work here is active there, too."""
        holds = bool(self.sample.held_by(kernel))
        working = any(signal.busy and (holds or signal.name in ("cell", "run")) for signal in signals)
        if working and hasattr(watch.manager, "last_activity"):
            watch.manager.last_activity = utcnow()
            self._settings["jupyter_gpu_release_last_activity"] = utcnow()

    def _look_at_leases(self, now_s: float) -> None:
        status = self._gateway.status
        if status is None or status is self._heard:
            return  # an old answer is no further sample
        self._heard = status
        seen = leases_of(status, set(self._culler.users or [status.user]), now_s - time.time())
        for lease, facts in seen.items():
            track = self.leases[lease][0] if lease in self.leases else Track(lease, "lease", now_s)
            track.add(facts.signals, now_s, use=facts.utilization, window_s=self._culler.utilization_window)
            self.leases[lease] = (track, facts)
        for gone in set(self.leases) - set(seen):
            del self.leases[gone]
            self.decisions.pop(gone, None)

    def _count_seconds(self, sample: Sample) -> None:
        span_s = max(0.0, sample.at_s - self.sample.at_s)
        holding, seconds = {"busy": 0, "idle": 0}, {"held": 0.0, "used": 0.0, "freed": 0.0}
        for kernel, track in self.tracks.items():
            gpus = len({held.gpu for held in sample.held_by(kernel)})
            if gpus:
                track.freed_gpus = 0
                holding["busy" if track.busy_since_s is not None else "idle"] += 1
                seconds["held"] += span_s * gpus
                seconds["used"] += span_s * gpus * (self._uses.get(kernel) or 0.0)
            else:
                seconds["freed"] += span_s * track.freed_gpus
        for state, count in holding.items():
            metrics.HOLDERS.labels(state).set(count)
        for kind, total in seconds.items():
            metrics.SECONDS.labels(kind).inc(total)

    def _say_what_changed(self) -> None:
        holds = {(h.subject, h.gpu, h.process.used_bytes) for h in self.sample.held}
        shown = (holds, {kernel: (decision.action, decision.rule) for kernel, decision in self.decisions.items()})
        if shown != self._shown:
            self._shown = shown
            self._record.changed("kernels")

    # -------------------------------------------------------------------------------------------- deciding
    def decide_all(self, now_s: float) -> None:
        """One pass of the policy; what it decides is carried out beside it."""
        began_s, policy_for = time.monotonic(), self._culler.policies_at(datetime.now())
        for kernel, watch in self.watches.watches.items():
            subject = Subject(self._user, watch.name, "", watch.path)
            held = self.sample.held_by(kernel)
            observation = self.tracks[kernel].observe(
                self.signals[kernel],
                held_bytes=held_bytes(held),
                connections=self.watches.connections(kernel),
                protected=self._culler.protection_of(subject),
            )
            decision = decide(observation, policy_for(subject), now_s)
            self.decisions[kernel] = decision
            self._begin(kernel, self.tracks[kernel], decision, now_s, watch=watch, path=watch.path, held=held)
        # what is not heard of now is not acted on; its memory stays
        for lease, (track, facts) in self.leases.items() if self._gateway.status is not None else ():
            subject = Subject(facts.user, "", facts.queue, facts.path)
            protected = self._culler.protection_of(subject)
            observation = track.observe(facts.signals, held_bytes=None, protected=protected, ends_at_s=facts.ends_at_s)
            decision = decide(observation, policy_for(subject), now_s)
            self.decisions[lease] = decision
            self._begin(lease, track, decision, now_s, watch=None, path=facts.path, held=[])
        metrics.PASS_SECONDS.observe(time.monotonic() - began_s)

    def _begin(
        self, subject: str, track: Track, decision: Decision, now_s: float, *, watch: Watch | None, path: str, held: Any
    ) -> None:
        if decision.action is Action.LEAVE or subject in self._acting:
            return
        if decision.action is Action.WARN:
            track.warned_at_s = now_s
        else:
            track.acted_at_s = now_s
        facts = {
            "action": decision.action.word,
            "rule": decision.rule,
            "reason": decision.reason,
            "kind": track.kind,
            "subject": subject,
            "path": path,
            "user": self._user,
            "gpus": sorted({entry.gpu for entry in held}),
            "held_bytes": held_bytes(held),
            "due_s": decision.due_s,
            "dry_run": decision.dry_run,
        }
        task = asyncio.create_task(self._carry_out(track, decision, watch, facts, [h.process.pid for h in held]))
        self._acting[subject] = task
        task.add_done_callback(lambda _: self._acting.pop(subject, None))

    async def _carry_out(
        self, track: Track, decision: Decision, watch: Watch | None, facts: dict[str, Any], pids: list[int]
    ) -> None:
        if decision.action is Action.WARN or decision.dry_run:
            result = Result(not decision.dry_run, "")
        elif watch is None:
            result = await self._actor.on_lease(decision.action, track.subject)
        else:
            result = await self._actor.on_kernel(decision.action, watch, sorted(set(pids)))
        if result.done and decision.action is Action.SUSPEND:
            track.suspended = True
            self._suspended[track.subject] = sorted(set(pids))
        track.freed_gpus = len(facts["gpus"]) if result.frees else 0
        self._record.policy(time.time(), **facts, done=result.done, result=result.words)

    # ------------------------------------------------------------------------------------- what others ask
    def on_execute(self, kernel: str) -> None:
        """A cell begins: a suspended kernel gets its GPU memory back (its CUDA calls wait until then)."""
        pids = self._suspended.pop(kernel, None)
        if pids:
            task = asyncio.create_task(self._restore(kernel, pids))
            self._acting[f"restore {kernel}"] = task
            task.add_done_callback(lambda _: self._acting.pop(f"restore {kernel}", None))

    async def _restore(self, kernel: str, pids: list[int]) -> None:
        done, words = True, "its GPU memory is back"
        try:
            await self._actor.restore(pids)
            self.tracks[kernel].suspended = False
        except GpuReleaseError as error:
            done, words = False, error.message
            self._suspended[kernel] = pids  # the next cell tries again
        self._record.policy(
            time.time(),
            action="restore",
            rule="execute",
            reason="a cell was begun in a suspended kernel",
            kind="kernel",
            subject=kernel,
            dry_run=False,
            done=done,
            result=words,
        )

    def decision_of(self, kernel: str) -> Decision:
        """The last decision about a kernel."""
        return self.decisions.get(kernel, _UNKNOWN)
