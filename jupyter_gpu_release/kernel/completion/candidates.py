"""Candidates for a magic's line: only what exists, and only what fits where the cursor is."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...client.cluster_facts import ClusterFacts, KnownRun
from ...options.definitions import OPTIONS, Option
from ...options.run_options import ANY_NODES
from ...options.typing_position import Cursor
from ...presentation.plain_text import without_backticks
from .magic_line import MagicLine

#: what is known of the cluster is waited for so long; the rest of the 50 ms from Tab to the list is the front end's
PATIENCE_S = 0.025
#: modules and functions are names, too, and seldom meant by ``--in``
_LATER = frozenset({"module", "function", "builtin_function_or_method", "type", "method"})
_OF_THIS_KERNEL = frozenset({"gpu_wait", "gpu_detach"})
_WANTED: dict[str, Callable[[KnownRun], bool]] = {
    "gpu_cancel": lambda run: not run.is_over,
    "gpu_attach": lambda run: True,
    "gpu_logs": lambda run: True,
    "gpu_debug": lambda run: run.failed,
}
_TAKE_A_RUN = _WANTED.keys() | _OF_THIS_KERNEL
_MOST_LETTERS = 44
#: ``%gpu_debug RUN --rank N``
_RUN_AND_RANK = 2
_QUOTES = "\"'"


@dataclass(frozen=True)
class Candidate:
    """A text to be put in, and what it is, in a few words."""

    text: str
    about: str = ""


@dataclass(frozen=True)
class Offer:
    """Candidates that stand in for ``typed``."""

    typed: str
    candidates: tuple[Candidate, ...] = ()


class Candidates:
    """Finds them from the options' table, the notebook's names and what is known of the cluster."""

    def __init__(self, shell: Any, facts: ClusterFacts, own_runs: Callable[[], Collection[str]]) -> None:
        self._shell = shell
        self._facts = facts
        #: of this kernel, in the background
        self._own_runs = own_runs

    def offer(self, line: MagicLine) -> Offer | None:
        """The candidates at the cursor; None: it is not ours to say (code, or a variable in braces)."""
        if line.magic in ("gpu_train", "gpu_sweep", "gpu_config"):
            return self._options(line)
        words = re.split(r"\s+", line.head.lstrip())
        if line.magic == "gpu_debug" and len(words) == _RUN_AND_RANK:
            return _fitting(words[1], [Candidate("--rank", "another rank's error than the first")])
        if line.magic == "gpu_setup" and not line.is_cell and len(words) == 1:
            kept = [Candidate("--list", "the cells that ranks run first"), Candidate("--clear", "forget them")]
            return _fitting(words[0], kept)
        if line.magic not in _TAKE_A_RUN or len(words) > 1:
            return Offer(words[-1])
        return _fitting(words[0], self._runs(line.magic))

    def _runs(self, magic: str) -> list[Candidate]:
        own = self._own_runs() if magic in _OF_THIS_KERNEL else None
        if own is not None and not own:
            return []
        runs = self._facts.runs(PATIENCE_S)
        found = [run for run in runs if (_WANTED[magic](run) if own is None else run.run in own)]
        return [Candidate("last", "the newest"), *(Candidate(run.run, run.about) for run in found)] if found else []

    def _options(self, line: MagicLine) -> Offer | None:
        cursor = line.cursor
        if cursor.option is not None:
            if re.search(r"[{$]", cursor.typed):
                return None
            return _fitting(cursor.typed, self._values(cursor.option, cursor, line.body))
        if line.magic == "gpu_config":
            words = [Candidate("reset", "take all of them back")] if not cursor.given else []
            return _fitting(cursor.typed, [*_settings(cursor.given), *words])
        if cursor.statement and not line.is_cell:
            return None
        self._facts.look_ahead()
        typed = cursor.typed.replace("_", "-") if cursor.typed.startswith("--") else cursor.typed
        offer = _fitting(
            typed if typed.startswith("-") else f"--{typed}", _names_of_options(line.options, cursor.given)
        )
        return Offer(cursor.typed, offer.candidates)

    def _values(self, option: Option, cursor: Cursor, body: str) -> Iterable[Candidate]:
        dynamic = _VALUES.get(option.name)
        if dynamic is not None:
            return dynamic(_Asked(self._shell, self._facts, cursor, body))
        if option.metavar == "NAMES" or option.name == "metric":
            return _names(_Asked(self._shell, self._facts, cursor, body))
        return [Candidate(value) for value in option.values]


def _fitting(typed: str, candidates: Iterable[Candidate]) -> Offer:
    start = typed.lower().lstrip(_QUOTES)
    return Offer(typed, tuple(each for each in candidates if each.text.lower().lstrip(_QUOTES).startswith(start)))


def _names_of_options(options: Mapping[str, Option], given: Collection[str]) -> Iterator[Candidate]:
    for option in options.values():
        if option.many or option.name not in given:
            yield Candidate(f"--{option.name}", _meaning(option))


def _settings(given: Collection[str]) -> Iterator[Candidate]:
    for option in OPTIONS.values():
        if option.configurable and option.name not in given:
            yield Candidate(f"{option.name}=", _meaning(option))


def _meaning(option: Option) -> str:
    """The first words of the option's sentence: a list has no room for more."""
    text = without_backticks(re.split(r"[;:(]", option.help, maxsplit=1)[0].strip())
    return text if len(text) <= _MOST_LETTERS else f"{text[: text.rindex(' ', 0, _MOST_LETTERS)]} …"


