"""The notebook's side of a cell's names: what it needs goes out as one graph, what it made comes back in."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.cell import CellFacts, analyse, parse_cell
from ..core.machinery import is_last_output, is_machinery
from ..core.messages import Outcome, UsedInput, ValueInfo
from ..errors import CannotSendError
from ..storage import ambient, codec, settings
from ..storage.diagnosis import find_trouble
from ..storage.graph_key import GraphKey, graph_key
from ..storage.graph_map import refuse_torn
from ..storage.rebuild import Realm
from .arrival import Arrival
from .history import DeviceHistory
from .modules import LocalModules
from .origins import ResultOrigins, used_inputs
from .selection import Awaits, Choice, Selection, placeholder
from .submodules import imported_in, loaded_submodules

__all__ = ["Choice", "Namespace", "Prepared"]

_AUTOMATIC = Choice()
_MOST_TROUBLES = 5


@dataclass
class Prepared:
    """A cell ready to be sent. Keep it until its values are applied: it holds the originals of the inputs."""

    #: for CellPayload
    out: list[str] | None = None
    skip: list[str] = field(default_factory=list)
    reevaluate: dict[str, str] = field(default_factory=dict)
    ambient: bytes = b""
    modules: dict[str, bytes] = field(default_factory=dict)
    sys_path: list[str] = field(default_factory=list)
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
    #: names held back because they look like secrets
    held_back: list[str] = field(default_factory=list)
    #: whether the body calls input() or getpass()
    asks_input: bool = False
    #: name -> object that was sent
    originals: dict[str, Any] = field(default_factory=dict)
    #: names that the cell is going to bind
    binds: list[str] = field(default_factory=list)
    #: id -> (number in the stream, object) of everything that was sent
    memo: Mapping[int, tuple[int, Any]] = field(default_factory=dict)


class Namespace:
    """The notebook's names; one per kernel (works with ipykernel and plain IPython)."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._realm = Realm(shell.user_ns, at_home=True)
        self._history = DeviceHistory(shell)
        self._modules = LocalModules()
        self._origins = ResultOrigins()
        #: random states of libraries that only GPU cells have loaded
        self._rng_elsewhere: ambient.Rng = {}
        self._notes: list[str] = []
        #: (name, value) → the placeholder, where a run in the background is still making the value
        self.awaits: Awaits = placeholder
        #: what came back with the last :meth:`apply`, by name, also what was not bound
        self.values_of_last: dict[str, Any] = {}

    @property
    def realm(self) -> Realm:
        """Whose names these are."""
        return self._realm

    @property
    def notes(self) -> list[str]:
        """Sentences of the last :meth:`apply` for the receipt."""
        return self._notes

    # --------------------------------------------------------------------------------- outward
    def collect(self, body: str, choice: Choice = _AUTOMATIC, *, line_offset: int = 1) -> Prepared:
        """Find and serialise what the cell ``body`` (as typed, magic line removed) needs.

        Raises SyntaxError (the cell's own, line numbers of the whole cell), OptionError (a name of ``--in`` that
        does not exist), CannotSendError (a value that cannot be pickled: name, path, reason, way out), StoreError (a
        value of which part was lost with its file).
        """
        transform = self._shell.transform_cell
        custom = bool(getattr(self._shell, "input_transformers_post", None))
        tree = parse_cell(body, transform, line_offset=line_offset, always_transform=custom)
        facts = analyse(tree, transform)
        ledger = self._history.up_to(body)
        selection = Selection(self._shell.user_ns, facts, choice, ledger, self.awaits)
        dump = codec.dump(
            selection.first(),
            self._realm,
            follow=selection.follow,
            facts=lambda codes, _: {"imports": loaded_submodules(selection.module_names(), facts.chains, codes)},
        )
        self._refuse_failures(dump.failed, selection)
        refuse_torn(dump.buffers)
        prepared = self._prepared(facts, choice, selection, dump)
        prepared.binds = _bound_by(tree, facts, choice)
        return prepared

    def _refuse_failures(self, failed: dict[str, Exception], selection: Selection) -> None:
        needed = [name for name in failed if not selection.is_optional(name)]
        for name in failed:
            if name not in needed:
                trouble = find_trouble(name, selection.sent[name], self._realm, failed[name])
                selection.notes.append(f"{trouble} (not sent: the cell may not need it)")
        if not needed:
            return
        troubles = [find_trouble(name, selection.sent[name], self._realm, failed[name]) for name in needed]
        named = "; ".join(map(str, troubles[:_MOST_TROUBLES]))
        more = f" (and {len(troubles) - _MOST_TROUBLES} more)" if len(troubles) > _MOST_TROUBLES else ""
        names = ",".join(needed[:_MOST_TROUBLES])
        raise CannotSendError(
            f"cannot send {named}{more}",
            mend=f"make it inside the cell, or hold it back with --skip {names}",
        )

    def _prepared(self, facts: CellFacts, choice: Choice, selection: Selection, dump: codec.Dump) -> Prepared:
        added = self._modules.added_paths()
        known = dump.modules | imported_in(dump.codes)
        shipped, local, notes = self._modules.ship(facts.modules | known, added)
        sent = _sent(selection, dump)
        notes += [f"`{name}` was sent detached from its computation graph" for name in dump.detached]
        return Prepared(
            out=choice.out,
            skip=choice.skip,
            reevaluate=selection.reevaluate(),
            ambient=self._ambient(),
            modules=shipped,
            sys_path=added,
            stream=dump.stream,
            buffers=dump.buffers,
            total_bytes=dump.total_bytes,
            spans=dump.spans,
            imports=self._modules.required(facts.imports | dump.modules, local),
            packages=self._modules.required(facts.imports | facts.modules | known, local),
            unshipped=bool(local) and not shipped,
            used=used_inputs(sent, dump, self._origins, selection.sent),
            sent=sent,
            notes=[*selection.notes, *notes],
            held_back=selection.held_back,
            asks_input=facts.asks_input,
            originals={name: selection.sent[name] for name in dump.sizes},
            memo=dump.memo,
        )

    def _ambient(self) -> bytes:
        states = {**self._rng_elsewhere, **ambient.capture_rng()}
        return pickle.dumps({"rng": states, "settings": settings.capture_settings()}, protocol=5)

    def note_loaded(self, run: str, values: Mapping[str, Any]) -> None:
        """These objects are results of ``run``."""
        self._origins.note(run, values, values)

    # ----------------------------------------------------------------------------- keys for --cache
    def graph_key(self, values: dict[str, Any]) -> GraphKey:
        """Digest of inputs that is the same in every kernel; raises :class:`UnkeyableError`."""
        return graph_key(values, self._realm)

    def settings_key(self) -> str:
        """Digest of the libraries' settings that travel with a cell; raises :class:`UnkeyableError`."""
        return graph_key({"settings": settings.capture_settings()}, self._realm).digest

    # ---------------------------------------------------------------------------------- inward
    def apply(
        self,
        stream: bytes,
        buffers: Sequence[Any],
        outcome: Outcome,
        prepared: Prepared | None = None,
        *,
        run: str = "",
        aliases: dict[str, str] | None = None,
        leave: Callable[[Iterable[str]], set[str]] = lambda _names: set(),
        in_turn: bool = True,
    ) -> list[ValueInfo]:
        """Bind the names that came back (``buffers``: bytes of an inline graph or those of ``open_graph``).

        Returns what was bound. Names that could not be loaded here are bound to placeholders and said in
        :attr:`notes`. ``prepared`` is what :meth:`collect` returned for this run (None: attached later); ``run``: whose
        values they are; ``aliases``: ids of classes and functions there → those here (results of another kernel's run).
        ``leave`` says which of the names are not to be bound after all. ``in_turn``: the run was this notebook's latest
        step, so that its random states are the notebook's.
        """
        loaded = codec.load(stream, buffers, replace(self._realm, aliases=aliases or {}))
        self.values_of_last = dict(loaded.values)
        for name in leave([*loaded.values, *loaded.modules]):
            loaded.values.pop(name, None)
            loaded.modules.pop(name, None)
        originals, memo = (prepared.originals, prepared.memo) if prepared is not None else ({}, {})
        Arrival(self._shell.user_ns, loaded, originals, memo).bind()
        namespace = self._shell.user_ns
        self.values_of_last |= {name: namespace[name] for name in loaded.modules if name in namespace}
        if in_turn:
            self._rng_elsewhere = ambient.restore_rng(loaded.facts.get("rng", {}))
        self._history.came_home(loaded.facts.get("devices", {}))
        if run:
            self._origins.note(run, loaded.values, self._shell.user_ns)
        self._notes = [f"`{name}` is a placeholder here: {reason}" for name, reason in loaded.missing.items()]
        return _infos(outcome.results, [*loaded.values, *loaded.modules])


def _bound_by(tree: ast.Module, facts: CellFacts, choice: Choice) -> list[str]:
    """Names that will hold something new after the cell; what it only imports is no such thing."""
    names = facts.bound if choice.out is None else set(choice.out)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    own = {name for name in names if not is_machinery(name) and not is_last_output(name)}
    return sorted(own - imported - set(choice.skip))


def _sent(selection: Selection, dump: codec.Dump) -> list[ValueInfo]:
    modules = selection.module_names()
    return [
        ValueInfo(name, type(selection.sent[name]).__name__, size)
        for name, size in dump.sizes.items()
        if name not in modules
    ]


def _infos(results: Iterable[ValueInfo], names: Iterable[str]) -> list[ValueInfo]:
    known = {info.name: info for info in results}
    return [known.get(name, ValueInfo(name, "")) for name in names if name in known or not known]
