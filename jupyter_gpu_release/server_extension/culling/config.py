"""``c.GpuCuller.…``: the idle policy as an operator writes it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any

from traitlets import Bool, Dict, Enum, Float, Integer, List, TraitError, Unicode, validate
from traitlets.config import LoggingConfigurable

from ...errors import OptionError
from ...units import format_seconds
from ..models import PolicyFacts
from .overrides import Subject, check_overrides, check_protected, parse_hours, protection, resolve
from .policy import Action, Policy, Signal
from .signals import Thresholds

#: entry points: callables that take the facts of a kernel (a dict) and return True (busy), False (idle) or None
SITE_SIGNALS = "jupyter_gpu_release.activity"


class GpuCuller(LoggingConfigurable):
    """Settings for noticing unused GPUs, and for what is done. Only what holds a GPU is looked at; what is busy, or
    not known to be idle, is never touched. See docs/idle-policy.md.
    """

    cull_idle_timeout = Integer(
        3600,
        min=0,
        help="Seconds after which a kernel that holds GPU memory and does nothing is acted on (see `action`). "
        "0: never.",
    ).tag(config=True)
    lease_idle_timeout = Integer(
        300,
        min=0,
        help="Seconds after which a warm lease that nothing runs on is acted on (see `lease_action`). 0: never.",
    ).tag(config=True)
    cull_interval = Float(
        10.0, min=0.1, help="Seconds between two passes of the policy. A pass over 200 kernels takes milliseconds."
    ).tag(config=True)
    sample_interval = Float(2.0, min=0.1, help="Seconds between two looks at GPUs and processes.").tag(config=True)
    samples = Integer(
        3, min=1, help="How many samples in a row must say idle before anything is done. One that does not starts over."
    ).tag(config=True)
    action = Enum(
        ["notify", "release", "suspend", "shutdown"],
        "notify",
        help="What is done about a kernel that is idle for too long: `notify` tells its user; `release` asks its GPU "
        "libraries to let go of memory they do not need; `suspend` moves its GPU memory into the host's (where the "
        "driver can: see the health answer); `shutdown` ends the kernel, its variables with it.",
    ).tag(config=True)
    lease_action = Enum(
        ["notify", "release"], "release", help="What is done about a warm lease that is idle for too long."
    ).tag(config=True)
    warn_before = Integer(
        300,
        min=0,
        help="Seconds between the warning in JupyterLab (with its answer `keep`) and an action that changes something. "
        "Nothing is done without a warning unless this is 0.",
    ).tag(config=True)
    keep_time = Integer(
        1800, min=1, help="Seconds that the answer `keep` to a warning lasts when it does not say so itself."
    ).tag(config=True)
    cull_connected = Bool(
        True,
        help="Whether a kernel that is open in a tab may be acted on. A tab left open is the commonest reason for a "
        "GPU that is held and not used. False: only kernels without tabs.",
    ).tag(config=True)
    min_utilization = Float(
        0.0,
        min=0.0,
        max=1.0,
        help="Tell the user of a run whose GPUs were less busy than this share (0.05 is 5 %) over "
        "`utilization_window`. It is at work, so telling is all that is done. 0: never.",
    ).tag(config=True)
    utilization_window = Integer(1800, min=1, help="Seconds over which `min_utilization` is measured.").tag(config=True)
    max_busy_time = Integer(
        0, min=0, help="Tell the user of a kernel that has been busy without a pause for so many seconds. 0: never."
    ).tag(config=True)
    idle_gpu = Float(0.03, min=0.0, max=1.0, help="A GPU that is busy for at most this share of the time is idle.").tag(
        config=True
    )
    idle_cpu = Float(0.1, min=0.0, help="A kernel whose processes use at most so many CPU cores together is idle.").tag(
        config=True
    )
    unknown_utilization_is_busy = Bool(
        True,
        help="What a GPU that does not tell its utilization (MIG) means: True: its kernels count as busy and are "
        "never touched. False: messages, CPU and runs decide alone.",
    ).tag(config=True)
    protected = List(
        Unicode(),
        help="Who is never acted on: patterns such as 'path:production/*', 'user:ann', 'kernelspec:ir', 'queue:exam'.",
    ).tag(config=True)
    overrides = List(
        Dict(),
        help="Other settings for some: [{'kernelspec': 'ir*', 'cull_idle_timeout': 7200}, {'path': 'exam/*', 'hours': "
        "'outside', 'action': 'shutdown'}]. Conditions: user, kernelspec, queue, path (patterns), hours ('business' or "
        "'outside'). All that match apply, the later ones win.",
    ).tag(config=True)
    business_hours = Unicode(
        "mon-fri 08:00-18:00",
        help="What `hours` in an override means, in this machine's local time: 'mon-fri 08:00-18:00, sat 09:00-12:00'.",
    ).tag(config=True)
    dry_run = Bool(False, help="Only say, log and count what would be done.").tag(config=True)
    save_before_shutdown = Bool(
        True,
        help="With the action `shutdown`: first save the kernel's variables to the store "
        "(`<store>/saved/<kernel>.pkl`, mode 0600; read them with pickle.load). A kernel that cannot be saved "
        "is not shut down.",
    ).tag(config=True)
    move_to_host = List(
        Unicode(),
        help="Names of variables (patterns) whose tensors and models `release` may move to the host's memory. Empty: "
        "only memory that nothing refers to is let go, and variables stay as they are.",
    ).tag(config=True)
    users = List(
        Unicode(),
        help="Whose leases on the cluster this server looks after. Empty: those of the user whose token it has.",
    ).tag(config=True)
    device_files = List(
        Unicode(),
        ["/dev/nvidia", "/dev/dxg"],
        help="Where process ids are not the driver's own (containers), a process counts as the holder of GPU memory "
        "only if it has a file open whose path begins like one of these.",
    ).tag(config=True)
    audit_log = Unicode(
        "", help="File to which every action is appended as a line of JSON (mode 0600). Empty: the server's log only."
    ).tag(config=True)

    @validate("business_hours", "overrides", "protected")
    def _check(self, proposal: Any) -> Any:
        check: dict[str, Callable[[Any], object]] = {
            "business_hours": parse_hours,
            "overrides": check_overrides,
            "protected": check_protected,
        }
        try:
            check[proposal["trait"].name](proposal["value"])
        except OptionError as error:
            raise TraitError(f"c.GpuCuller: {error.message} ({error.hint})") from error
        return proposal["value"]

    def policy_for(self, subject: Subject, local: datetime) -> Policy:
        """The limits for one kernel or lease at this time of the week."""
        return self.policies_at(local)(subject)

    def policies_at(self, local: datetime) -> Callable[[Subject], Policy]:
        """The same for many of them: settings are read once."""
        base = Policy(
            Action.of(self.action),
            self.cull_idle_timeout,
            self.lease_idle_timeout,
            Action.of(self.lease_action),
            self.warn_before,
            self.samples,
            self.cull_connected,
            self.min_utilization,
            self.utilization_window,
            self.max_busy_time,
            self.dry_run,
        )
        in_hours = parse_hours(self.business_hours).contain(local)
        overrides = list(self.overrides)
        return lambda subject: resolve(base, overrides, subject, in_hours=in_hours)

    def protection_of(self, subject: Subject) -> str:
        """The entry of the protected list that names it, or nothing."""
        return protection(self.protected, subject)

    def thresholds(self) -> Thresholds:
        """Limits within which use counts as idle."""
        return Thresholds(self.idle_gpu, self.idle_cpu, self.unknown_utilization_is_busy)

    def facts(self) -> PolicyFacts:
        """The policy in a sentence."""
        if self.cull_idle_timeout <= 0:
            words = "kernels that hold a GPU are never acted on"
        else:
            limit = format_seconds(self.cull_idle_timeout)
            words = f"a kernel that holds GPU memory and does nothing for {limit}: {self.action}"
        return PolicyFacts(self.action, self.dry_run, words + (" (dry run: only said)" if self.dry_run else ""))


class SiteSignals:
    """The site's own idea of idleness: entry points of the group ``jupyter_gpu_release.activity``."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._plugins: dict[str, Callable[[Mapping[str, Any]], bool | None]] = {}
        for point in entry_points(group=SITE_SIGNALS):
            try:
                self._plugins[point.name] = point.load()
            except Exception as error:  # noqa: BLE001 (somebody else's code: its absence must not stop the server)
                log.warning("GPU policy: the plug-in %s cannot be loaded: %s", point.name, error)
                self._plugins[point.name] = lambda facts: None

    @property
    def known(self) -> bool:
        """Tell if there are any."""
        return bool(self._plugins)

    def signals_for(self, facts: Mapping[str, Any]) -> tuple[Signal, ...]:
        """One signal from each; what fails, or answers nothing, is unknown, so it counts as busy."""
        return tuple(self._ask(name, plugin, facts) for name, plugin in self._plugins.items())

    def _ask(self, name: str, plugin: Callable[[Mapping[str, Any]], bool | None], facts: Mapping[str, Any]) -> Signal:
        try:
            answer = plugin(facts)
        except Exception as error:  # noqa: BLE001 (as above)
            self._log.warning("GPU policy: the plug-in %s failed: %s", name, error)
            return Signal(name, None, f"the plug-in {name} failed")
        busy = answer if isinstance(answer, bool) else None
        return Signal(name, busy, f"says the plug-in {name}")
