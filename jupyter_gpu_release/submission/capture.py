"""Finds and serialises what a cell or function needs."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from msgspec.structs import replace

from ..adapters.registry import loaded_adapters
from ..adapters.stdlib import environment
from ..analysis.cell_facts import CellFacts, is_machinery
from ..analysis.dataflow import JOINS_GROUP
from ..analysis.device_choices import DeviceLedger
from ..errors import CannotSendError, OptionError
from ..protocol.cell import INLINE_LIMIT_BYTES, Graph, SetupCell
from ..protocol.environments import Plan
from ..protocol.lineage import UsedInput
from ..protocol.runs import ValueInfo
from ..serialization import codec
from ..serialization.diagnosis import find_trouble
from ..serialization.process_state.local_modules import is_attribute_name, split_attribute_name
from ..serialization.rebuild import NamespaceInfo
from ..store.mapped.mapping import refuse_torn
from ..units import format_bytes
from .effect_imports import effect_cell
from .lineage import ResultLineage, used_inputs
from .modules import AwayModules, LocalModules, imported_in, loaded_submodules
from .packages import NotebookPackages
from .selection import Awaits, NameChoice, Selection, placeholder
from .setup import Setup


def check_gather(names: Iterable[str], facts: CellFacts, sent: Collection[str], codes: Iterable[CodeType]) -> None:
    """Raise :class:`OptionError` for a name that nothing in the cell, nor in the functions that go along, binds.

    Where that cannot be told (``exec``, ``import *``, magics) the ranks say it.
    """
    if facts.opaque or facts.binds_more:
        return
    known = facts.bound | set(sent)
    unknown = [name for name in names if name not in known]
    stored = {name for code in codes for name in _names(code)} if unknown else set()  # `global` in a function
    for name in unknown:
        if name not in stored:
            close = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {close[0]}?" if close else "gather a name that every rank makes"
            raise OptionError(f"--gather {name}: the cell makes no such name", hint=hint)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


_MOST_TROUBLES = 5
#: the namespace's, and the question's own
_REFERENCES_OF_A_NAME = 2


@dataclass
class CapturedInputs:
    """A cell ready to be sent. Keep it until its values are applied: it holds the originals of the inputs."""

    #: for CellPayload
    plain_loops: list[int] = field(default_factory=list)
    out: list[str] | None = None
    skip: list[str] = field(default_factory=list)
    reevaluate: dict[str, str] = field(default_factory=dict)
    ambient: bytes = b""
    #: environment variables that the notebook set itself, and those that it deleted
    env: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    modules: dict[str, bytes] = field(default_factory=dict)
    sys_path: list[str] = field(default_factory=list)
    sys_path_behind: int = 0
    #: the graph: inline when ``total_bytes`` <= INLINE_LIMIT_BYTES (``Graph(stream, [bytes(b) for b in buffers])``),
    #: else ``write_graph(paths.inputs, stream, buffers)`` -> digest, ``Graph(file="inputs.graph", digest=digest)``
    stream: bytes = b""
    buffers: list[memoryview] = field(default_factory=list)
    total_bytes: int = 0
    #: where each name is in it (see ``Dump``)
    spans: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    #: for RunRequest.imports
    imports: list[str] = field(default_factory=list)
    #: for RunRequest.packages: all that may be imported; and whether local modules were too large to go along
    packages: list[str] = field(default_factory=list)
    unshipped: bool = False
    #: for RunRequest.used
    used: list[UsedInput] = field(default_factory=list)
    #: for the receipt and --estimate
    sent: list[ValueInfo] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: what to say before the run is queued
    warnings: list[str] = field(default_factory=list)
    #: names held back because they look like secrets
    held_back: list[str] = field(default_factory=list)
    #: for RunRequest.prepare: modules that can be imported before the cell has its GPUs
    prepare: list[str] = field(default_factory=list)
    #: packages that the cell's processes find in front of the cluster's own (``NotebookPackages``)
    environment: Plan | None = None
    #: whether the body calls input() or getpass()
    asks_input: bool = False
    #: whether it, or a function that goes along, joins a process group
    joins_group: bool = False
    #: name -> object that was sent
    originals: dict[str, Any] = field(default_factory=dict)
    #: name -> object that was not sent, and that the cell perhaps unbinds
    unsent: dict[str, Any] = field(default_factory=dict)
    #: name -> object that is fetched if the cell asks for it, and how large it is at least
    held: dict[str, Any] = field(default_factory=dict)
    held_bytes: dict[str, int] = field(default_factory=dict)
    #: modules that the notebook has imported for their effect, and that may matter for this cell
    effects: list[str] = field(default_factory=list)
    #: the notebook's setup, and what it reads
    setup: list[SetupCell] = field(default_factory=list)
    setup_inputs: Graph = field(default_factory=Graph)
    setup_originals: dict[str, Any] = field(default_factory=dict)
    #: names that the cell is going to bind
    binds: list[str] = field(default_factory=list)
    #: modules that it imports as attributes of packages (``import package.part``)
    submodules: list[str] = field(default_factory=list)
    #: id -> (number in the stream, object) of everything that was sent
    memo: Mapping[int, tuple[int, Any]] = field(default_factory=dict)

    def add_fetched(self, name: str, value: Any, info: ValueInfo, memo: Mapping[int, tuple[int, Any]]) -> None:
        """The cell has asked for a name: it is an input like those that were sent."""
        self.originals[name] = value
        self.sent.append(info)
        self.memo = {**self.memo, **memo}

    def call_by(self, labels: Mapping[str, str]) -> None:
        """Give names that are ours the names that people know (for records and receipts; the graph keeps its own)."""
        if not labels:
            return
        self.spans = {labels.get(name, name): span for name, span in self.spans.items()}
        self.used = [replace(each, name=labels.get(each.name, each.name)) for each in self.used]
        self.sent = [replace(each, name=labels.get(each.name, each.name)) for each in self.sent]


class InputCapture:
    """Takes from ``names`` what is to be sent; one per process.

    Parameters
    ----------
    patched
        What was set in libraries, by the name under which it travels.
    awaits
        (name, value) → the placeholder, where a run in the background is still making the value.
    setup
        The notebook's setup, if there is one.
    effects
        Modules that the notebook has imported for their effect.
    """

    def __init__(
        self,
        names: dict[str, Any],
        realm: NamespaceInfo,
        patched: Callable[[], dict[str, Any]] = dict,
        awaits: Awaits = placeholder,
        setup: Callable[[], Setup | None] = lambda: None,
        effects: Callable[[], list[str]] = list,
    ) -> None:
        self._names = names
        self._realm = realm
        self._modules = LocalModules()
        #: what is installed here, beside what the cluster has
        self.packages = NotebookPackages()
        #: which run made which object
        self.lineage = ResultLineage()
        self._awaits = awaits
        #: what was set in libraries, by the name under which it travels
        self.local_modules: list[str] = []
        #: what cells set in modules that only they have imported
        self.away = AwayModules(self._modules.version)
        #: environment variables that were held back, and log files, of which this was said
        self._said: set[str] = set()
        self._patched = patched
        self._setup = setup
        self._effects = effects

    def collect(
        self,
        facts: CellFacts,
        choice: NameChoice,
        ledger: DeviceLedger,
        *,
        ambient: bytes,
        more: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> CapturedInputs:
        """Find and serialise what code with these ``facts`` needs, and ``more``, which no name of the process holds.

        ``labels``: what people call those names.

        Raises OptionError (a name of ``--in`` that does not exist), CannotSendError (a value that cannot be pickled:
        name, path, reason, way out), StoreError (a value of which part was lost with its file).
        """
        setup = self._setup()
        read_by_setup = self._captured(setup.facts, NameChoice(), ledger) if setup is not None else None
        prepared = self._captured(facts, choice, ledger, more, labels)
        prepared.ambient = ambient
        self._add_environment(prepared, choice)
        self._say_what_stays(prepared)
        prepared.call_by(labels or {})
        if setup is not None and read_by_setup is not None:
            _add_setup(prepared, setup, read_by_setup)
        prepared.setup = [*map(effect_cell, prepared.effects), *prepared.setup]
        return prepared

    def _captured(
        self,
        facts: CellFacts,
        choice: NameChoice,
        ledger: DeviceLedger,
        more: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> CapturedInputs:
        shared = _shared(self._names)  # before anything of ours holds them
        selection = Selection(self._names, facts, choice, ledger, self._awaits)
        first = selection.first()
        first |= selection.add(more or {})
        dump = codec.dump(
            first,
            self._realm,
            follow=selection.follow,
            home=selection.home,
            bound=selection.bound,
            rest=selection.rest,
            rest_bytes=choice.implicit_bytes,
            state=lambda needed, codes: self._state(selection, facts.modules | needed | imported_in(codes)),
            facts=lambda codes, _: {"imports": loaded_submodules(selection.module_names(), facts.chains, codes)},
            shared=shared,
        )
        self._refuse_failures(dump.failed, selection, labels or {})
        if dump.buffers:
            refuse_torn(dump.buffers)
        check_gather(choice.gather, facts, selection.sent, dump.codes)
        return self._prepared(facts, choice, selection, dump)

    def _add_environment(self, prepared: CapturedInputs, choice: NameChoice) -> None:
        own = environment.set_since_start(but=choice.environment)
        prepared.env = {name: value for name, value in own.values.items() if value is not None}
        prepared.unset = [name for name, value in own.values.items() if value is None]
        for names, why in ((own.secret, "looks like a secret"), (own.large, "is large")):
            for name in names:
                if name not in self._said:
                    way = choice.ways.variable.format(name=name)
                    prepared.warnings.append(f"environment variable {name} {why} and is held back: {way}")
        self._said |= {*own.secret, *own.large}

    def _say_what_stays(self, prepared: CapturedInputs) -> None:
        """Say once of each log file of the notebook that no cell writes to it, and the like."""
        sentences = [sentence for each in loaded_adapters() for sentence in each.what_stays()]
        prepared.notes += [sentence for sentence in sentences if sentence not in self._said]
        self._said.update(sentences)

    def _state(self, selection: Selection, needed: set[str]) -> tuple[dict[str, Any], dict[str, list[str]]]:
        here = self._modules.local(needed, self._modules.added_paths())
        self.local_modules = here.loaded
        away, set_there, deleted_there = self.away.among(here.tops)
        # with how the notebook shows things, which no module of the cell tells of (adapters/ipython.py)
        tops = {name.partition(".")[0] for name in (*needed, __name__)}
        patches = {
            name: value
            for name, value in self._patched().items()
            if (top := split_attribute_name(name)[0].partition(".")[0]) in tops or top in sys.stdlib_module_names
        }
        state = selection.state(here.loaded, patches, set_there)
        local = [*here.loaded, *away]
        return state, {"local": local, "tops": here.tops, "edited": here.edited, "without": deleted_there}

    def _refuse_failures(self, failed: dict[str, Exception], selection: Selection, labels: Mapping[str, str]) -> None:
        selection.note_unsent(failed)
        needed = [name for name in failed if not selection.is_optional(name)]
        for name in failed:
            if name not in needed and name not in selection.implicit and not is_attribute_name(name):
                trouble = find_trouble(name, selection.sent[name], self._realm, failed[name])
                selection.notes.append(f"{trouble} (not sent: the cell may not need it)")
        if not needed:
            return
        troubles = [
            find_trouble(labels.get(name, name), selection.sent[name], self._realm, failed[name]) for name in needed
        ]
        named = "; ".join(map(str, troubles[:_MOST_TROUBLES]))
        more = f" (and {len(troubles) - _MOST_TROUBLES} more)" if len(troubles) > _MOST_TROUBLES else ""
        names = ",".join(needed[:_MOST_TROUBLES])
        hint = f"make it inside the cell, or hold it back with --skip {names}"
        hint = "make it inside the function" if labels else hint
        mends = [error.hint if isinstance(error := failed[name], CannotSendError) else hint for name in needed]
        raise CannotSendError(f"cannot send {named}{more}", hint="; ".join(dict.fromkeys(mends)))

    def _prepared(self, facts: CellFacts, choice: NameChoice, selection: Selection, dump: codec.Dump) -> CapturedInputs:
        added = self._modules.added_paths()
        known = dump.modules | imported_in(dump.codes)
        effects = self._effects_on(facts.modules | known, added)
        shipped, local, notes = self._modules.ship({*facts.modules, *known, *effects}, added)
        needed = set() if _puts_modules(facts, dump.codes) else facts.imports
        sent = _sent(selection, dump)
        notes += dump.notes("was sent")
        return CapturedInputs(
            out=choice.out,
            skip=choice.skip,
            reevaluate=selection.reevaluate(),
            modules=shipped,
            sys_path=added,
            sys_path_behind=self._modules.behind,
            stream=dump.stream,
            buffers=dump.buffers,
            total_bytes=dump.total_bytes,
            spans=dump.spans,
            imports=self._modules.required(needed | (dump.modules - dump.modules_of_rest), local, added),
            packages=self._modules.required(facts.imports | facts.modules | known, local, added),
            prepare=self._modules.foreign({*facts.modules, *known, *effects}, local),
            effects=effects,
            unshipped=bool(local) and not shipped,
            used=used_inputs(sent, dump, self.lineage, selection.sent),
            sent=sent,
            notes=[*selection.notes, *notes],
            warnings=selection.warnings,
            held_back=selection.held_back,
            asks_input=facts.asks_input,
            joins_group=facts.joins_group or any(JOINS_GROUP in code.co_names for code in dump.codes),
            originals={name: selection.sent[name] for name in dump.sizes},
            held={name: selection.sent[name] for name in selection.held},
            held_bytes=selection.held,
            unsent={
                name: self._names[name]
                for name in facts.deleted - dump.sizes.keys() - set(choice.skip)
                if name in self._names and not is_machinery(name, self._names)
            },
            memo=dump.memo,
        )

    def _effects_on(self, needed: Collection[str], added: Iterable[str]) -> list[str]:
        """Imports for their effect: of modules of the notebook's own, and of packages that the cell needs anyway."""
        effects = self._effects()
        tops = {name.partition(".")[0] for name in needed}
        _, local, _ = self._modules.ship(effects, added) if effects else ({}, set(), [])
        return [name for name in effects if name not in needed and name.partition(".")[0] in tops | local]


