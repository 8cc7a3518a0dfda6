"""The options of ``%%gpu_train``: one declarative table, read by the parser, ``%gpu_config`` and the reference."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import OptionError

#: option name → its values as written, in the order given (a flag has one empty value)
Written = dict[str, list[str]]


@dataclass(frozen=True)
class Option:
    """One option: its name without dashes, what its value looks like ("" for a flag) and what it means."""

    name: str
    metavar: str
    help: str
    many: bool = False
    #: usable with ``%gpu_config`` and as a default in configuration files
    configurable: bool = True
    #: values that Tab offers: all that there are, or usual ones
    values: tuple[str, ...] = ()
    #: of a flag: `=off` takes it back where the queue or the notebook's settings give it
    can_be_off: bool = False

    @property
    def is_flag(self) -> bool:
        """Tell if the option stands alone, without a value."""
        return not self.metavar


#: the options in the order in which one reads of them, by what they are about
GROUPS: dict[str, tuple[Option, ...]] = {
    "usual": (
        Option("gpus", "N|TYPE:N", "GPUs in all; 0.5 = half of one; `h100:2` names the type too; 0 = a CPU stage (1)"),
        Option("gpu-type", "TYPE", "type of GPU that the node must have, such as h100"),
        Option(
            "timeout",
            "TIME",
            "limit on running: then interrupt, results so far, end (none)",
            values=("10m", "1h", "4h", "12h"),
        ),
        Option("name", "LABEL", "label of the run in lists", configurable=False),
        Option("async", "", "the cell returns at once; its names bind when the run is done (%gpu_wait)"),
        Option(
            "restartable",
            "",
            "may be preempted for others: it is saved, and resumed later; `=off`: it may not, whatever its queue says",
            can_be_off=True,
        ),
        Option(
            "estimate",
            "",
            "show what would be sent, the place in the queue, when it would start; run nothing",
            configurable=False,
        ),
    ),
    "devices": (
        Option(
            "gpu-memory",
            "SIZE",
            "a part of one GPU, with so much of its memory: 20GiB (all of it)",
            values=("10GiB", "20GiB", "40GiB"),
        ),
        Option("min-gpu-memory", "SIZE", "memory that each GPU must have, such as 40GiB"),
        Option(
            "cpus",
            "C",
            "processor cores: threads of the frameworks; with --gpus 0 they are reserved,"
            " and the cell uses no others (--gpus 0: 1 a process)",
            values=("1", "2", "4", "8"),
        ),
        Option(
            "memory",
            "SIZE",
            "host memory of the cell, enforced (a share of the node by its GPUs)",
            values=("8GiB", "16GiB", "32GiB", "64GiB"),
        ),
        Option("label", "KEY=VALUE", "label that the node must carry; may be repeated", many=True),
    ),
    "names": (
        Option(
            "in",
            "NAMES",
            "names to send, instead of those found automatically; `+NAME` adds one to those",
            many=True,
            configurable=False,
        ),
        Option("out", "NAMES", "names to return, instead of those found automatically", many=True, configurable=False),
        Option("skip", "NAMES", "names that are neither sent nor returned", many=True),
    ),
    "environment": (
        Option(
            "environment",
            "NAME",
            "auto: the notebook's packages go along; cluster: the cluster's only; NAME: one of your operator's (auto)",
            values=("auto", "cluster"),
        ),
        Option("pip", "'NAMES'", "packages for the cell, as pip names them: 'einops==0.8.1 timm'"),
        Option("env", "KEY=VALUE", "environment variable for the cell; may be repeated", many=True),
        Option("export", "KEYS", "environment variables of this kernel to take along", many=True),
        Option("workdir", "PATH", "working directory of the cell (the notebook's folder where the node sees it)"),
        Option("fresh", "", "a new interpreter instead of a fork of the warm one"),
    ),
    "waiting": (
        Option("queue", "NAME", "queue that it waits in, of those that you may use (the default one)"),
        Option(
            "priority",
            "low|normal|high",
            "place in the queue; or a number, up to the queue's limit (normal)",
            values=("low", "normal", "high"),
        ),
        Option("wait", "TIME", "limit on queueing; 0 = only if free now (none)", values=("0", "1m", "10m", "1h")),
        Option(
            "keep",
            "TIME|auto",
            "keep the GPUs for this kernel's next cell; auto: until anyone waits for them (0)",
            values=("auto", "30s", "2m", "10m"),
        ),
        Option(
            "retries",
            "N",
            "run again so many times when the infrastructure failed, not the code (0)",
            values=("1", "2", "3"),
        ),
        Option(
            "on-disconnect",
            "continue|cancel",
            "when contact with this living kernel is lost (continue)",
            values=("continue", "cancel"),
        ),
    ),
    "background": (
        Option("detach", "", "as --async, and the run goes on without this kernel (%gpu_attach brings it back)"),
    ),
    "gangs": (
        Option("ranks", "R", "processes that run the cell together; the GPUs are divided among them (1)"),
        Option(
            "nodes",
            "K|any",
            "spread ranks and GPUs evenly over K nodes, or over whatever nodes have room, such as"
            " 3 + 5 (1; any where no one node is large enough)",
        ),
        Option(
            "min-gpus",
            "N",
            "begin with N GPUs, and accordingly fewer ranks, where no more are free (all of them)",
            values=("1", "2", "4"),
        ),
        Option(
            "ps",
            "P",
            "parameter servers beside the ranks, without a GPU; `P,evaluator`: an evaluator, too (0)",
            values=("1", "2", "1,evaluator"),
        ),
        Option(
            "gather", "NAMES", "names that come back as a list of every rank's value", many=True, configurable=False
        ),
        Option(
            "rank-timeout",
            "TIME",
            "give up on a rank that stays behind the others for so long (no limit)",
            values=("1m", "5m", "15m"),
        ),
    ),
    "results": (
        Option("cache", "", "same code, same inputs, same environment: reuse the stored results, no GPU taken"),
        Option("pin", "", "keep the results for good: `jupyter gpu gc` never removes them", configurable=False),
    ),
}
OPTIONS: dict[str, Option] = {option.name: option for group in GROUPS.values() for option in group}

WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
#: a list goes on behind blanks: `a, b`, `a ,b`
MORE_NAMES = re.compile(r"(?:(?<=,)\s+|\s+,\s*)(\+?\w[\w,]*)")
OPTION = re.compile(r"\s*--([A-Za-z][\w-]*)(=?)")


@dataclass(frozen=True)
class Line:
    """A magic's line taken apart: the options as written, and what follows them."""

    written: Written = field(default_factory=dict)
    rest: str = ""


