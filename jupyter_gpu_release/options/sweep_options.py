"""The options of ``%%gpu_sweep``: its own, and those of ``%%gpu_train`` for each trial."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import OptionError
from .definitions import OPTIONS, Option, Written

#: the search's own
SEARCH: tuple[Option, ...] = (
    Option("trials", "N", "how many (all points of a space that has an end)", values=("16", "64", "256")),
    Option("metric", "NAME", "name that the cell binds to what is searched for"),
    Option("max", "", "the largest metric is the best"),
    Option("min", "", "the smallest metric is the best (this)"),
    Option("max-gpus", "N", "GPUs that the trials hold together, at most (as many as come free)"),
    Option("max-failures", "N", "so many failed trials end the sweep (10)"),
    Option(
        "pruner",
        "NAME",
        "ends trials early by what they report(): median, asha or hyperband (median)",
        values=("median", "asha", "hyperband"),
    ),
    Option("detach", "", "the cell returns at once, the sweep outlives this kernel (%gpu_attach brings it back)"),
    Option("estimate", "", "run nothing: say what would be sent, when it would start, how much it is at most"),
)
#: a cell waits for its sweep, and each of its trials runs
_OF_ONE_RUN = frozenset({"async", "detach", "cache", "estimate", "gather", "keep"})
SWEEP_OPTIONS: dict[str, Option] = {option.name: option for option in SEARCH} | {
    name: option for name, option in OPTIONS.items() if name not in _OF_ONE_RUN
}
#: defaults of the notebook that say nothing to a trial
WITHOUT = tuple(sorted(_OF_ONE_RUN))


@dataclass(frozen=True)
class SweepOptions:
    """``trial``: the options of each trial, as written."""

    metric: str
    mode: str
    trials: int | None
    max_gpus: int | None
    max_failures: int
    pruner: str | None
    detach: bool
    estimate: bool
    trial: Written


def sweep_options(written: Written) -> SweepOptions:
    """Check the search's own options; raises :class:`OptionError`."""
    if "max" in written and "min" in written:
        raise OptionError("--max and --min: a sweep looks for one of them", hint="leave one of them out")
    if "metric" not in written:
        raise OptionError("the sweep has no metric", hint="name what the cell binds: --metric val_acc --max")
    return SweepOptions(
        written["metric"][0],
        "max" if "max" in written else "min",
        _number(written, "trials"),
        _number(written, "max-gpus"),
        _number(written, "max-failures") or 10,
        written.get("pruner", [None])[0],
        "detach" in written,
        "estimate" in written,
        {name: values for name, values in written.items() if name in OPTIONS and name not in _OF_ONE_RUN},
    )


def _number(written: Written, name: str) -> int | None:
    text = written.get(name, [""])[0]
    if not text:
        return None
    if not text.isdecimal() or not int(text):
        raise OptionError(f"--{name} {text}: not a number from 1 on", hint=f"write --{name} 8")
    return int(text)