# ------------------------------------------------------------------------------------------------ values
@dataclass(frozen=True)
class _Asked:
    shell: Any
    facts: ClusterFacts
    cursor: Cursor
    body: str

    def chosen(self, name: str) -> bool:
        """Tell if the option is on the line already."""
        return name in self.cursor.given


def _gpus(asked: _Asked) -> Iterator[Candidate]:
    gpus = asked.facts.gpus(PATIENCE_S)
    for number in _counts(gpus.total):
        yield Candidate(str(number), f"of {gpus.total}" if gpus.total else "")
    if not asked.chosen("gpu-type"):
        for kind, most in gpus.types.items():
            yield Candidate(f"{kind}:1", f"of {most}")
    yield Candidate("0", "a CPU stage")


def _counts(most: int) -> list[int]:
    """1, 2, 4, 8 … and all of them."""
    return sorted({1 << power for power in range(most.bit_length())} | ({most} if most else {1}))


def _gpu_types(asked: _Asked) -> Iterator[Candidate]:
    for kind, number in asked.facts.gpus(PATIENCE_S).types.items():
        yield Candidate(kind, f"{number} in the cluster")


def _gpu_memory(asked: _Asked) -> Iterator[Candidate]:
    for size in asked.facts.gpus(PATIENCE_S).memory_gib:
        yield Candidate(f"{size}GiB", "what a GPU of the cluster has")


def _ranks(asked: _Asked) -> Iterator[Candidate]:
    for number in _counts(asked.facts.gpus(PATIENCE_S).total)[1:]:
        yield Candidate(str(number), "processes")


def _nodes(asked: _Asked) -> Iterator[Candidate]:
    for number in range(1, min(asked.facts.gpus(PATIENCE_S).nodes, 16) + 1):
        yield Candidate(str(number), f"node{'' if number == 1 else 's'}")
    yield Candidate(ANY_NODES, "whatever nodes have room")


def _queues(asked: _Asked) -> Iterator[Candidate]:
    for queue in asked.facts.queues(PATIENCE_S):
        yield Candidate(queue.name, queue.about)


def _names(asked: _Asked) -> Iterator[Candidate]:
    """The notebook's names; those that the cell has, first. Of results what the cell binds, too."""
    option, namespace = asked.cursor.option, asked.shell.user_ns
    hidden, listed = asked.shell.user_ns_hidden, set(asked.cursor.listed)
    in_cell = set(re.findall(r"[^\W\d]\w*", asked.body))
    mine = {name: value for name, value in namespace.items() if not name.startswith("_") and name not in hidden}
    bound = (
        _bound_by(asked.body) - mine.keys()
        if option is not None and option.name in ("out", "gather", "metric")
        else set()
    )
    ranked = sorted(mine, key=lambda name: (name not in in_cell, type(mine[name]).__name__ in _LATER))
    for name in [*sorted(bound), *ranked]:
        if name not in listed:
            yield Candidate(name, type(mine[name]).__name__ if name in mine else "bound by this cell")


def _bound_by(code: str) -> set[str]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _exported(asked: _Asked) -> Iterator[Candidate]:
    for key in sorted(os.environ.keys() - set(asked.cursor.listed)):
        yield Candidate(key)


def _folders(asked: _Asked) -> Iterator[Candidate]:
    typed = asked.cursor.typed
    opened = typed[:1] if typed[:1] in _QUOTES else ""
    start, slash, _ = typed[len(opened) :].rpartition("/")
    for name in _subfolders(os.path.expanduser(start + slash) or "."):
        if (quoted := _quoted(f"{start}{slash}{name}/", opened)) is not None:
            yield Candidate(quoted, "folder")


def _quoted(path: str, opened: str) -> str | None:
    """A path with an opening quote where it needs one: more may be typed behind it. None: no quotes would do."""
    if not opened and not re.search(r"[\s\"'\\]", path):
        return path
    quote = next((each for each in opened or _QUOTES if each not in path), None)
    return None if quote is None or "\\" in path else f"{quote}{path}"


def _subfolders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except (OSError, ValueError):  # ValueError: a zero byte
        return []


_VALUES: dict[str, Callable[[_Asked], Iterable[Candidate]]] = {
    "gpus": _gpus,
    "gpu-type": _gpu_types,
    "min-gpu-memory": _gpu_memory,
    "ranks": _ranks,
    "nodes": _nodes,
    "queue": _queues,
    "export": _exported,
    "workdir": _folders,
}
