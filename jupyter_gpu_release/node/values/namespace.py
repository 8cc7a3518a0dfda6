"""The rank's side of a cell's names: fill its namespace, and find what it made and changed."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import time
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...analysis.cell_facts import is_last_output, is_machinery
from ...cell_api.ranks import ranks
from ...errors import LoadError
from ...protocol.cell import FRAMES_LIMIT_BYTES, OTHERS_LIMIT_BYTES, CellPayload, FailedFrames, Graph, LastOutput
from ...protocol.runs import ValueInfo
from ...protocol.wire import without_gc
from ...serialization import codec
from ...serialization.codec import suppressed_warnings
from ...serialization.diagnosis import find_trouble
from ...serialization.exceptions import has_group
from ...serialization.lazy_modules import module_or_deferred
from ...serialization.process_state import random_states
from ...serialization.process_state.local_modules import is_attribute_name
from ...serialization.rebuild import NamespaceInfo
from ...serialization.reducers.torch_distributed import unwrap_replica
from ...serialization.sharing.array_memory import in_writing_order
from ...serialization.sharing.numbered_parts import LargeInput
from ...serialization.sharing.references import HeldParts, Key, KnownInputs, Live
from ...store.mapped.mapping import GraphMap
from ...units import format_bytes
from . import frameworks
from .changes import ArrivedNumbers, Fingerprint, FingerprintReader, NameSnapshot, ObjectIds, is_immutable
from .failed_frames import collect_frames
from .held_names import HeldNames
from .last_output import last_output
from .local_modules import ModulesOfNotebook
from .settings import CellSettings, OnceWarnings

_MOST_NAMED = 8
_UNDERSCORES = ("_", "__", "___")
#: the GPU waits while the rank looks for what it cannot return
_DIAGNOSIS_S = 0.02


@dataclass
class Collected:
    """Everything that goes home. ``buffers`` point at live memory of this process."""

    stream: bytes
    buffers: list[memoryview]
    total_bytes: int
    results: list[ValueInfo]
    notes: list[str] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)


class RankValues:
    """``load`` before the cell, ``collect`` after it, however it ended."""

    def __init__(
        self,
        namespace: dict[str, Any],
        payload: CellPayload,
        stream: bytes,
        buffers: Sequence[Any],
        *,
        has_gpu: bool,
        settings: CellSettings | None = None,
    ) -> None:
        self._namespace = namespace
        self._payload = payload
        self._graph = (stream, buffers)
        self._realm = NamespaceInfo(namespace, at_home=False, has_gpu=has_gpu)
        self._maps = {id(found): found for found in map(_map_of, buffers) if found is not None}
        self._before: dict[str, NameSnapshot] = {}
        self._known = ObjectIds({})
        self._numbers = ArrivedNumbers({})
        self._inputs: dict[str, Fingerprint | None] = {}
        #: names that the cell has asked for → their numbers
        self._fetched: dict[str, ArrivedNumbers] = {}
        self._fetched_bytes: dict[str, int] = {}
        self._unbound: set[str] = set()
        self._warnings = OnceWarnings(())
        #: how the cell failed
        self.error: BaseException | None = None
        #: the value of its last expression, if there was one
        self.shown: tuple[Any, ...] = ()
        self._settings = settings or CellSettings(payload)
        self._modules = ModulesOfNotebook()
        self._choices: set[str] = set(payload.reevaluate)

    @property
    def realm(self) -> NamespaceInfo:
        """The namespace that these names belong to."""
        return self._realm

    # ---------------------------------------------------------------------------------- before
    def load(self) -> list[str]:
        """Fill the namespace; returns notes. Raises LoadError with the name of the value at fault."""
        notes: list[str] = []
        names, arrived = self._load_graph(notes)
        self._load_ambient()
        notes += self._reevaluate()
        for name in self._payload.unsent:
            self._namespace.setdefault(name, _Unsent())
        names += self._look_at_modules()
        reader = self._reader()
        with suppressed_warnings():
            for name in names if not self._payload.function else ():
                value = self._namespace[name]
                if not is_immutable(value) and not isinstance(value, types.ModuleType):
                    self._inputs[name] = reader.read_fingerprint(value)
        del arrived  # until here, so that what fingerprints make has no address of theirs
        self._before = {name: NameSnapshot(value) for name, value in self._namespace.items()}
        self._leave_modules()
        return notes

    def _look_at_modules(self) -> list[str]:
        """Count what is in the notebook's own modules as names, for a moment."""
        state = self._modules.state() if not self._payload.function else {}
        self._namespace.update(state)
        return [name for name, value in state.items() if self._modules.is_small(value)]

    def _leave_modules(self) -> None:
        for name in [name for name in self._namespace if is_attribute_name(name)]:
            del self._namespace[name]

    def _load_graph(self, notes: list[str]) -> tuple[list[str], dict[int, Any]]:
        stream, buffers = self._graph
        if not stream:
            return [], {}
        loaded = codec.load(stream, buffers, self._realm)
        for name, module in loaded.modules.items():
            may_wait = name in loaded.rest
            self._namespace[name] = (
                module_or_deferred(module, self._namespace) if may_wait else _import_for(name, module)
            )
        for module in loaded.facts.get("imports", ()):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        self._namespace.update(loaded.values)
        notes += self._modules.set_state(loaded.facts, loaded.state, loaded.values, self._realm)
        notes += [f"`{name}` is a placeholder in this cell: {reason}" for name, reason in loaded.missing.items()]
        self._known = ObjectIds(loaded.memo, loaded.facts.get("held", ()))
        if not self._payload.function:
            self._numbers = ArrivedNumbers(loaded.memo)
        return list(loaded.values), loaded.memo

    def _load_ambient(self) -> None:
        state = self._settings.state
        self._warnings = OnceWarnings(state.get("warned", ()))
        self._warnings.start_recording()
        self._settings.read_settings()
        frameworks.seed_generators(state.get("rng", {}), has_gpu=self._realm.has_gpu)

    def watch_threads(self) -> None:
        """Note that the cell was given threads: only what it changes of them itself goes home."""
        self._settings.watch_threads()

    def take_fetched(self, name: str, stream: bytes, buffers: Sequence[Any], first: int) -> Any:
        """Bind what the cell has asked the kernel for: an input from now on. ``first``: as in
        ``protocol.fetch.Answer``.

        Raises LoadError.
        """
        loaded = codec.load(stream, buffers, self._realm, self._live())
        self._maps.update({id(found): found for found in map(_map_of, buffers) if found is not None})
        self._known.add_arrived(loaded.memo, first)
        self._fetched[name] = ArrivedNumbers(loaded.memo, first)
        value = loaded.values[name]
        size = len(stream) + sum(memoryview(buffer).nbytes for buffer in buffers)
        may_change = not is_immutable(value)
        with suppressed_warnings():
            fingerprint = self._reader(name).read_fingerprint(value) if may_change else None
        holder = NameSnapshot(value)
        # Nothing is called from here on, so that no interrupt strikes in between: half an input would be taken for
        # one that the cell has unbound.
        if may_change:
            self._inputs[name] = fingerprint
        self._fetched_bytes[name] = size
        self._before[name] = holder
        self._namespace[name] = value
        return value

    def _live(self) -> Live:
        """Finds what was sent before."""
        numbered = self._known.finder()

        def find(key: Key) -> Any:
            found = None
            if isinstance(key, int):
                found = numbered(key)
            elif isinstance(key, str) and key in self._before:
                found = self._before[key].original(dict.get(self._namespace, key))
            if found is None:
                raise KeyError(key)
            return found

        return find

    def stop_fetching(self) -> None:
        """The cell is over: what it has not asked for stays where it is."""
        if isinstance(self._namespace, HeldNames):
            self._unbound = self._namespace.release_names()

    def _reevaluate(self) -> list[str]:
        """Device choices of the notebook, made again where the hardware is."""
        notes: list[str] = []
        for name, expression in self._payload.reevaluate.items():
            if not self._realm.has_gpu and _is_literal(expression):
                continue  # a device that came home; without a GPU it stays what the kernel has
            try:
                value = eval(compile(expression, f"<{name}>", "eval"), self._namespace)
            except Exception as error:  # noqa: BLE001 - the user's own expression
                notes.append(f"`{name}` could not be evaluated again: {type(error).__name__}: {error}")
                continue
            if str(value) != str(self._namespace.get(name)):
                notes.append(f"`{name}` was evaluated again for this cell: {value}")
            self._namespace[name] = value
        return notes

    def _reader(self, name: str = "") -> FingerprintReader:
        numbers = self._fetched.get(name, self._numbers)
        return FingerprintReader(self._realm, self._maps.values(), large=not numbers.are_known)

    # ----------------------------------------------------------------------------------- after
    def collect(self) -> Collected:
        """Names that the cell bound or deleted and inputs that it changed in place, as one graph.

        What cannot be pickled is left out and said in the notes.
        """
        self.stop_fetching()
        self._warnings.stop_recording()
        self._modules.end()
        self._look_at_modules()
        set_in_imported, deleted = self._modules.set_by_cell()
        self._namespace.update(set_in_imported)
        with without_gc(), suppressed_warnings():
            changed, known = self._look_at_inputs()
        names = self._returned(changed)
        notes = self._what_was_fetched()
        if has_group(self.error):
            notes.append("the exception group is shown as the cell's error (a plain cell prints it on stderr)")
        home, values = self._devices_home({name: self._namespace[name] for name in names}, notes)
        random_states.step_after_devices()
        facts = {
            "inplace": [name for name in names if name in changed],
            "deleted": [
                *(
                    name
                    for name in dict.fromkeys([*self._before, *self._unbound])
                    if name not in self._namespace and not is_machinery(name)
                ),
                *deleted,
            ],
            "imported": self._modules.imported,
            "devices": home,
            "rng": random_states.capture_rng(),
            "failed": self._failed_frames(FRAMES_LIMIT_BYTES),
            "warned": self._warnings.shown,
        }
        facts |= self._last_outputs(names, changed, known)
        same = functools.partial(self._known.numbers_of, only_sentinels=bool(self._payload.function))
        failed: dict[str, Exception] = {}
        troubles: dict[str, str] = {}

        def further(_codes: Any, is_written: Any) -> dict[str, Any]:
            troubles.update(self._troubles(values, failed))
            lost = {name: troubles.get(name, "it cannot be pickled") for name in failed if name not in changed}
            lost = {name: why for name, why in lost.items() if not is_attribute_name(name)}
            return {**facts, "same": same(is_written), "lost": lost}

        # before the values, whose packages may ask for it when they are imported (KERAS_BACKEND)
        first = self._changed_settings(notes)
        if len(values) > 1:
            values = in_writing_order(values)
        dump = codec.dump(values, self._realm, facts=further, first=first, known=known, failed=failed)
        notes += self._left_out(failed, troubles)
        notes += dump.notes("came back")
        results = [
            ValueInfo(name, _type_name(values[name]), dump.sizes[name])
            for name in names
            if name in dump.sizes and not _is_import(values[name]) and not is_attribute_name(name)
        ]
        self._leave_modules()
        return Collected(dump.stream, dump.buffers, dump.total_bytes, results, notes, dump.keep)

    def _what_was_fetched(self) -> list[str]:
        names = [f"`{name}` ({format_bytes(size)})" for name, size in self._fetched_bytes.items()]
        return [f"fetched while running: {', '.join(names)}"] if names else []

    def _last_outputs(self, returned: list[str], changed: set[str], known: KnownInputs | None) -> dict[str, Any]:
        """The value of the last expression, and `_` where the cell has bound it: then it is the user's for good."""
        namespace, before = self._namespace, self._before
        assigned = [name for name in _UNDERSCORES if name in namespace and not self._is_as_before(name)]
        if self._payload.function or not (self.shown or assigned):
            return {}
        stay = (name for name in before if name in namespace and name not in changed and self._is_as_before(name))
        names = {name: namespace[name] for name in [*returned, *stay] if not _is_hidden(name)}
        send = functools.partial(self._last_output, names, known)
        return {
            "last": send(self.shown[0]) if self.shown else None,
            "assigned": {name: send(namespace[name]) for name in assigned},
        }

    def _is_as_before(self, name: str) -> bool:
        return name in self._before and self._before[name].holds(self._namespace[name])

    def _last_output(self, names: dict[str, Any], known: KnownInputs | None, value: Any) -> LastOutput | None:
        try:
            return last_output(value, names, self._realm, known)
        except Exception:  # noqa: BLE001 - a value of any kind
            return None

    def frames_of_error(self) -> Graph | None:
        """Frames of a rank that hands no names over: those of its error. Does not wait for its GPU."""
        withheld = "its GPU was still at work" if self._realm.has_gpu and frameworks.gpu_is_busy() else ""
        failed = self._failed_frames(OTHERS_LIMIT_BYTES, withheld)
        if failed is None:
            return None
        dump = codec.dump({}, self._realm, facts=lambda *_: {"failed": failed})
        return Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers])

    def _failed_frames(self, limit_bytes: int, withheld: str = "") -> FailedFrames | None:
        if self.error is None or self._payload.function:
            return None
        try:
            return collect_frames(self.error, self._namespace, self._realm, limit_bytes, withheld)
        except Exception:  # noqa: BLE001 - variables of any kind; the names must come home all the same
            return None

    def _changed_settings(self, notes: list[str]) -> dict[str, Any]:
        changed, left = self._settings.changes()
        if left:
            notes.append(f"{', '.join(left)}: set in the cell only, since it does not travel")
        found: dict[str, Any] = {"settings": changed} if changed else {}
        if folder := self._settings.new_folder(notes):
            found["folder"] = (folder.path, folder.inode)
        return found

    def _look_at_inputs(self) -> tuple[set[str], KnownInputs | None]:
        """Names of inputs that were changed in place, and the objects that were not."""
        common, changed = self._reader(), set()
        keys: dict[int, Key] = {}
        things: list[Any] = []
        held: list[HeldParts] = []
        large: list[LargeInput] = []
        for name, before in self._inputs.items():
            now = self._namespace.get(name, self)
            value = self._before[name].original(now)
            if value is None:
                continue
            reader = self._reader(name) if name in self._fetched else common
            if before is None or not reader.is_same(before, value):
                changed |= {name} if value is now else set()
                continue
            numbers = self._fetched.get(name, self._numbers)
            if numbers.are_known:
                places, found = reader.still_in_place(before, value)
                keys.update(numbers.keys_of(places))
            else:
                idents, found = reader.parts_in_place(before, value)
                held.append(HeldParts(name, idents))
                large += [] if self._payload.function else [reader.as_large(name, value)]
            keys.setdefault(id(value), name)
            things += [*found, value]
        if large and not self._may_refer(changed):
            large = []
        return changed, KnownInputs(keys, things, held, large) if keys else None

    def _may_refer(self, changed: set[str]) -> bool:
        """Tell if something goes home that can hold an input."""
        made = (
            value
            for name, value in self._namespace.items()
            if not _is_hidden(name) and (name in changed or not self._is_as_before(name))
        )
        return any(not is_immutable(value) for value in (*made, *self.shown))

    def _returned(self, changed: set[str]) -> list[str]:
        skipped = set(self._payload.skip)
        if self._payload.out is not None:
            return [name for name in self._payload.out if name in self._namespace and name not in skipped]
        return [
            name
            for name, value in self._namespace.items()
            if name not in skipped
            and not _is_hidden(name)
            and (name in changed or name not in self._before or not self._before[name].holds(value))
        ]

    def _devices_home(self, values: dict[str, Any], notes: list[str]) -> tuple[dict[str, str], dict[str, Any]]:
        """``device = "cuda"`` comes home as "cpu" (a ``torch.device`` does so by its reducer)."""
        home: dict[str, str] = {}
        for name, value in values.items():
            word = frameworks.is_device_word(name, value)
            if word:
                home[name] = value
                values[name] = "cpu"
            if word or frameworks.is_gpu_device(value):
                notes.append(f"`{name}` is {value} in GPU cells and cpu in the notebook")
        return home, values

    def _troubles(self, values: dict[str, Any], failed: dict[str, Exception]) -> dict[str, str]:
        """Reasons why the first few of these cannot return."""
        found, deadline = {}, time.monotonic() + _DIAGNOSIS_S
        for name in list(failed)[:_MOST_NAMED]:
            left_s = max(0.0, deadline - time.monotonic())
            found[name] = str(
                find_trouble(name.replace(":", "."), values[name], self._realm, failed[name], longest_s=left_s)
            )
        return found

    def _left_out(self, failed: dict[str, Exception], troubles: dict[str, str]) -> list[str]:
        notes = [f"{trouble} (not returned)" for trouble in troubles.values()]
        if len(failed) > _MOST_NAMED:
            notes.append(f"{len(failed) - _MOST_NAMED} more names could not be returned")
        for name in self._payload.out or ():
            if name not in self._namespace:
                notes.append(f"`{name}` (--out) was not bound by the cell")
        return notes

    def untouched_reason(self) -> str:
        """The reason why the GPU was not touched, as far as can be told from here; empty when it was."""
        if not self._realm.has_gpu or frameworks.has_touched_gpu():
            return ""
        return frameworks.untouched_reason(self._namespace)


