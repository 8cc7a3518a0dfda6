"""The rank's side of a cell's names: fill its namespace, and find what it made and changed."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import math
import sys
import time
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...adapters.adapter import GroupState, ImmovableError
from ...adapters.registry import adapters_of, loaded_adapters
from ...adapters.stdlib.values import calls_left_out, kept_alive, without_finalizers
from ...analysis.cell_facts import EXIT_CODE, is_latest, is_machinery
from ...cell_api.ranks import ranks
from ...errors import LoadError
from ...exchange.verdicts import Numbering
from ...protocol.cell import (
    FRAMES_LIMIT_BYTES,
    OTHERS_LIMIT_BYTES,
    RESULT,
    RESUME,
    CellPayload,
    FailedFrames,
    Graph,
    LastOutput,
)
from ...protocol.runs import ValueInfo
from ...protocol.wire import without_gc
from ...serialization import codec
from ...serialization.codec import suppressed_warnings
from ...serialization.diagnosis import UnpicklablePart, find_trouble
from ...serialization.exceptions import has_group
from ...serialization.hashing.fingerprints import Compared, Fingerprint, FingerprintReader
from ...serialization.identity import Origins
from ...serialization.lazy_modules import module_or_deferred
from ...serialization.load_order import global_reads
from ...serialization.process_state import random_states
from ...serialization.process_state.local_modules import is_attribute_name, is_deleted, words_for
from ...serialization.rebuild import NamespaceInfo
from ...serialization.sharing.array_memory import in_writing_order
from ...serialization.sharing.held_elsewhere import can_change
from ...serialization.sharing.namespace_update import NamespaceUpdate
from ...serialization.sharing.numbered_parts import LargeInput
from ...serialization.sharing.references import HeldParts, Key, KnownInputs, Live, Originals
from ...store.mapped.mapping import GraphMap
from ...units import format_bytes
from ...unpickling import Trust
from . import frameworks
from .changes import ArrivedNumbers, NameSnapshot, ObjectIds, drop_temporaries, is_immutable, numbering_of
from .collected_values import Collected
from .error_frames import collect_frames
from .inputs_after import InputsAfter
from .last_output import last_output
from .local_modules import ModulesOfNotebook
from .names_on_request import HeldNames
from .settings import CellSettings, OnceWarnings

_MOST_NAMED = 8
_UNDERSCORES = ("_", "__", "___")
#: the GPU waits while the rank looks for what it cannot return
_DIAGNOSIS_S = 0.02


def _cells_of(payload: CellPayload) -> list[tuple[str, str]]:
    """File name and text of this cell and of those whose functions came with it."""
    own = payload.filename, "\n" * payload.line_offset + payload.source
    return [own, *((source.filename, source.text) for source in payload.sources)]


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
        origins: Origins | None = None,
    ) -> None:
        self._namespace = namespace
        self._payload = payload
        self._graph = (stream, buffers)
        self._realm = NamespaceInfo(namespace, at_home=False, has_gpu=has_gpu, cells=lambda: _cells_of(payload))
        if origins is not None:  # of what came before the graph
            self._realm.origins = origins
        self._maps = {id(found): found for found in map(_map_of, buffers) if found is not None}
        self._before: dict[str, NameSnapshot] = {}
        self._known = ObjectIds({})
        #: numbers of inputs' parts that something else in the notebook holds
        self._held_elsewhere: Sequence[int] = ()
        #: number → those of them that no input leads to: what a class holds, memory that is seen through another object
        self._apart: dict[int, Fingerprint | None] = {}
        self._numbers = ArrivedNumbers({})
        #: which objects are the notebook's; None: there are too many to compare them one by one
        self._numbering: Numbering | None = None
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
        #: of the graph that was sent: number → object; kept for a save only
        self._arrived: dict[int, Any] = {}
        #: of an earlier attempt: what belongs to its process group
        self.group: GroupState | None = None

    @property
    def realm(self) -> NamespaceInfo:
        """The namespace that these names belong to."""
        return self._realm

    # ---------------------------------------------------------------------------------- before
    def load(self, *, keep: bool = False) -> list[str]:
        """Fill the namespace; returns notes. Raises LoadError with the name of the value at fault.

        ``keep``: :meth:`restore` comes next.
        """
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
                if not is_immutable(value) and not (isinstance(value, types.ModuleType) and codec.is_importable(value)):
                    look = reader.read_fingerprint(value)
                    if look is not None or not is_attribute_name(name):  # a lock in a module, say: is it another one
                        self._inputs[name] = look
            self._apart = self._read_apart(reader)
        calls_left_out.clear()  # of what was made for a moment
        self._arrived = arrived if keep else {}
        del arrived  # until here, so that what fingerprints make has no address of theirs
        self._before = {name: NameSnapshot(value) for name, value in self._namespace.items()}
        self._leave_modules()
        return notes

    def _read_apart(self, reader: FingerprintReader) -> dict[int, Fingerprint | None]:
        reached = {id(self._namespace[name]) for name in self._inputs}
        reached.update(ident for found in self._inputs.values() if found is not None for ident in found.idents)
        held = self._known.held_elsewhere.items() if not self._payload.function else ()
        return {number: reader.read_fingerprint(thing) for number, thing in held if id(thing) not in reached}

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
            return self._modules.set_state({}, {}, {}, self._realm), {}
        loaded = codec.load(stream, buffers, self._realm, trust=Trust.RANK)
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
        drop_temporaries(loaded.memo)
        self._held_elsewhere = loaded.facts.get("held", ())
        self._known = ObjectIds(loaded.memo, self._held_elsewhere)
        if not self._payload.function:
            self._numbers = ArrivedNumbers(loaded.memo)
            if len(stream) <= codec.LONGEST_COUNTED_BYTES:  # so of the others nothing in the notebook holds one
                kept_alive[:] = [target for target in kept_alive if not can_change(type(target))]
                self._numbering = numbering_of(loaded.memo, self._known)
        return list(loaded.values), loaded.memo

    def _load_ambient(self) -> None:
        state = self._settings.state
        self._warnings = OnceWarnings(state.get("warned", ()))
        self._warnings.start_recording()
        self._settings.read_settings()
        random_states.seed_generators(state.get("rng", {}), has_gpu=self._realm.has_gpu)

    def watch_threads(self) -> None:
        """Note that the cell was given threads: only what it changes of them itself goes home."""
        self._settings.watch_threads()

    def take_fetched(self, name: str, stream: bytes, buffers: Sequence[Any], first: int) -> Any:
        """Bind what the cell has asked the kernel for: an input from now on. ``first``: as in
        ``protocol.fetch.Answer``.

        Raises LoadError.
        """
        loaded = codec.load(stream, buffers, self._realm, self._live(), trust=Trust.RANK)
        self._maps.update({id(found): found for found in map(_map_of, buffers) if found is not None})
        drop_temporaries(loaded.memo)
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

    def restore(
        self, stream: bytes, buffers: Sequence[Any], join: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """Bind what an earlier attempt has saved, as the notebook would bind its results; returns the ``state``.

        What was sent stays itself, so that in the end the whole cell's changes of it go home. ``join``: makes the
        process groups that the names belong to, and returns them by their old names.
        """
        numbered, self._arrived = self._arrived, {}
        self._look_at_modules()
        originals = {name: self._namespace[name] for name in self._before if name in self._namespace}
        sent = Originals(originals, lambda: numbered)
        self.group = self._realm.group = GroupState()
        try:
            loaded = codec.load(
                stream, buffers, self._realm, sent.find, lambda facts: self._read_first(facts, join), trust=Trust.RANK
            )
        except _OfCheckpointError as found:  # the cell begins anew, with what was sent
            self._leave_modules()
            return found.state
        except _NoGroupError as found:
            raise found.error from None
        finally:
            self._realm.group = None
        for module in (*loaded.facts.get("imported", ()), *loaded.modules.values()):
            importlib.import_module(module)
        loaded.values |= loaded.state | loaded.facts.get("devices", {}) | loaded.resume["names"]
        update = NamespaceUpdate(
            self._namespace, loaded, originals, {id(thing): (number, thing) for number, thing in numbered.items()}
        )
        update.bind()
        codec.settle_libraries()
        set_there = {name: value for name, value in loaded.resume["names"].items() if is_attribute_name(name)}
        self._modules.set_saved(self._namespace, loaded.state | set_there, loaded.facts.get("deleted", ()))
        self._leave_modules()
        self.group.replicas = [
            (replica, update.standing_for(module), made) for replica, module, made in self.group.replicas
        ]
        now = {
            number: update.standing_for(new) for number, new in zip(*loaded.facts.get("same", ((), ())), strict=True)
        }
        self._known = ObjectIds(numbered | now, self._held_elsewhere)
        for name in loaded.facts.get("inplace", ()):
            if name in self._namespace and not self._is_as_before(name):
                self._before[name] = NameSnapshot(self._namespace[name])
        self._warnings.add_shown(loaded.facts.get("warned", ()))
        return dict(loaded.resume)

    def _read_first(self, facts: dict[str, Any], join: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        if RESUME in facts:
            raise _OfCheckpointError(facts[RESUME])
        for place, folder in enumerate(facts.get("path", ())):
            if folder not in sys.path:  # before the modules that lie there are imported
                sys.path.insert(place, folder)
        self._settings.set_saved(facts)
        if (made := facts.get("group")) and self.group is not None:
            try:
                self.group.was, self.group.owns_memory = made["ranks"], made["fsdp"]
                self.group.groups = join(made)
            except Exception as error:
                raise _NoGroupError(error) from error

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
        numbering = None if name in self._fetched else self._numbering
        return FingerprintReader(self._realm, self._maps.values(), large=not numbers.are_known, numbering=numbering)

    # ----------------------------------------------------------------------------------- after
    def collect(self) -> Collected:
        """Names that the cell bound or deleted and inputs that it changed in place, as one graph.

        What cannot be pickled is left out and said in the notes.
        """
        self.stop_fetching()
        self._warnings.stop_recording()
        notes = self._modules.end()
        collected = self._collect(None)
        collected.notes += notes
        return collected

    def save(
        self,
        state: dict[str, Any],
        *,
        anew: Collection[str],
        may_read: Callable[[str], bool] = lambda _name: True,
        set_in_libraries: Mapping[str, Any] = MappingProxyType({}),
    ) -> Collected:
        """Gather what :meth:`collect` would return now, and with it ``state`` and all other names that the cell has
        bound, less those that it binds ``anew`` when it goes on, and what it has set in libraries.

        The cell goes on. Raises ImmovableError for what cannot be pickled and ``may_read`` by the cell's rest.
        """
        self._realm.group = GroupState(is_whole="statement" in state)
        try:
            return self._collect(state, anew, may_read, set_in_libraries)
        finally:
            self._realm.group = None
            self._leave_modules()

    def _collect(
        self,
        state: dict[str, Any] | None,
        anew: Collection[str] = (),
        may_read: Callable[[str], bool] = lambda _name: True,
        set_in_libraries: Mapping[str, Any] = MappingProxyType({}),
    ) -> Collected:
        """``state``: this is a save."""
        self._look_at_modules()
        set_in_imported, deleted = self._modules.set_by_cell()
        self._namespace.update(set_in_imported)
        # the notebook's own modules are looked at as a whole
        libraries = {name: value for name, value in set_in_libraries.items() if name not in self._namespace}
        with without_gc(), suppressed_warnings():
            after = self._look_at_inputs(self._fetched if state is not None else ())
        changed, known = after.changed, after.known
        names = [name for name in self._returned(changed) if name not in anew]
        notes = self._what_was_fetched()
        if has_group(self.error):
            notes.append("the exception group is shown as the cell's error (a plain cell prints it on stderr)")
        if calls_left_out:
            notes.append("a weak reference's callback is not called in the cell: its target ends in the notebook")
        failed: dict[str, Exception] = {}
        home, values = self._devices_home({name: self._namespace[name] for name in names}, notes)
        if state is None:
            random_states.step_after_devices()
        elif "statement" in state:
            others = self._others(changed, {*names, *anew}) | libraries
            state["names"] = {name: value for name, value in others.items() if self._can_be_saved(name, value, failed)}
            values[RESUME] = state
        shards = [name for name, value in values.items() if state is not None and is_sharded(value)]
        facts = self._facts(names, changed, deleted) | {"devices": home, "shards": shards}
        facts |= self._last_outputs(names, changed, known)
        same = functools.partial(self._known.numbers_of, only_sentinels=bool(self._payload.function))
        troubles: dict[str, UnpicklablePart] = {}

        def further(_codes: Any, is_written: Any) -> dict[str, Any]:
            troubles.update(self._troubles(values | libraries, failed))
            lost = {name: str(troubles.get(name, "it cannot be pickled")) for name in failed if name not in changed}
            lost = {name: why for name, why in lost.items() if not is_attribute_name(name)}
            pairs = dict(zip(*same(is_written), strict=True)) | after.parts_written(is_written)
            pairs |= self._parts_taken_out(is_written, after, notes)
            notes.extend(without_finalizers(is_written))
            as_before = after.as_before(pairs, self._reader())
            return {**facts, "same": ([*pairs], [*pairs.values()]), "as_before": as_before, "lost": lost}

        # before the values, whose packages may ask for it when they are imported (KERAS_BACKEND)
        first = self._changed_settings(notes, state)
        if len(values) > 1:
            values = in_writing_order(values)
        dump = codec.dump(values, self._realm, facts=further, first=first, known=known, failed=failed)
        notes += _left_to_ranks(shards, dump)
        if state is not None:
            self._refuse_loss(dump, failed, troubles, may_read, libraries)
        if state is None:
            notes += self._not_bound()
        notes += self._left_out(failed, troubles)
        notes += dump.notes("came back")
        results = [
            ValueInfo(name, _type_name(values[name]), dump.sizes[name])
            for name in names
            if name in dump.sizes and not _is_import(values[name]) and not is_attribute_name(name) and name != EXIT_CODE
        ]
        self._leave_modules()
        return Collected(dump.stream, dump.buffers, dump.total_bytes, results, notes, dump.keep, dump.spans)

    def _facts(self, names: list[str], changed: set[str], deleted: list[str]) -> dict[str, Any]:
        """``deleted``: attributes of modules."""
        return {
            "inplace": [name for name in names if name in changed],
            "deleted": [
                *(
                    name
                    for name in dict.fromkeys([*self._before, *self._unbound])
                    if name not in self._namespace
                    and not is_machinery(name, {})
                    and (not is_attribute_name(name) or is_deleted(name))
                ),
                *deleted,
            ],
            "ended": (self._known.ended(), self._numbering is not None),
            "imported": self._modules.imported,
            "rng": random_states.capture_rng(),
            "failed": self._failed_frames(FRAMES_LIMIT_BYTES),
            "warned": self._warnings.shown,
        }

    def _refuse_loss(
        self,
        dump: codec.Dump,
        failed: Collection[str],
        troubles: dict[str, UnpicklablePart],
        may_read: Callable[[str], bool],
        libraries: Mapping[str, Any],
    ) -> None:
        """Raise ImmovableError for what cannot be pickled: names that the cell's rest may read, what is set in
        ``libraries``.
        """
        read = read_by_functions(self._namespace, dump.codes)
        needed = [
            name
            for name in failed
            if name in libraries or (not is_attribute_name(name) and (name in read or may_read(name)))
        ]
        if needed:
            from .immovable import in_words

            said = []
            for name in needed[:_MOST_NAMED]:
                what, value = words_for(name), libraries.get(name, self._namespace.get(name))
                said.append(in_words(what, value, troubles.get(name, UnpicklablePart(what, "cannot be pickled"))))
            raise ImmovableError("; ".join(said))

    def _others(self, changed: set[str], but: Collection[str]) -> dict[str, Any]:
        """Values that do not go home and that the cell may read: of `_`, ``--skip``, what it has asked for."""
        return {
            name: value
            for name, value in dict.items(self._namespace)
            if name not in but
            and not is_machinery(name, self._namespace)
            and not is_attribute_name(name)
            and (name in changed or name in self._fetched or not self._is_as_before(name))
        }

    def _can_be_saved(self, name: str, value: Any, failed: dict[str, Exception]) -> bool:
        found = codec.dump({name: value}, self._realm).failed
        failed.update(found)
        return not found

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
        names = {name: namespace[name] for name in [*returned, *stay] if not _is_hidden(name, namespace)}
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

    def changed_settings(self) -> dict[str, Any]:
        """Settings that the cell has changed so far, for :meth:`set_settings`. Raises ImmovableError."""
        changed, left = self._settings.changes()
        if left:
            raise ImmovableError(f"the setting {left[0]} does not travel")
        return changed

    def set_settings(self, settings: dict[str, Any]) -> None:
        """Set what the cell had changed in an earlier attempt."""
        self._settings.set_saved({"settings": settings})

    def _changed_settings(self, notes: list[str], state: Mapping[str, Any] | None) -> dict[str, Any]:
        """Of a save, those outside of the ``with`` statements that the cell is in; of a checkpoint, only itself: who
        goes on from it reads nothing else.
        """
        if state is not None and "statement" not in state:
            return {RESUME: state}
        changed, left = ((state["around"] or state)["settings"], []) if state is not None else self._settings.changes()
        if left:
            notes.append(f"{', '.join(left)}: set in the cell only, since it does not travel")
        found: dict[str, Any] = {"settings": changed} if changed else {}
        if state is not None:
            found["path"] = [folder for folder in sys.path if isinstance(folder, str)]
            found["group"] = state["group"]
        if folder := self._settings.new_folder(notes):
            found["folder"] = (folder.path, folder.inode)
        return found

    def _parts_taken_out(
        self, is_written: Callable[[Any], bool], after: InputsAfter, notes: list[str]
    ) -> dict[int, Any]:
        """Parts of changed inputs that nothing there leads to any more, but something else in the notebook, by number.

        (``while todo: todo.pop().is_done = True``, and the notebook has its jobs in another list, too.)
        """
        if self._payload.function or self._payload.out is not None:
            return {}
        reader, known = self._reader(), after.known
        parts = {
            number: thing
            for number, thing in self._known.held_elsewhere.items()
            if not is_written(thing)
            and (known is None or known.key_of(thing) is None)
            and not reader.is_same(self._apart.get(number), thing)
        }
        for same in after.as_before(parts, reader, deep=True):
            del parts[same]
        if not parts:
            return {}
        tried = codec.dump({str(number): thing for number, thing in parts.items()}, self._realm)
        for number, why in tried.failed.items():
            note = f"a {_type_name(parts.pop(int(number)))} that the cell took out of an input is not returned: {why}"
            notes += [note] if note not in notes else []
        return parts

    def _look_at_inputs(self, but: Collection[str]) -> InputsAfter:
        """Changes that the cell made to the inputs, but for these."""
        common, changed = self._reader(), set[str]()
        compared: dict[str, Compared] = {}
        keys: dict[int, Key] = {}
        things: list[Any] = []
        held: list[HeldParts] = []
        large: list[LargeInput] = []
        for name, before in self._inputs.items():
            if name in but:
                continue
            now = self._namespace.get(name, self)
            value = self._before[name].original(now)
            if value is None:
                continue
            reader = self._reader(name) if name in self._fetched else common
            if before is None or not reader.is_same(before, value):
                if (found := reader.compare(before, value)) is not None:
                    compared[name] = found
                else:
                    changed |= {name} if value is now else set()
                continue
            numbers = self._fetched.get(name, self._numbers)
            if numbers.are_known:
                places, met = reader.still_in_place(before, value)
                keys.update(numbers.keys_of(places))
            else:
                idents, met = reader.parts_in_place(before, value)
                held.append(HeldParts(name, idents))
                large += [] if self._payload.function else [reader.as_large(name, value)]
            keys.setdefault(id(value), name)
            things += [*met, value]
        earlier = [before for name, before in self._inputs.items() if before is not None and name not in self._fetched]
        after = InputsAfter.of(compared, earlier, common)
        for name in compared:
            value = self._namespace.get(name, self)
            if not self._before[name].holds(value):
                continue
            if after.is_changed(name):
                changed.add(name)
            else:
                keys.setdefault(id(value), name)
                things.append(value)
        keys.update((id(thing), number) for number, thing in after.whole.items())
        things += after.whole.values()
        if large and not self._may_refer(changed):
            large = []
        after.changed = changed
        after.known = KnownInputs(keys, things, held, large) if keys else None
        return after

    def _may_refer(self, changed: set[str]) -> bool:
        """Tell if something goes home that can hold an input."""
        made = (
            value
            for name, value in self._namespace.items()
            if not _is_hidden(name, self._namespace) and (name in changed or not self._is_as_before(name))
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
            and not _is_hidden(name, self._namespace)
            and (name in changed or name not in self._before or not self._before[name].holds(value))
        ]

    def _devices_home(self, values: dict[str, Any], notes: list[str]) -> tuple[dict[str, str], dict[str, Any]]:
        """``device = "cuda"`` comes home as "cpu" (an object for a device does so by its reducer)."""
        home: dict[str, str] = {}
        for name, value in values.items():
            word = frameworks.is_device_word(name, value)
            if word:
                home[name] = value
                values[name] = "cpu"
            if word or frameworks.is_gpu_device(value):
                notes.append(f"`{name}` is {value} in GPU cells and cpu in the notebook")
        return home, values

    def _troubles(self, values: dict[str, Any], failed: dict[str, Exception]) -> dict[str, UnpicklablePart]:
        """Reasons why the first few of these cannot return."""
        found, deadline = {}, time.monotonic() + _DIAGNOSIS_S
        for name in list(failed)[:_MOST_NAMED]:
            left_s = max(0.0, deadline - time.monotonic())
            value, what = values.get(name, self._namespace.get(name)), words_for(name)
            found[name] = find_trouble(what, value, self._realm, failed[name], longest_s=left_s)
        return found

    def _left_out(self, failed: dict[str, Exception], troubles: dict[str, UnpicklablePart]) -> list[str]:
        notes = [f"{trouble} (not returned)" for trouble in troubles.values()]
        if len(failed) > _MOST_NAMED:
            notes.append(f"{len(failed) - _MOST_NAMED} more names could not be returned")
        return notes

    def _not_bound(self) -> list[str]:
        missing = [name for name in self._payload.out or () if name not in self._namespace]
        return [f"`{name}` (--out) was not bound by the cell" for name in missing]

    def metric(self) -> dict[str, float]:
        """Of a trial of a sweep: the value that is searched for; nothing where the sweep has to say what is wrong."""
        if not (name := self._payload.metric):
            return {}
        returned: Any = dict.get(self._namespace, RESULT if self._payload.function else name)
        with contextlib.suppress(BaseException):  # the user's own __float__; the trial must have its outcome
            is_among = self._payload.function and isinstance(returned, Mapping)
            value = float(returned[name] if is_among else returned)
            return {name: value} if math.isfinite(value) else {}
        return {}

    def untouched_reason(self) -> str:
        """The reason why the GPU was not touched, as far as can be told from here; empty when it was."""
        if not self._realm.has_gpu or frameworks.has_touched_gpu():
            return ""
        return frameworks.untouched_reason(self._namespace)


def read_by_functions(namespace: dict[str, Any], codes: Iterable[types.CodeType]) -> set[str]:
    """Names that functions of the notebook read when they are called: those with these names, and of these codes."""
    found = list(codes)
    for _name, value in dict.items(namespace):
        members = vars(value).values() if isinstance(value, type) and value.__module__ == "__main__" else [value]
        found += [each.__code__ for each in members if isinstance(each, types.FunctionType)]
    return {name for code in found for name in global_reads(code)}


def _left_to_ranks(names: list[str], dump: codec.Dump) -> list[str]:
    """Sentences on names of which each rank has a part: they are in the graph, and nobody's results."""
    for name in names:
        dump.remarks.pop(name, None)
        dump.sizes.pop(name, None)
    return [f"`{name}`: each rank of the gang has a part of it (not returned)" for name in names]


class _OfCheckpointError(BaseException):
    """Ends the reading of a save that begins with a checkpoint's ``state``: its names are for the notebook only."""

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.state = state


class _NoGroupError(BaseException):
    """Ends the reading of a save whose process group was not made again."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


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
    kind = type(value)  # a weak proxy answers for its target, which may be gone
    if issubclass(kind, types.ModuleType) or value is ranks:
        return True
    defined_somewhere = issubclass(kind, (type, types.FunctionType, types.BuiltinFunctionType))
    return defined_somewhere and getattr(value, "__module__", "__main__") != "__main__"


def _is_hidden(name: str, names: Mapping[str, Any]) -> bool:
    return is_machinery(name, names) or is_latest(name)


def _type_name(value: Any) -> str:
    """The type of what travels, which of a replica is the module in it."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else type(_unwrapped(value)).__name__


def is_sharded(value: Any) -> bool:
    """Tell if a value is spread over the ranks of a gang."""
    return any(adapter.is_sharded(value) for adapter in loaded_adapters())


def _unwrapped(value: Any) -> Any:
    return next((part for each in adapters_of(type(value)) if (part := each.unwrapped(value)) is not value), value)
