"""The notebook's side of a cell's names: what it needs goes out as one graph, what it made comes back in."""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...adapters.registry import loaded_adapters
from ...adapters.stdlib.environment import WorkingFolder
from ...analysis.cell_facts import (
    CellFacts,
    cells_of,
    is_latest,
    is_machinery,
    parse_cell,
    postpones_annotations,
    transform_of_bodies,
)
from ...analysis.dataflow import analyse
from ...analysis.device_choices import DeviceHistory
from ...analysis.sources import executed_cells
from ...client.results import say_lacking
from ...protocol.cell import FailedFrames, LastOutput
from ...protocol.runs import Outcome, ValueInfo
from ...serialization import codec
from ...serialization.hashing.value_hash import GraphKey, graph_key
from ...serialization.lazy_modules import import_submodules
from ...serialization.process_state import library_settings, random_states
from ...serialization.process_state.local_modules import (
    delete_attribute,
    find_holder,
    is_attribute_name,
    is_cached_method,
    set_attribute,
    split_attribute_name,
)
from ...serialization.rebuild import NamespaceInfo
from ...serialization.sharing.namespace_update import (
    NamespaceUpdate,
    ended_sentences,
    outlived_sentences,
    stale_sentences,
)
from ...serialization.sharing.references import Key, Originals
from ...submission.capture import CapturedInputs, InputCapture
from ...submission.effect_imports import EffectImports
from ...submission.library_patches import LibraryPatches
from ...submission.placeholders import Pending, Unreturned
from ...submission.selection import Awaits, NameChoice, placeholder
from ...submission.setup import Setup
from ...unpickling import Trust
from .meanwhile import InputsMeanwhile, changed_sentences
from .post_mortem import value_of
from .stale_parts import OldParts, old_parts_left
from .stale_references import left_behind, left_behind_sentences, parts_left_sentences

_AUTOMATIC = NameChoice()
_MOST_WARNINGS = 500
_LATEST = ("_", "__", "___")


