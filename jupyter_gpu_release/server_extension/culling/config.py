"""``c.GpuCuller.…``: the idle policy as an operator writes it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.metadata import entry_points
from typing import Any

from traitlets import Bool, Dict, Enum, Float, Integer, List, TraitError, Unicode, validate
from traitlets.config import LoggingConfigurable

from ...errors import OptionError
from ...settings.setting import trait
from ...settings.table import CULLER
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

    cull_idle_timeout = Integer(**trait(CULLER["cull_idle_timeout"])).tag(config=True)
    lease_idle_timeout = Integer(**trait(CULLER["lease_idle_timeout"])).tag(config=True)
    cull_interval = Float(**trait(CULLER["cull_interval"])).tag(config=True)
    sample_interval = Float(**trait(CULLER["sample_interval"])).tag(config=True)
    samples = Integer(**trait(CULLER["samples"])).tag(config=True)
    action = Enum(**trait(CULLER["action"])).tag(config=True)
    lease_action = Enum(**trait(CULLER["lease_action"])).tag(config=True)
    warn_before = Integer(**trait(CULLER["warn_before"])).tag(config=True)
    keep_time = Integer(**trait(CULLER["keep_time"])).tag(config=True)
    cull_connected = Bool(**trait(CULLER["cull_connected"])).tag(config=True)
    min_utilization = Float(**trait(CULLER["min_utilization"])).tag(config=True)
    utilization_window = Integer(**trait(CULLER["utilization_window"])).tag(config=True)
    max_busy_time = Integer(**trait(CULLER["max_busy_time"])).tag(config=True)
    idle_gpu = Float(**trait(CULLER["idle_gpu"])).tag(config=True)
    idle_cpu = Float(**trait(CULLER["idle_cpu"])).tag(config=True)
    unknown_utilization_is_busy = Bool(**trait(CULLER["unknown_utilization_is_busy"])).tag(config=True)
    protected = List(Unicode(), **trait(CULLER["protected"])).tag(config=True)
    overrides = List(Dict(), **trait(CULLER["overrides"])).tag(config=True)
    business_hours = Unicode(**trait(CULLER["business_hours"])).tag(config=True)
    dry_run = Bool(**trait(CULLER["dry_run"])).tag(config=True)
    save_before_shutdown = Bool(**trait(CULLER["save_before_shutdown"])).tag(config=True)
    move_to_host = List(Unicode(), **trait(CULLER["move_to_host"])).tag(config=True)
    users = List(Unicode(), **trait(CULLER["users"])).tag(config=True)
    device_files = List(Unicode(), **trait(CULLER["device_files"])).tag(config=True)
    audit_log = Unicode(**trait(CULLER["audit_log"])).tag(config=True)

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