class _Unsent:
    """Stands for a value that the cell does not read: whether the name is unbound, the notebook wants to know."""

    def __repr__(self) -> str:
        return "<in the notebook, and not sent>"


def _is_literal(expression: str) -> bool:
    try:
        ast.literal_eval(expression)
    except ValueError:
        return False
    return True


def _map_of(buffer: Any) -> GraphMap | None:
    owner = buffer.obj if isinstance(buffer, memoryview) else None
    return owner if isinstance(owner, GraphMap) else None


def _import_for(name: str, module: str) -> types.ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = getattr(error, "name", None) or module
        raise LoadError(
            f"`{name}` is the module {module}, which cannot be imported on the node: {error}",
            hint=f"install {missing} on the nodes, or import it inside the cell where it is optional",
        ) from error


def _is_import(value: Any) -> bool:
    """A module, a class or function of one, or ``ranks``: it is bound in the notebook, but no result."""
    if isinstance(value, types.ModuleType) or value is ranks:
        return True
    defined_somewhere = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
    return defined_somewhere and getattr(value, "__module__", "__main__") != "__main__"


def _is_hidden(name: str) -> bool:
    return is_machinery(name) or is_last_output(name)


def _type_name(value: Any) -> str:
    """The type of what travels, which of a replica is the module in it."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else type(unwrap_replica(value)).__name__