class Namespace:
    """The notebook's names; one per kernel (works with ipykernel and plain IPython).

    ``awaits``, ``setup``: as :class:`.InputCapture` has them.
    """

    def __init__(
        self, shell: Any, awaits: Awaits = placeholder, setup: Callable[[], Setup | None] = lambda: None
    ) -> None:
        self._shell = shell
        self._realm = NamespaceInfo(shell.user_ns, at_home=True, cells=lambda: executed_cells(shell.compile))

        def cells() -> Sequence[str]:
            return cells_of(shell.user_ns)

        #: what was chosen as device, and what is on it
        self.devices = DeviceHistory(shell.user_ns, cells)
        #: what was set in libraries
        self._patches = LibraryPatches(shell.user_ns, cells)
        effects = EffectImports(cells)
        #: takes what is to be sent
        self.input_capture = InputCapture(
            shell.user_ns, self._realm, self._patches.found, awaits, setup, effects.modules
        )
        #: random states of libraries that only GPU cells have loaded
        self._rng_elsewhere: random_states.Rng = {}
        #: settings that cells changed of libraries that this kernel has not loaded yet
        self._settings = library_settings.ArrivedSettings()
        self._notes: list[str] = []
        #: what came back with the last :meth:`apply`, by name, also what was not bound
        self.values_of_last: dict[str, Any] = {}
        #: frames of the error that ended the run of the last :meth:`apply`
        #: warnings that GPU cells have shown and that Python shows once
        self._warned: dict[tuple[Any, ...], None] = {}
        self._failed: FailedFrames | None = None
        #: names of inputs of which something holds parts as they were before it
        self._old_parts: list[str] = []
        #: names that it unbound
        self.deleted_of_last: set[str] = set()

    @property
    def realm(self) -> NamespaceInfo:
        """The namespace that these names belong to."""
        return self._realm

    @property
    def notes(self) -> list[str]:
        """Sentences of the last :meth:`apply` for the receipt."""
        return self._notes

    def pop_failed_frames(self) -> FailedFrames | None:
        """Once: the frames of the error that came with the last :meth:`apply`."""
        failed, self._failed = self._failed, None
        return failed

    # --------------------------------------------------------------------------------- outward
    def collect(self, body: str, choice: NameChoice = _AUTOMATIC, *, line_offset: int = 1) -> CapturedInputs:
        """Find and serialise what the cell ``body`` (as typed, magic line removed) needs.

        Raises SyntaxError (the cell's own, line numbers of the whole cell), OptionError (a name of ``--in`` that
        does not exist), CannotSendError (a value that cannot be pickled: name, path, reason, way out), StoreError (a
        value of which part was lost with its file).
        """
        transform = transform_of_bodies(self._shell)
        tree = parse_cell(body, transform, line_offset=line_offset)
        facts = analyse(tree, transform, postponed=postpones_annotations(self._shell.compile.flags))
        prepared = self.input_capture.collect(facts, choice, self.devices.up_to(body), ambient=self._ambient())
        if away := self._patches.stay_away(tree, self.input_capture.local_modules):
            prepared.notes.append(
                f"{', '.join(away)}: set in this cell only, what is set in a library stays in its process"
            )
        if clocks := _clocks_in(tree):
            prepared.notes.append(f"{clocks} of a GPU cell counts in its process alone: take differences within a cell")
        prepared.binds = _bound_by(tree, facts, choice)
        prepared.submodules = _submodules_in(tree)
        return prepared

    def _ambient(self) -> bytes:
        states = {**self._rng_elsewhere, **random_states.capture_rng()}
        return pickle.dumps(
            {"warned": list(self._warned)[-_MOST_WARNINGS:], "rng": states, "settings": self._settings.all_settings()},
            protocol=5,
        )

    def note_loaded(self, run: str, values: Mapping[str, Any]) -> None:
        """Note that these objects are results of ``run``."""
        self.input_capture.lineage.note_results(run, values, values)

    # ----------------------------------------------------------------------------- keys for --cache
    def graph_key(self, values: dict[str, Any]) -> GraphKey:
        """Digest of inputs that is the same in every kernel; raises :class:`UnkeyableError`."""
        return graph_key(values, self._realm)

    def settings_key(self) -> str:
        """Digest of the libraries' settings that travel with a cell; raises :class:`UnkeyableError`."""
        found = {**self._settings.waiting, **library_settings.capture_settings(that_count=True)}
        return graph_key({"settings": found}, self._realm).digest

    # ---------------------------------------------------------------------------------- inward
    def apply(
        self,
        stream: bytes,
        buffers: Sequence[Any],
        outcome: Outcome,
        prepared: CapturedInputs | None = None,
        *,
        run: str = "",
        aliases: dict[str, str] | None = None,
        leave: Callable[[Iterable[str]], set[str]] = lambda _names: set(),
        in_turn: bool = True,
        meanwhile: InputsMeanwhile | None = None,
    ) -> list[ValueInfo]:
        """Bind the names that came back (``buffers``: bytes of an inline graph or those of ``open_graph``).

        Returns what was bound. Names that could not be loaded here are bound to placeholders and said in
        :attr:`notes`. ``prepared`` is what :meth:`collect` returned for this run (None: attached later); ``run``: whose
        values they are; ``aliases``: ids of classes and functions there → those here (results of another kernel's run).
        ``leave`` says which of the names are not to be bound after all. ``in_turn``: the run was this notebook's latest
        step, so that its random states are the notebook's. ``meanwhile`` knows which inputs were changed here since
        they were sent: they stay as they are.
        """
        sent = SentObjects(prepared, in_turn=in_turn)
        stayed: list[str] = []

        def take(facts: dict[str, Any]) -> None:
            if prepared is not None:
                self._settings.set_arrived(facts.get("settings", {}))
                stayed.extend(_follow(facts.get("folder"), in_turn=in_turn))

        realm = replace(self._realm, aliases=aliases or {})
        loaded = codec.load(stream, buffers, realm, sent.find, take, trust=Trust.GATEWAY)
        for name, why in loaded.facts.get("lost", {}).items():
            loaded.values[name] = Pending(name, Unreturned(why))
        self._note_facts(loaded)
        for name in leave([*loaded.values, *loaded.modules]):
            loaded.values.pop(name, None)
            loaded.modules.pop(name, None)
        namespace = self._shell.user_ns
        changed, untouched = meanwhile.changed(loaded.facts) if meanwhile is not None else ([], set())
        for name in changed:
            loaded.values.pop(name, None)
            loaded.state.pop(name, None)
        arrival = self._bind(loaded, prepared, sent, untouched)
        if in_turn:
            if prepared is not None:
                self._bind_outputs(loaded, sent)
            self._rng_elsewhere = random_states.restore_rng(loaded.facts.get("rng", {}))
        self.devices.note_returned(loaded.facts.get("devices", {}))
        if run:
            made = [name for name, value in loaded.values.items() if id(value) not in loaded.own]
            self.input_capture.lineage.note_results(run, made, self._shell.user_ns)
        self._notes = [f"`{name}` is a placeholder here: {reason}" for name, reason in loaded.missing.items()]
        if prepared is not None:
            self._notes += changed_sentences(changed, run) if changed else []
            self._notes += stayed + _left_behind(arrival, sent)
            self._notes += old_parts_left(self._old_parts) + stale_sentences(arrival.stale)
            self._notes += outlived_sentences(arrival.outlived) + ended_sentences(arrival.ended)
            self._notes += [remark for adapter in loaded_adapters() for remark in adapter.take_remarks()]
            self._notes += [f"results hold copies of parts of `{name}`" for name in sorted(loaded.copied)]
        lacking = loaded.lacking(namespace) if prepared is None else []  # else the code is of this notebook
        if lacking:
            self._notes.append(say_lacking(run, lacking))
        return _infos(outcome.results, [*loaded.values, *loaded.modules])

    def _note_facts(self, loaded: codec.Loaded) -> None:
        self.deleted_of_last = set(loaded.facts.get("deleted", ()))
        self.values_of_last = dict(loaded.values)
        self._failed = loaded.facts.get("failed")
        self._warned |= dict.fromkeys(map(tuple, loaded.facts.get("warned", ())))

    def _bind(
        self, loaded: codec.Loaded, prepared: CapturedInputs | None, sent: SentObjects, untouched: Collection[int]
    ) -> NamespaceUpdate:
        """Bind names, put in-place changes into what the notebook has; values of the last step are those that stand.

        ``untouched``: ids of what in-place changes are not put into.
        """
        namespace = self._shell.user_ns
        if prepared is None:
            arrival = NamespaceUpdate(namespace, loaded, {}, {})
        else:
            loaded.values |= loaded.state
            originals = {**prepared.unsent, **prepared.held, **prepared.originals}
            arrival = NamespaceUpdate(namespace, loaded, originals, prepared.memo, stay=untouched)
        hook, hidden = self._shell.displayhook, self._shell.user_ns_hidden
        latest = [name for name in _LATEST if name in hidden and namespace.get(name) is hidden[name]]
        old_parts = None if prepared is None else OldParts(prepared, loaded.facts.get("inplace", ()), sent.caches)
        arrival.bind()
        codec.settle_libraries()
        self._old_parts = [] if old_parts is None else old_parts.left(namespace, arrival.kept)
        for name in latest:  # else IPython would think that the user has assigned to `_`, and leave it alone for good
            if name in namespace:
                hidden[name] = namespace[name]
                setattr(hook, name, namespace[name])
        if prepared is not None:
            import_submodules(prepared.submodules, namespace)
            self._put_into_modules(loaded)
        self.values_of_last = {name: arrival.standing_for(value) for name, value in self.values_of_last.items()}
        self.values_of_last |= {name: namespace[name] for name in loaded.modules if name in namespace}
        return arrival

    def _bind_outputs(self, loaded: codec.Loaded, sent: SentObjects) -> None:
        """Bind ``_`` and its like, as the cell displayed or bound them."""
        namespace = self._shell.user_ns
        last: LastOutput | None = loaded.facts.get("last")
        assigned: dict[str, LastOutput | None] = loaded.facts.get("assigned", {})
        namespace.update(
            {name: value_of(each, namespace, self._realm, sent.find) for name, each in assigned.items() if each}
        )
        if last is not None:
            self._shell.displayhook.update_user_ns(value_of(last, namespace, self._realm, sent.find))

    def _put_into_modules(self, loaded: codec.Loaded) -> None:
        """Apply the cell's changes to the notebook's own modules."""
        namespace = self._shell.user_ns
        state = {name: namespace.pop(name, loaded.values.pop(name, None)) for name in loaded.state}
        deleted = set(filter(is_attribute_name, loaded.facts.get("deleted", ())))
        for name in filter(_is_here, state):
            if not (isinstance(find_holder(name)[0], type) and is_cached_method(state[name])):
                set_attribute(name, state[name])
        for name in deleted:
            delete_attribute(name)
        away = {name: value for name, value in state.items() if not _is_here(name)}
        self.input_capture.away.note_modules(
            loaded.facts.get("imported", ()), away, [name for name in deleted if not _is_here(name)]
        )


