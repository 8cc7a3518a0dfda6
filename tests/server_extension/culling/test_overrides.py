"""Overrides, business hours, the protected list, the site's own signals: who gets which limits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.server_extension.culling.config import GpuCuller, SiteSignals
from jupyter_gpu_release.server_extension.culling.overrides import Subject, check_overrides, parse_hours, resolve
from jupyter_gpu_release.server_extension.culling.policy import Action, Policy

_MONDAY_NOON = datetime(2026, 11, 23, 12, 0)
_SATURDAY_NOON = datetime(2026, 11, 28, 12, 0)


def test_hours_of_the_week() -> None:
    hours = parse_hours("mon-fri 08:00-18:00, sat 09:00-12:00")
    assert hours.contain(_MONDAY_NOON)
    assert not hours.contain(_MONDAY_NOON.replace(hour=18))
    assert hours.contain(_MONDAY_NOON.replace(hour=8))
    assert not hours.contain(_SATURDAY_NOON)
    assert hours.contain(_SATURDAY_NOON.replace(hour=11, minute=59))
    assert parse_hours("sun 00:00-24:00").contain(datetime(2026, 11, 29, 23, 59))
    assert not parse_hours("").contain(_MONDAY_NOON)


@pytest.mark.parametrize("text", ["mon", "mon 8-18", "fri-mon 08:00-18:00", "mon 18:00-08:00", "moon 08:00-09:00"])
def test_hours_that_are_none(text: str) -> None:
    with pytest.raises(OptionError):
        parse_hours(text)


def test_all_overrides_that_match_apply_and_the_last_wins() -> None:
    overrides: list[dict[str, Any]] = [
        {"kernelspec": "ir*", "cull_idle_timeout": 100},
        {"user": "ann", "cull_idle_timeout": 200, "action": "shutdown"},
        {"path": "exam/*", "hours": "outside", "dry_run": True},
        {"queue": "batch", "lease_idle_timeout": 5},
    ]
    check_overrides(overrides)

    def found(in_hours: bool = True, **who: str) -> Policy:
        return resolve(Policy(), overrides, Subject(**who), in_hours=in_hours)

    assert found(user="bob", kernelspec="python3") == Policy()
    assert found(kernelspec="irkernel").kernel_idle_s == 100
    both = found(user="ann", kernelspec="irkernel")
    assert (both.kernel_idle_s, both.action) == (200, Action.SHUTDOWN)
    assert not found(path="exam/a.ipynb").dry_run
    assert found(in_hours=False, path="exam/a.ipynb").dry_run
    assert found(queue="batch").lease_idle_s == 5


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("overrides", [{"kernelspek": "x"}], "unknown kernelspek"),
        ("overrides", [{"action": "destroy"}], "destroy"),
        ("overrides", [{"hours": "night"}], "night"),
        ("protected", ["prod/*"], "names nobody"),
        ("business_hours", "always", "always"),
        ("cull_idle_timeout", "1h", "cull_idle_timeout"),
        ("warn_before", -1, "warn_before"),
        ("action", "kill", "action"),
    ],
)
def test_typing_errors_are_found_at_the_start(trait: str, value: Any, words: str) -> None:
    """A misspelt entry must not leave somebody without the protection that was meant."""
    with pytest.raises(TraitError, match=words):
        GpuCuller(config=Config({"GpuCuller": {trait: value}}))


def test_the_culler_turns_traits_into_a_policy() -> None:
    culler = GpuCuller(
        cull_idle_timeout=60,
        action="release",
        protected=["path:prod/*"],
        overrides=[{"hours": "outside", "cull_idle_timeout": 10}],
    )
    subject = Subject("ann", "python3", "", "prod/a.ipynb")
    assert culler.policy_for(subject, _MONDAY_NOON).kernel_idle_s == 60
    assert culler.policy_for(subject, _SATURDAY_NOON).kernel_idle_s == 10
    assert culler.protection_of(subject) == "path:prod/*"
    assert culler.protection_of(Subject(path="a.ipynb")) == ""
    assert "1 min" in culler.facts().in_words


def test_defaults_only_tell_and_end_warm_leases() -> None:
    policy = GpuCuller().policy_for(Subject(), _MONDAY_NOON)
    assert (policy.action, policy.lease_action) == (Action.NOTIFY, Action.RELEASE)


class _Point:
    def __init__(self, name: str, plugin: Any) -> None:
        self.name, self._plugin = name, plugin

    def load(self) -> Any:
        if isinstance(self._plugin, Exception):
            raise self._plugin
        return self._plugin


def test_a_sites_own_signal_and_one_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        _Point("licence", lambda facts: facts["path"] == "a.ipynb"),
        _Point("broken", lambda facts: 1 / 0),
        _Point("missing", ImportError("no such module")),
        _Point("odd", lambda facts: "yes"),
    ]
    monkeypatch.setattr("jupyter_gpu_release.server_extension.culling.config.entry_points", lambda group: points)
    said = {signal.name: signal.busy for signal in SiteSignals(GpuCuller().log).signals_for({"path": "a.ipynb"})}
    assert said == {"licence": True, "broken": None, "missing": None, "odd": None}
    assert SiteSignals(GpuCuller().log).signals_for({"path": "b"})[0].busy is False


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("action", "shutdown"),
        ("cull_idle_timeout", 61),
        ("lease_idle_timeout", 62),
        ("lease_action", "notify"),
        ("warn_before", 63),
        ("samples", 4),
        ("cull_connected", False),
        ("min_utilization", 0.25),
        ("utilization_window", 64),
        ("max_busy_time", 65),
        ("dry_run", True),
    ],
)
def test_a_setting_means_the_same_for_all_and_for_some(setting: str, value: Any) -> None:
    everywhere = GpuCuller(**{setting: value}).policy_for(Subject(), _MONDAY_NOON)
    for_some = GpuCuller(overrides=[{"user": "a*", setting: value}])
    usual = GpuCuller().policy_for(Subject(), _MONDAY_NOON)
    assert for_some.policy_for(Subject(user="ann"), _MONDAY_NOON) == everywhere != usual
    assert for_some.policy_for(Subject(user="bob"), _MONDAY_NOON) == usual


def test_each_number_of_the_policy_has_its_own_place() -> None:
    culler = GpuCuller(
        cull_idle_timeout=61,
        lease_idle_timeout=62,
        warn_before=63,
        samples=4,
        min_utilization=0.25,
        utilization_window=64,
        max_busy_time=65,
        action="suspend",
        lease_action="notify",
        cull_connected=False,
    )
    assert culler.policy_for(Subject(), _MONDAY_NOON) == Policy(
        action=Action.SUSPEND,
        kernel_idle_s=61,
        lease_idle_s=62,
        lease_action=Action.NOTIFY,
        warn_before_s=63,
        samples=4,
        cull_connected=False,
        min_utilization=0.25,
        utilization_window_s=64,
        max_busy_s=65,
        dry_run=False,
    )
    limits = GpuCuller(idle_gpu=0.2, idle_cpu=0.3, unknown_utilization_is_busy=False).thresholds()
    assert (limits.gpu, limits.cpu_cores, limits.unknown_use_is_busy) == (0.2, 0.3, False)


@pytest.mark.parametrize("entry", ["machine:one", "user:", "path", ":ann", "hours:business"])
def test_a_protection_that_would_protect_nobody_is_refused(entry: str) -> None:
    with pytest.raises(TraitError, match="names nobody"):
        GpuCuller(protected=["user:ann", entry])


def test_protection_by_each_name() -> None:
    culler = GpuCuller(protected=["user:ann", "kernelspec:ir*", "queue:exam", "path:prod/*"])
    names = {"user": "ann", "kernelspec": "irkernel", "queue": "exam", "path": "prod/a.ipynb"}
    assert [culler.protection_of(Subject(**{kind: name})) for kind, name in names.items()] == culler.protected
    assert culler.protection_of(Subject("bob", "python3", "lab", "a.ipynb")) == ""


def test_hours_are_read_whatever_the_case_and_end_after_they_begin() -> None:
    assert parse_hours("Mon 08:00-18:00").contain(_MONDAY_NOON)
    with pytest.raises(OptionError, match="ends before it begins"):
        parse_hours("mon 08:00-08:00")


def test_what_is_outside_of_business_hours_begins_at_their_end() -> None:
    culler = GpuCuller(
        business_hours="mon-fri 08:00-18:00",
        overrides=[{"hours": "business", "samples": 7}, {"hours": "outside", "samples": 9}],
    )
    at = [_MONDAY_NOON.replace(hour=hour, minute=minute) for hour, minute in ((7, 59), (8, 0), (17, 59), (18, 0))]
    assert [culler.policy_for(Subject(), moment).samples for moment in at] == [9, 7, 7, 9]


def test_the_policy_in_a_sentence() -> None:
    assert GpuCuller(cull_idle_timeout=0).facts().in_words == "kernels that hold a GPU are never acted on"
    told = GpuCuller(cull_idle_timeout=60, action="suspend", dry_run=True).facts()
    assert (told.action, told.dry_run) == ("suspend", True)
    assert told.in_words.endswith("does nothing for 1 min: suspend (dry run: only said)")
    assert "dry run" not in GpuCuller(cull_idle_timeout=60, dry_run=False).facts().in_words


def test_whether_there_are_signals_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    where = "jupyter_gpu_release.server_extension.culling.config.entry_points"
    for points in ([], [_Point("licence", bool)]):
        monkeypatch.setattr(where, lambda group, points=points: points)
        assert SiteSignals(GpuCuller().log).known is bool(points)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cull_connected", "false"),
        ("lease_action", "shutdown"),
        ("action", "leave"),
        ("warn_before", -1),
        ("samples", 0),
        ("min_utilization", 1.5),
        ("cull_idle_timeout", "3600"),
    ],
)
def test_some_can_have_no_other_values_than_all(setting: str, value: Any) -> None:
    for settings in ({setting: value}, {"overrides": [{"user": "ann", setting: value}]}):
        with pytest.raises(TraitError, match=setting):
            GpuCuller(config=Config({"GpuCuller": settings}))
