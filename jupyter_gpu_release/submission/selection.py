"""Choice of the names that go, device choices, placement on devices."""

from __future__ import annotations

import functools
import sys
import textwrap
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..adapters.registry import loaded_adapters
from ..analysis.cell_facts import HISTORY, CellFacts, is_latest, is_machinery
from ..analysis.device_choices import Assignment, DeviceLedger
from ..analysis.reflection import (
    Reflection,
    names_in_annotation,
    reflection_in_query,
    reflection_in_text,
    reflection_of,
)
from ..errors import CannotSendError, OptionError
from ..host.secrets import looks_secret
from ..serialization import codec
from ..serialization.load_order import global_reads
from ..serialization.process_state.local_modules import is_attribute_name, split_attribute_name, state_of, words_for
from ..serialization.sharing.array_memory import in_writing_order
from ..units import format_bytes
from .placeholders import NeedsRunError, Pending

_ATOMS = (str, bool, int, float, type(None))
_DEVICE_WORDS = ("cpu", "cuda", "gpu", "mps", "xpu")


def is_device_choice(value: Any, *, strictly: bool) -> bool:
    """Tell if evaluating again makes sense: a device, a word, a flag, a number, a small dict of such.

    ``strictly``: only a device or the name of one (the expression runs a function of the notebook).
    """
    if type(value).__name__ in ("device", "dtype", "Device", "LogicalDevice", "PhysicalDevice"):
        return True
    if strictly:
        return isinstance(value, str) and value.partition(":")[0].lower() in _DEVICE_WORDS
    if isinstance(value, (list, tuple)):
        return all(is_device_choice(part, strictly=False) for part in value)
    if isinstance(value, dict):
        return all(is_device_choice(part, strictly=False) for part in value.values())
    return isinstance(value, _ATOMS)


def follow_placement(name: str, value: Any, ledger: DeviceLedger) -> None:
    """``model.to(device)`` ran on the CPU kernel: the GPU cell shall find the model on its device."""
    placed = ledger.placed.get(name)
    for adapter in loaded_adapters() if placed is not None else ():
        adapter.follow_placement(value, "cuda" if placed else "")


#: the usual ``c.GpuRelease.implicit_send_max``
IMPLICIT_SEND_BYTES = 64 << 20
_MOST_NAMED = 8


@dataclass(frozen=True)
class Ways:
    """Ways for the user to send what was held back: a cell's options, or a launched function's keywords."""

    name: str = "--in +{name} sends it"
    variable: str = "--export {name} sends it"
    attribute: str = "set it in the cell"


@dataclass(frozen=True)
class NameChoice:
    """The user's choices about names. ``include``: ``--in a,b`` (exactly these; None: found automatically);
    ``include_more``: ``--in +a`` (in addition); ``out``: ``--out``; ``skip``: ``--skip``; ``gather``: ``--gather``;
    ``environment``: variables of ``--env`` and ``--export``; ``implicit_bytes``: how much goes along where any name
    may be looked up (``c.GpuRelease.implicit_send_max``); ``ways``: what warnings advise.
    """

    include: list[str] | None = None
    include_more: list[str] = field(default_factory=list)
    out: list[str] | None = None
    skip: list[str] = field(default_factory=list)
    gather: list[str] = field(default_factory=list)
    environment: frozenset[str] = frozenset()
    implicit_bytes: int = IMPLICIT_SEND_BYTES
    ways: Ways = Ways()
    #: the kernel waits for the cell, so what has no room is fetched when the cell asks for it
    fetches: bool = False


_LONGEST_REASON = 80

Awaits = Callable[[str, Any], Pending | None]


def placeholder(_name: str, value: Any) -> Pending | None:
    """``value``, if it stands for one that is not there yet."""
    return value if isinstance(value, Pending) else None