def _follow(place: tuple[str, int] | None, *, in_turn: bool) -> list[str]:
    """Go where the cell went; or a note."""
    folder = WorkingFolder(*place) if place else None
    if folder is not None and not in_turn:
        return [folder.say_not_followed("that was in the background")]
    if folder is None or folder.change_to():
        return []
    return [folder.say_not_followed("there is no such folder here")]


def _is_here(name: str) -> bool:
    return split_attribute_name(name)[0] in sys.modules


class SentObjects:
    """The objects sent for a run, by their keys. ``in_turn``: the notebook has waited, so it is as it was."""

    def __init__(self, prepared: CapturedInputs | None, *, in_turn: bool) -> None:
        self._prepared = prepared
        names = {} if prepared is None else prepared.originals
        memo = {} if prepared is None else prepared.memo
        # no function of its own: it would keep what was sent alive until the garbage is collected
        self._objects = Originals(names, partial(_by_number, memo), in_turn=in_turn)

    def find(self, key: Key) -> Any:
        """The notebook's object; raises ``KeyError``."""
        return self._objects.find(key)

    def holders(self, _old: Any) -> list[int]:
        """Ids of what holds an object here."""
        if self._prepared is None:
            return []
        found = [self._prepared.originals, self._prepared.unsent, self._objects.numbered]
        return [*map(id, [*found, *self._prepared.buffers, *self.caches])]

    @property
    def caches(self) -> list[list[Any]]:
        """Lists of parts, made to find them again."""
        return self._objects.caches