def _puts_modules(facts: CellFacts, codes: Iterable[CodeType]) -> bool:
    """Tell if the cell, or a function that goes along, may put modules into ``sys.modules`` itself, or a finder."""
    if any(chain.startswith(("sys.modules", "sys.meta_path")) for chain in facts.chains):
        return True
    return any({"sys", "modules"} <= names or {"sys", "meta_path"} <= names for names in map(set, map(_names, codes)))


def _add_setup(prepared: CapturedInputs, setup: Setup, own: CapturedInputs) -> None:
    """Have the setup go along: its cells, what they read, and the modules that they import."""
    if own.total_bytes > INLINE_LIMIT_BYTES:
        largest = max(own.sent, key=lambda info: info.bytes)
        raise OptionError(
            f"%%gpu_setup reads {format_bytes(own.total_bytes)} of the notebook, most of it `{largest.name}`",
            hint="what is large goes into the GPU cell itself; %gpu_setup --clear forgets the setup",
        )
    prepared.setup = setup.cells
    prepared.setup_inputs = Graph(stream=own.stream, buffers=[bytes(buffer) for buffer in own.buffers])
    prepared.setup_originals = own.originals
    prepared.modules = {**own.modules, **prepared.modules}
    for name in ("sys_path", "imports", "packages", "prepare", "warnings"):
        value = getattr(prepared, name)
        value += [each for each in getattr(own, name) if each not in value]
    prepared.unshipped |= own.unshipped


def _shared(namespace: Mapping[str, Any]) -> set[int]:
    """Ids of the values that something beside one name holds."""
    many, count = _REFERENCES_OF_A_NAME, sys.getrefcount
    return {id(namespace[name]) for name in list(namespace) if count(namespace[name]) > many}


def _sent(selection: Selection, dump: codec.Dump) -> list[ValueInfo]:
    modules = selection.module_names()
    return [
        ValueInfo(name, type(selection.sent[name]).__name__, size)
        for name, size in dump.sizes.items()
        if name not in modules and not is_attribute_name(name)
    ]