class Selection:
    """Decides name by name, first for what the cell reads, then for what its functions read."""

    def __init__(
        self,
        namespace: dict[str, Any],
        facts: CellFacts,
        choice: NameChoice,
        ledger: DeviceLedger,
        awaits: Awaits = placeholder,
    ) -> None:
        self._namespace = namespace
        self._awaits = awaits
        self._facts = facts
        self._choice = choice
        self._ledger = ledger
        self._chosen = {*(choice.include or ()), *choice.include_more}
        self._skipped = frozenset(choice.skip)
        self._choices: dict[str, Assignment] = {}
        #: everything given out so far
        self.sent: dict[str, Any] = {}
        self.held_back: list[str] = []
        self.notes: list[str] = []
        #: said before the run is queued
        self.warnings: list[str] = []
        self._reflection = Reflection()
        if facts.reflection != Reflection():
            self._reflect(facts.reflection, facts.bound)
        #: names that go along if they can, since any may be looked up
        self.implicit: set[str] = set()
        #: those of them that have no room, and can be fetched → bytes at least
        self.held: dict[str, int] = {}
        #: attributes of libraries that the notebook has set
        self._patched: set[str] = set()
        #: names that only functions read that were put into modules
        self._read_by_state: set[str] = set()
        self._has_state = False
        #: such names that are not ready
        self._unready: list[str] = []
        self._refuse_unknown()

    def _refuse_unknown(self) -> None:
        for name in sorted(self._chosen):
            if name not in self._namespace or is_machinery(name, self._namespace):
                raise OptionError(f"--in {name}: the notebook has no such name", hint="check the spelling")
        for name in sorted(self._facts.reads & HISTORY - self._skipped):
            if is_machinery(name, self._namespace) and self._choice.include is None:
                raise CannotSendError(
                    f"`{name}` is this session's whole history, it stays in the kernel",
                    hint="give the value a name before the cell (x = Out[3]) and use that",
                )

    def first(self) -> dict[str, Any]:
        """Values of the names that the cell itself reads."""
        names = self._chosen | self._facts.reads | self._facts.hints | self._reflection.names
        found: dict[str, Any] = {}
        for name in self._classes() if self._reflection.all_classes else ():
            found |= self._with_device_choice(name)
        for name in sorted((names & self._namespace.keys()) | self._kinds(self._facts.annotated)):
            found |= self._with_device_choice(name)
        return in_writing_order(found) if len(found) > 1 else found

    def add(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send these, too, whatever the namespace holds."""
        self.sent |= values
        return values

    def follow(self, name: str) -> dict[str, Any]:
        """A function reads this global: what to send because of it."""
        before = set(self.sent)
        found = self._with_device_choice(name) if name in self._namespace else {}
        if self._has_state:
            self._read_by_state |= found.keys() - before
        return found

    def home(self, thing: Any) -> dict[str, Any]:
        """A class or function travels: the name by which ``pickle`` finds it, if it finds it here.

        The object goes along in any case, so this asks no more than whether the name is to be skipped. For a function
        that looks names up by text, these too.
        """
        found = self._looked_up_by(thing) if isinstance(thing, types.FunctionType) else {}
        return found | self._home(thing) | self._in_annotations(thing)

    def _home(self, thing: Any) -> dict[str, Any]:
        if getattr(thing, "__module__", None) != "__main__":
            return {}
        root, *parts = thing.__qualname__.split(".")
        found = self._namespace.get(root)
        if root in self._skipped or functools.reduce(_static_attribute, parts, found) is not thing:
            return {}
        self.sent.setdefault(root, found)
        return {root: found}

    def _in_annotations(self, thing: Any) -> dict[str, Any]:
        """Names in annotations that are texts, which ``typing.get_type_hints`` looks up."""
        annotations = vars(thing).get("__annotations__") if isinstance(thing, type) else thing.__annotations__
        values = annotations.values() if type(annotations) is dict else ()
        names = self._kinds(name for value in values for name in names_in_annotation(value))
        self._reflection.names |= names
        return {name: value for each in sorted(names) for name, value in self._with_device_choice(each).items()}

    def _kinds(self, names: Iterable[str]) -> set[str]:
        """Those of the names in an annotation's text that hold what an annotation is made of.

        Words of ``Literal["train"]`` and ``Float[Tensor, "batch width"]`` name no data of the notebook.
        """
        kinds = (type, types.ModuleType, types.GenericAlias, types.UnionType)
        found = {name: self._namespace[name] for name in names if name in self._namespace}
        return {name for name, value in found.items() if isinstance(value, kinds) or type(value).__module__ == "typing"}

    def _looked_up_by(self, function: types.FunctionType) -> dict[str, Any]:
        if function.__globals__ is not self._namespace:
            return {}
        asked = reflection_of(function)
        before = set(self._reflection.names)
        self._reflect(asked, set(function.__code__.co_varnames) | set(function.__code__.co_freevars))
        names = [*self._classes()] if asked.all_classes else []
        found: dict[str, Any] = {}
        for name in [*names, *sorted(self._reflection.names - before | asked.names)]:
            found |= self._with_device_choice(name)
        return found

    def _reflect(self, asked: Reflection, bound: Collection[str]) -> None:
        """Look up what is meant by name; ``bound``: names that are not (or no longer) the notebook's."""
        self._reflection.add(asked)
        texts = [(name, reflection_in_text) for name in asked.texts]
        for name, read in [*texts, *((name, reflection_in_query) for name in asked.queries)]:
            value = None if name in bound else self._namespace.get(name)
            if isinstance(value, str):
                self._reflection.add(read(value))
            elif isinstance(value, types.CodeType):
                self._reflection.names |= global_reads(value).keys()
            elif value is None:
                self._reflection.any_name |= name in asked.texts or "pandas" in sys.modules

    def _classes(self) -> list[str]:
        """Classes in the order in which the notebook defined them."""
        return [name for name, value in self._namespace.items() if isinstance(value, type) and _is_own(value)]

    def _definitions(self) -> list[str]:
        """The same with functions: what a pickle may name."""
        kinds = (type, types.FunctionType)
        own = [name for name, value in self._namespace.items() if isinstance(value, kinds) and _is_own(value)]
        return [name for name in own if name not in self.sent or name in self._read_by_state]

    def bound(self, is_written: Callable[[Any], bool]) -> dict[str, Any]:
        """Names that the cell only binds or deletes, and whose values go along: there they hold them until then."""
        names = (self._facts.bound | self._facts.deleted) & self._namespace.keys() - self.sent.keys()
        written = [name for name in sorted(names) if is_written(self._namespace[name])]
        return {name: value for each in written for name, value in self._take(each).items()}

    def rest(self) -> dict[str, Any]:
        """All that could be meant where names are looked up by text that is not known before the cell runs."""
        if self._choice.include is not None:
            return {}
        found: dict[str, Any] = {}
        if not self._reflection.any_name:
            for name in self._definitions() if self._reflection.definitions else ():
                self._read_by_state.add(name)
                found |= self._with_device_choice(name)
            return found
        self._unready.clear()
        for name, value in list(self._namespace.items()):
            if name in found or is_latest(name) or (name in self.sent and name not in self.implicit):
                continue
            if self._awaits(name, value) is not None:
                self._unready.append(name)
            elif self._may_go(name):
                self.implicit.add(name)
                found |= self._with_device_choice(name)
        return in_writing_order(found) if len(found) > 1 else found

    def state(self, modules: Iterable[str], patches: Mapping[str, Any], away: Mapping[str, Any]) -> dict[str, Any]:
        """The values that were set in these modules, which lie beside the notebook, by cells elsewhere (``away``), and
        (``patches``) in libraries.
        """
        if self._choice.include is not None:
            return {}
        found = {name: value for name, value in {**state_of(modules), **away}.items() if not _is_secret(name, value)}
        for name, value in patches.items():
            if _is_secret(name, value):
                place = words_for(name)
                sentence = f"`{place}` looks like a secret and is held back: {self._choice.ways.attribute}"
                self.warnings += [sentence] if sentence not in self.warnings else []
            else:
                self._patched.add(name)
                found[name] = value
        self._has_state = True
        self.sent |= found
        return found

    def _as_in_the_notebook(self, failed: Mapping[str, Exception]) -> Mapping[str, Exception]:
        """The same, in the order in which the notebook made the names: they are written in another one."""
        if len(failed) < 2:
            return failed
        order = {name: number for number, name in enumerate(self._namespace)}
        return dict(sorted(failed.items(), key=lambda item: order.get(item[0], len(order))))

    def note_unsent(self, failed: Mapping[str, Exception]) -> None:
        """Say which of the names that could be meant do not go along, and why."""
        failed = self._as_in_the_notebook(failed)
        large = {name: error.bytes for name, error in failed.items() if isinstance(error, codec.NoRoomError)}
        if self._choice.fetches:
            self.held = {name: size for name, size in large.items() if name in self.implicit}
        unsent = [f"`{name}` (still being made)" for name in self._unready]
        lacking = [name for name in failed if name in self.implicit and name not in self.held]
        unsent += [f"`{name}` ({_why(failed[name])})" for name in lacking]
        for name, error in failed.items():
            if name in self._patched:
                place = words_for(name)
                self.notes.append(f"`{place}` was set in the notebook and is not so in the cell: {_why(error)}")
            elif is_attribute_name(name) and isinstance(error, codec.NoRoomError):
                place = words_for(name)
                self.notes.append(f"`{place}` ({_why(error)}) is too large, the cell has what importing makes it")
        held = [f"`{name}` ({format_bytes(size)})" for name, size in self.held.items()]
        said = [f"fetched if the cell asks for it: {_listed(held)}"] if held else []
        way = self._choice.ways.name.format(name="NAME").replace("sends it", "sends one")
        said += [f"not sent: {_listed(unsent)} ({way})"] if unsent else []
        if said:
            self.warnings.append(f"this code looks names up by text, which could mean any; {'; '.join(said)}")

    def is_optional(self, name: str) -> bool:
        """Tell if the cell can do without: it is only perhaps read."""
        looked_up = name in self._reflection.names and name not in self._facts.reads
        may_lack = (
            name in self._facts.hints | self._facts.annotated
            or looked_up
            or name in self.implicit
            or name in self._read_by_state
        )
        return is_attribute_name(name) or (may_lack and name not in self._chosen)

    def module_names(self) -> dict[str, str]:
        """Sent names that hold modules → the module's full name."""
        return {name: value.__name__ for name, value in self.sent.items() if isinstance(value, types.ModuleType)}

    def reevaluate(self) -> dict[str, str]:
        """Device choices among what was sent, in the order of evaluation."""
        return {name: choice.expression for name, choice in self._choices.items()}

    # ---------------------------------------------------------------------------------- inside
    def _with_device_choice(self, name: str) -> dict[str, Any]:
        found = self._take(name)
        if name not in found:
            return found
        wanted = self._ledger.wanted([name])
        settled = [part for part, choice in wanted.items() if choice.in_gpu_cell and self._is_number(part)]
        if name in settled:
            return found
        for part in settled:
            del wanted[part]
            found |= self._take(part)
        if not wanted or not all(self._is_choice(part, choice) for part, choice in wanted.items()):
            return found
        for part, choice in wanted.items():
            found |= self._take(part)
            for read in sorted(choice.reads & self._namespace.keys()):
                found |= self._take(read)
        self._choices |= wanted
        return found

    def _is_number(self, name: str) -> bool:
        return type(self._namespace.get(name)) in (int, float)

    def _is_choice(self, name: str, choice: Assignment) -> bool:
        if name not in self._namespace or name in self._skipped:
            return False
        return is_device_choice(self._namespace[name], strictly=choice.through_function)

    def _take(self, name: str) -> dict[str, Any]:
        if name in self.sent:
            return {name: self.sent[name]}
        pending = self._awaits(name, self._namespace.get(name))
        if pending is not None and name not in self._skipped:
            raise NeedsRunError(name, pending)
        if not self._may_go(name):
            return {}
        value = self.sent[name] = self._namespace[name]
        follow_placement(name, value, self._ledger)
        return {name: value}

    def _may_go(self, name: str) -> bool:
        if name in self._skipped or is_machinery(name, self._namespace) or name not in self._namespace:
            return False
        if is_latest(name) and name not in self._facts.reads:
            return False
        value = self._namespace[name]
        if name in self._chosen:
            return True
        if _is_ipythons(value):
            return False
        if self._choice.include is not None and not isinstance(value, types.ModuleType):
            return False
        if looks_secret(name, value):
            self._hold_back(name)
            return False
        return True

    def _hold_back(self, name: str) -> None:
        if name not in self.held_back:
            self.held_back.append(name)
            way = self._choice.ways.name.format(name=name)
            self.warnings.append(f"`{name}` looks like a secret and is held back: {way}")


def _is_secret(name: str, value: Any) -> bool:
    return looks_secret(split_attribute_name(name)[1].rpartition(".")[2], value)


def _is_own(thing: Any) -> bool:
    return bool(thing.__module__ == "__main__")


def _why(error: Exception) -> str:
    if isinstance(error, codec.NoRoomError):
        return format_bytes(error.bytes)
    return textwrap.shorten(str(error) or type(error).__name__, _LONGEST_REASON, placeholder=" …")


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return f"{', '.join(words[:_MOST_NAMED])}{more}"


def _static_attribute(owner: Any, name: str) -> Any:
    found = vars(owner).get(name) if isinstance(owner, type) else None
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _is_ipythons(value: Any) -> bool:
    """``open`` and the like, which IPython puts into the namespace (it wears the name of the function it wraps)."""
    return (
        isinstance(value, types.FunctionType) and value.__globals__.get("__name__") == "IPython.core.interactiveshell"
    )