def _by_number(memo: Mapping[int, tuple[int, Any]]) -> dict[int, Any]:
    return dict(memo.values())


def _left_behind(arrival: NamespaceUpdate, sent: SentObjects) -> list[str]:
    named = {id(old) for old in arrival.olds.values()}
    parts = {str(place): old for place, old in enumerate(arrival.old_parts) if id(old) not in named}
    if not (arrival.olds or parts):
        return []
    try:
        names = left_behind({**arrival.olds, **parts}, lambda old: [*arrival.holders(old), *sent.holders(old)])
    except Exception:  # noqa: BLE001 - it looks at all objects of the process; the names are bound, a note may be missing
        return []
    said = left_behind_sentences(name for name in names if name not in parts and not is_attribute_name(name))
    return said + parts_left_sentences(type(parts[name]).__name__ for name in names if name in parts)


#: count from the start of a process or thread
_CLOCKS = frozenset({f"{kind}_time{unit}" for kind in ("process", "thread") for unit in ("", "_ns")})


def _clocks_in(tree: ast.AST) -> str:
    read = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(tree)}
    return ", ".join(f"`{name}()`" for name in sorted(read & _CLOCKS))


def _bound_by(tree: ast.Module, facts: CellFacts, choice: NameChoice) -> list[str]:
    """Names that will hold something new after the cell; what it only imports is no such thing."""
    names = facts.bound if choice.out is None else set(choice.out)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    own = {name for name in names if not is_machinery(name, {}) and not is_latest(name)}
    return sorted(own - imported - set(choice.skip))


def _submodules_in(tree: ast.Module) -> list[str]:
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return [alias.name for alias in aliases if alias.asname is None and "." in alias.name]


def _infos(results: Iterable[ValueInfo], names: Iterable[str]) -> list[ValueInfo]:
    known = {info.name: info for info in results}
    return [known.get(name, ValueInfo(name, "")) for name in names if name in known or not known]