def split_line(line: str, known: Mapping[str, Option] = OPTIONS) -> Line:
    """Take the options off the front of a magic's line; the rest is left exactly as it was written.

    A comment in its place is left out.

    Raises :class:`OptionError` for an option that is unknown, misspelt, given twice or without its value.
    """
    written: Written = {}
    at = 0
    while match := OPTION.match(line, at):
        option = find_option(match[1], known)
        at = match.end()
        value = ""
        if option.is_flag and match[2] and not option.can_be_off:
            raise OptionError(f"--{option.name} takes no value", hint=f"write --{option.name} alone")
        if match[2] or not option.is_flag:
            value, at = _take_value(option, line, at)
        if option.is_flag and value:
            is_on(option, value)
        add_value(written, option, value)
    rest = line[at:].strip()
    if rest == "--" or rest.startswith("-- "):
        rest = rest[2:].lstrip()
    elif rest.startswith("#"):  # a comment
        rest = ""
    return Line(written, rest)


def _take_value(option: Option, line: str, at: int) -> tuple[str, int]:
    while at < len(line) and line[at].isspace():
        at += 1
    match = WORD.match(line, at)
    if match is None and at < len(line):
        raise OptionError(f"--{option.name}: a quote is not closed", hint="close it, or leave it out")
    if match is None or match[0].startswith("--"):
        raise OptionError(f"--{option.name} needs a value", hint=f"write --{option.name} {option.metavar}")
    value, at = "".join(shlex.split(match[0])), match.end()
    while option.metavar in ("NAMES", "KEYS") and (more := MORE_NAMES.match(line, at)):
        value, at = f"{value.rstrip(',')},{more[1]}", more.end()
    return value, at


def find_option(name: str, known: Mapping[str, Option] = OPTIONS) -> Option:
    """The option called ``name`` (dashes or underscores); raises :class:`OptionError` with a suggestion."""
    option = known.get(name.replace("_", "-").lower())
    if option is None:
        raise OptionError(f"--{name}: there is no such option", hint=suggest(name, known))
    return option


def suggest(name: str, known: Collection[str] = OPTIONS) -> str:
    """``did you mean --gpus?`` for a misspelt option, or where to read about them all."""
    close = nearest(name, known, cutoff=0.5)
    return f"did you mean --{close}?" if close else "the options are listed by %gpu_train?"


def nearest(name: str, known: Collection[str], cutoff: float = 0.6) -> str:
    """The one of ``known`` names that is (nearly) called like that; empty: none is.

    ``num_gpus``, as Ray has it, is ``gpus``, though ``min_gpus`` has more letters of it.
    """
    name = name.lower().replace("_", "-")
    by_spelling = {word.replace("_", "-"): word for word in known}
    last = name.rpartition("-")[2]
    if name not in by_spelling and last in by_spelling:
        return by_spelling[last]
    return next((by_spelling[word] for word in difflib.get_close_matches(name, by_spelling, n=1, cutoff=cutoff)), "")


def add_value(written: Written, option: Option, value: str) -> None:
    """Note one more value; raises :class:`OptionError` when the option can be given once only."""
    values = written.setdefault(option.name, [])
    if values and not option.many and values != [value]:
        raise OptionError(f"--{option.name} is given twice, as {values[0]} and {value}", hint="leave one of them out")
    if not values or option.many:
        values.append(value)


def refuse_rest(rest: str) -> OptionError:
    """The error for something on a ``%%gpu_train`` line that is not an option."""
    word = rest.split()[0]
    if word.isdigit():
        return OptionError(f"{word}: not an option", hint=f"did you mean --gpus {word}?")
    name, _, value = word.lstrip("-").partition("=")
    close = nearest(name, OPTIONS)
    hint = f"did you mean --{close} {value}".rstrip() + "?" if close else "options begin with two dashes: --gpus 2"
    return OptionError(f"{word}: not an option", hint=hint)


def refuse_words(magic: str, line: str) -> None:
    """Raise :class:`OptionError` for words behind a magic that takes none."""
    if line.strip():
        raise OptionError(f"%{magic} {line.strip()}: it takes no words", hint=f"write %{magic}")


def parse_settings(line: str) -> Written:
    """Read ``gpus=2 memory=8GiB`` (``%gpu_config``); an empty value takes the setting back."""
    written: Written = {}
    for word in _words(line):
        name, equals, value = word.partition("=")
        if not equals:
            raise OptionError(f"{word}: not a setting", hint="write it like gpus=2 memory=8GiB, or `reset`")
        option = _configurable(name.lstrip("-"))
        add_value(written, option, "".join(shlex.split(value)))
    return written


def _words(line: str) -> Iterator[str]:
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
        elif match := WORD.match(line, at):
            yield match[0]
            at = match.end()
        else:
            raise OptionError(f"{line[at:]}: a quote is not closed", hint="close it, or leave it out")


def _configurable(name: str) -> Option:
    option = find_option(name)
    if not option.configurable:
        raise OptionError(f"{option.name} belongs to one cell", hint=f"write --{option.name} on the %%gpu_train line")
    return option


def from_mapping(defaults: Mapping[str, object]) -> Written:
    """Read defaults from a configuration file: ``{"gpus": 2, "env": ["A=1", "B=2"], "fresh": True}``."""
    written: Written = {}
    for name, value in defaults.items():
        option = _configurable(name)
        values: Iterable[object] = value if isinstance(value, list | tuple) else [value]
        for each in values:
            if not option.is_flag or option.can_be_off or is_on(option, str(each)):
                add_value(written, option, str(each) if option.can_be_off or not option.is_flag else "")
    return written


def is_on(option: Option, text: str) -> bool:
    """Read the value of a flag; raises :class:`OptionError`."""
    word = text.strip().lower()
    if word in ("", "1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise OptionError(f"{option.name}={text}: not true or false", hint=f"write {option.name}=true")


def overlay(*levels: Written) -> Written:
    """Merge levels of options, the later ones winning; what a level says of the type replaces the lower ones'."""
    merged: Written = {}
    for level in levels:
        names_type = "gpu-type" in level or any(":" in value for value in level.get("gpus", ()))
        if level.get("gpus") == ["0"]:
            _forget_gpu_type(merged)
            merged.pop("min-gpu-memory", None)
        elif names_type:
            _forget_gpu_type(merged)
        elif "gpus" in level:
            _keep_gpu_type(merged)
        merged.update({name: list(values) for name, values in level.items()})
    return merged


def _forget_gpu_type(merged: Written) -> None:
    merged.pop("gpu-type", None)
    if "gpus" in merged:
        merged["gpus"] = [value.rpartition(":")[2] for value in merged["gpus"]]


def _keep_gpu_type(merged: Written) -> None:
    """A lower level's ``gpus=h100:2`` under a cell's ``--gpus 4`` still says which type."""
    for value in merged.get("gpus", ()):
        gpu_type = value.rpartition(":")[0]
        if gpu_type:
            merged.setdefault("gpu-type", [gpu_type])
