"""Dump and load a namespace as one object graph.

A graph's stream is a sequence of pickles written with one memo: for each name a head ``(name, module)`` and, unless
the name only holds a module, its value; then ``("", "")`` with a dict of further facts; then None. What values
share stays shared across names; sizes are known per name; a load failure names its name. Many plain values (numbers,
texts, small containers of them) go first, in groups: ``("", "", {name: value})``. Before all, if rebuilding something
reads names: ``("", "", {name: empty container}, [name])``, names that are bound as soon as they are read.
"""

from __future__ import annotations

import builtins
import io
import re
import sys
import types
import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..adapters.registry import loaded_adapters, size_of
from ..adapters.singletons import has_builtins, has_nans
from ..adapters.stdlib import cached_functions
from ..adapters.stdlib.values import calls_left_out, kept_alive
from ..errors import GpuReleaseError, LoadError
from ..protocol.cell import RESUME
from ..protocol.wire import without_gc
from ..units import format_bytes
from ..unpickling import Trust
from . import set_order
from .lazy_modules import module_or_deferred
from .load_order import EarlyNames, LoadOrder, empty_containers, global_reads
from .pickler import GraphPickler, WrittenObjects, value_digest
from .process_state.local_modules import MOST_BYTES as STATE_BYTES
from .process_state.local_modules import is_attribute_name
from .rebuild import NamespaceInfo, Rebuilder
from .sharing.held_elsewhere import can_change, held_elsewhere
from .sharing.references import KnownInputs, Live, Parts, References, Targets
from .small_values import GraphStream, NotPlainError, PlainValues, certainly_plain, presumed_plain
from .unpickler import GraphUnpickler, TolerantUnpickler

#: told by its identity from an equal one of somebody else's
_IGNORE: Any = ("ignore", None, Warning, None, 0)


@contextmanager
def suppressed_warnings() -> Iterator[None]:
    """Filters that modules set while they are imported stay; what Python has shown once stays known as shown.

    (``catch_warnings`` would take the filters back, and have every warning of the notebook shown again.)
    """
    warnings.filters.insert(0, _IGNORE)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        place = next((place for place, each in enumerate(warnings.filters) if each is _IGNORE), None)
        if place is not None:
            del warnings.filters[place]  # type: ignore[attr-defined]


__all__ = ["Dump", "Loaded", "NamespaceInfo", "dump", "load"]

#: in longer streams objects are not told apart by number (the table of a million objects takes seconds)
LONGEST_NUMBERED = 2 << 20
#: in longer streams nobody counts who holds what is in them (about 15,000 objects; where many are held, 1 µs each)
LONGEST_COUNTED_BYTES = 256 << 10
_MOST_RESTARTS = 5
#: of values that perhaps cannot be written so many are tried together: each try copies the memo
_AT_ONCE = 16
#: fact: the order of sets
_SETS = "sets"
#: the beginning of an empty set in a pickle: EMPTY_SET, MEMOIZE, MARK; rarely of something else
_SET_IN_STREAM = b"\x8f\x94("

#: asked for a global that a function reads: names and values to send because of it
Follow = Callable[[str], dict[str, Any]]
#: asked then: (whether an object travels) → names that hold such ones
Bound = Callable[[Callable[[Any], bool]], dict[str, Any]]
#: asked for a class or function that travels by value: the name under which ``pickle`` would look for it, and its value
Home = Callable[[Any], dict[str, Any]]
#: asked when all of that is written, with the modules that it needs and the code of functions: more values that go
#: along if they can, and facts on modules
State = Callable[[set[str], list[types.CodeType]], tuple[dict[str, Any], dict[str, list[str]]]]
#: asked after that: names that go along if they can
Rest = Callable[[], dict[str, Any]]
#: asked last: (code of the functions that travel, whether an object travels) → further facts
Facts = Callable[[list[types.CodeType], Callable[[Any], bool]], dict[str, Any]]


@dataclass
class Dump:
    """A written graph. ``buffers`` point at live memory: use them before anything changes it."""

    stream: bytes = b""
    buffers: list[memoryview] = field(default_factory=list)
    #: bytes that each name added
    sizes: dict[str, int] = field(default_factory=dict)
    #: name → where it is written: start and end in the stream, first and last of its buffers
    spans: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)
    #: name → how it travels otherwise than it was ("detached from its computation graph"), each said once
    remarks: dict[str, list[str]] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    #: modules that only those names need which went along because they could
    modules_of_rest: set[str] = field(default_factory=set)
    codes: list[types.CodeType] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)
    #: id → (number in the stream, object)
    memo: Mapping[int, tuple[int, Any]] = field(default_factory=WrittenObjects)

    @property
    def total_bytes(self) -> int:
        """Stream and buffers."""
        return len(self.stream) + sum(buffer.nbytes for buffer in self.buffers)

    def notes(self, went: str) -> list[str]:
        """The remarks as sentences for the receipt; ``went``: "was sent" or "came back"."""
        return [f"`{name}` {went} {remark}" for name, remarks in self.remarks.items() for remark in remarks]


def dump(
    values: Mapping[str, Any],
    realm: NamespaceInfo,
    *,
    follow: Follow | None = None,
    home: Home = lambda _thing: {},
    bound: Bound = lambda _is_written: {},
    rest: Rest = dict,
    rest_bytes: int = 0,
    state: State = lambda _modules, _codes: ({}, {}),
    facts: Facts = lambda _codes, _is_written: {},
    first: Mapping[str, Any] | None = None,
    known: KnownInputs | None = None,
    failed: dict[str, Exception] | None = None,
    shared: Collection[int] = (),
) -> Dump:
    """Write ``values`` as one graph, and by ``follow`` what their functions read, by ``home`` the names of classes,
    names that are ``bound`` to what is written, of ``rest`` what can be and has room in ``rest_bytes``, and the
    ``state`` of modules.

    A value that cannot be pickled is left out and named in ``failed`` (before the facts are asked for). ``first``:
    facts that the receiver learns before the values. ``known``: what it has itself. ``shared``: ids of values that
    something beside their names holds.
    """
    more = _More(follow, home, bound, rest, rest_bytes, state, dict(first or {}), shared)
    failed = {} if failed is None else failed
    whole: set[Hashable] = set()
    order = LoadOrder()
    plain = presumed_plain(values)
    with without_gc(), suppressed_warnings():
        with_nans = has_builtins(values)  # asks for each object, so only where there are some
        writers = []  # of memory that one of them has made, no other gets the address
        for _ in range(_MOST_RESTARTS):
            writer = _Writer(realm, more, failed, whole, known, first=order.first, with_nans=with_nans)
            writers.append(writer)
            try:
                written = writer.write(values, facts, plain)
            except NotPlainError:
                plain = certainly_plain(values) if plain.sizes is None else PlainValues()
                continue
            except _TornError as torn:
                failed[torn.name] = torn.error
                continue
            is_in_order = not order.learn_needs(writer.needs, written.sizes)
            is_whole = with_nans or not has_nans(written.stream)
            if is_in_order and not writer.torn and is_whole:
                return written
            with_nans = not is_whole or with_nans
            whole |= writer.torn  # a view was written before what it looks at
        last = _Writer(realm, more, failed, whole, known, first=order.first, careful=True, with_nans=with_nans)
        return last.write(values, facts, PlainValues())


@dataclass(frozen=True)
class _More:
    """Further things to write; see :func:`dump`."""

    follow: Follow | None
    home: Home
    bound: Bound
    rest: Rest
    rest_bytes: int
    state: State
    first: dict[str, Any]
    shared: Collection[int]


class NoRoomError(Exception):
    """A value of the rest is too large; ``bytes``: how large."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it has {format_bytes(size)}")
        self.bytes = size


class _TornError(Exception):
    """A value failed half-way; what the stream and memo hold of it cannot be taken back: start again without it."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name = name
        self.error = error


class _Writer:
    """``failed``: names to leave out. ``whole``: memory that is known to travel. ``first``: names to begin with.
    ``careful``: remembers the memo before each name, so that a failure can be taken back (slow for many objects).
    ``with_nans``: as the pickler has it.
    """

    def __init__(
        self,
        realm: NamespaceInfo,
        more: _More,
        failed: dict[str, Exception],
        whole: set[Hashable],
        known: KnownInputs | None,
        *,
        first: Sequence[str] = (),
        careful: bool = False,
        with_nans: bool = False,
    ) -> None:
        #: name → names that rebuilding it reads
        self.needs: dict[str, list[str]] = {}
        self._first = first
        self._file = GraphStream()
        self._dump = Dump(failed=failed)
        self._realm = realm
        self._references = None if known is None else References(known)
        self._pickler = GraphPickler(
            self._file, realm, self._dump.buffers, references=self._references, with_nans=with_nans
        )
        self._with_nans = with_nans
        self._pickler.whole |= whole
        self._more = more
        self._careful = careful
        #: ids of the values of names
        self._tops: set[int] = set()

    @property
    def torn(self) -> set[Hashable]:
        """Memory of which a view was written alone although all of it came later."""
        self._pickler.note_buffers_sent()
        return self._pickler.torn

    def write(self, values: Mapping[str, Any], facts: Facts, plain: PlainValues) -> Dump:
        if self._more.first:
            self._pickler.dump(("", ""))
            self._pickler.dump(self._more.first)
        first = self._first_values(values)
        if first:
            self._pickler.dump(("", "", empty_containers(first), list(first)))
        if plain.values:
            plain.write(self._pickler, self._file, self._dump.sizes)
            self._tops.update(map(id, plain.values.values()))
        if first or len(plain.values) < len(values):
            for name, value in {**first, **values}.items():
                if name not in plain.values:
                    self._name(name, value)
        done = {*first, *values}
        if self._more.follow is not None:
            self._follow_reads(done, self._more.follow, self._more.home)
            self._bound(done)
        self._rest(done)
        self._own(("", ""))
        memo = WrittenObjects(self._pickler.memo if self._file.tell() <= LONGEST_NUMBERED else None)
        found = facts(self._pickler.codes, lambda thing: id(thing) in memo)
        self._own({**found, **self._order_of_sets(values, memo), **self._held_elsewhere(memo)})
        self._pickler.dump(None)
        self._dump.modules = self._pickler.modules
        self._dump.codes = self._pickler.codes
        self._dump.memo = memo
        self._dump.keep = [*self._pickler.keep, *self._pickler.holders.values()]
        self._dump.stream = self._file.getvalue()
        if self._references is not None:
            self._dump.stream = self._references.wrap(self._dump.stream, self._dump.buffers, self._write_targets)
        return self._dump

    def _first_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self._first:
            if name in values:
                found[name] = values[name]
            elif self._more.follow is not None:
                found |= self._more.follow(name)
        return found

    def _order_of_sets(self, values: Mapping[str, Any], memo: WrittenObjects) -> dict[str, Any]:
        """Of all sets, in long streams of those that are values of names."""
        if self._file.tell() > LONGEST_NUMBERED:
            written = [value for name, value in values.items() if name not in self._dump.failed]
        elif _SET_IN_STREAM in self._file.getvalue():
            written = [thing for _, thing in memo.values()]
        else:
            return {}
        recipes = set_order.order_recipes(written)
        return {_SETS: recipes} if recipes else {}

    def _held_elsewhere(self, memo: WrittenObjects) -> dict[str, Any]:
        """Parts of inputs, and ``shared`` inputs, that stay themselves because somebody would miss it."""
        if self._more.follow is None:
            return {}
        if self._file.tell() > LONGEST_COUNTED_BYTES:
            found = [memo[ident][0] for ident in self._tops.intersection(self._more.shared) if ident in memo]
        else:
            but, own = self._tops.difference(self._more.shared), self._pickler.held_beside_memo()
            found = held_elsewhere(memo, but=but, own=own, every_kind=True)
        return {"held": found} if found else {}

    def _write_targets(self, file: io.BytesIO, things: list[Any]) -> None:
        """Write the things that are referred to, for receivers that do not have them."""
        if self._references is None or not self._references.with_copies:
            things = []
        pickler = GraphPickler(file, self._realm, self._dump.buffers, with_nans=self._with_nans)
        pickler.dump(things)
        self._dump.keep += [*pickler.keep, *pickler.holders.values()]

    def _follow_reads(self, done: set[str], follow: Follow, home: Home, room: int | None = None) -> None:
        asked: set[str] = set()
        defined = self._pickler.definitions
        looked_at = 0
        while (more := [name for name in self._pickler.reads if name not in asked]) or looked_at < len(defined):
            asked.update(more)
            found = [*map(follow, more), *map(home, defined[looked_at:])]
            looked_at += len(found) - len(more)
            new = {name: value for values in found for name, value in values.items() if name not in done}
            done.update(new)  # in place: who calls goes on with it
            room = self._what_has_room(new, room)

    def _bound(self, done: set[str]) -> None:
        """Names that the cell only binds or deletes hold what is written already: there, too, until it does."""
        written = WrittenObjects(self._pickler.memo)
        for name, value in self._more.bound(lambda value: can_change(type(value)) and id(value) in written).items():
            done.add(name)
            self._name(name, value)

    def _rest(self, done: set[str]) -> None:
        needed = set(self._pickler.modules)
        state, modules = self._more.state(needed, self._pickler.codes)
        rest = {name: value for name, value in self._more.rest().items() if name not in done}
        if not (rest or state or any(modules.values())):
            return
        self._own(("", ""))
        self._own({"rest": True, **modules})
        self._careful = True  # many of these cannot be pickled
        left = self._what_has_room(state, STATE_BYTES)
        if state and self._more.follow is not None:  # what functions read that were put into modules
            self._follow_reads(done, self._more.follow, lambda _thing: {}, left)
            rest = {name: value for name, value in rest.items() if name not in done}
        left = self._what_has_room(rest, self._more.rest_bytes) or 0
        if rest and self._more.follow is not None:
            self._follow_reads(done | rest.keys(), self._more.follow, lambda _thing: {}, min(left, STATE_BYTES))
        self._dump.modules_of_rest = self._pickler.modules - needed

    def _what_has_room(self, values: dict[str, Any], left: int | None) -> int | None:
        """Write these into the room that is ``left`` (None: no limit), and say what is then."""
        found = list(values.items())
        for start in range(0, len(found), _AT_ONCE):
            left = self._some(found[start : start + _AT_ONCE], left)
        return left

    def _some(self, found: list[tuple[str, Any]], left: int | None) -> int | None:
        """The same for a few: all at once, so that the memo is copied once, or else one by one."""
        if not self._careful or len(found) == 1:
            return self._one_by_one(found, left)
        before, was = self._place(), self._pickler.copy_memo()
        self._careful = False
        try:
            return self._one_by_one(found, left)
        except _TornError:
            self._take_back(before, was)
            for table in (self._dump.sizes, self._dump.spans, self._dump.remarks, self.needs):
                for name, _value in found:
                    table.pop(name, None)
        finally:
            self._careful = True
        return self._one_by_one(found, left)

    def _one_by_one(self, found: list[tuple[str, Any]], left: int | None) -> int | None:
        for name, value in found:
            size = 0 if left is None else _size_at_least(value)
            if left is None or size <= left:
                self._name(name, value, left)
                left = None if left is None else left - self._dump.sizes.get(name, 0)
            else:
                self._dump.failed.setdefault(name, NoRoomError(size))
        return left

    def _place(self) -> tuple[int, int]:
        return self._file.tell(), len(self._dump.buffers)

    def _name(self, name: str, value: Any, room: int | None = None) -> None:
        if name in self._dump.failed:
            return
        before = self._place()
        was = self._pickler.copy_memo() if self._careful else None
        self._pickler.remarks.clear()
        self._pickler.remarks_on_parts.clear()
        self._pickler.reads_at_load.clear()
        try:
            self._value(name, value)
            added = self._file.tell() - before[0] + sum(buffer.nbytes for buffer in self._dump.buffers[before[1] :])
            if room is not None and added > room:
                raise NoRoomError(added)
        except Exception as error:
            if was is None:
                raise _TornError(name, error) from error
            self._dump.failed[name] = error
            self._take_back(before, was)
            return
        self._dump.sizes[name] = added
        self._dump.spans[name] = (before[0], self._file.tell(), before[1], len(self._dump.buffers))
        if self._pickler.reads_at_load:
            self.needs[name] = list(self._pickler.reads_at_load)
        remarks = [(name, remark) for remark in (*self._pickler.remarks, *self._copies())]
        remarks += [(self._name_of(part) or name, remark) for part, remark in self._pickler.remarks_on_parts]
        for which, remark in remarks:
            known = self._dump.remarks.setdefault(which, [])
            known += [remark] if remark not in known else []

    def _name_of(self, part: Any) -> str:
        """The notebook's name for it; empty: it has none."""
        names = [name for name, value in list(self._realm.namespace.items()) if value is part]
        return next((name for name in names if not name.startswith("_")), "")

    def _copies(self) -> list[str]:
        """Notes on copies of parts that should be one object with the notebook's."""
        if self._references is None or not self._references.copied:
            return []
        copied = sorted(self._references.copied)
        self._references.copied.clear()
        return [f"as a copy of a part of `{name}`" for name in copied]

    def _value(self, name: str, value: Any) -> None:
        if issubclass(type(value), types.ModuleType) and is_importable(value):
            self._pickler.modules.add(value.__name__)
            self._own((name, value.__name__))
        else:
            self._own((name, ""))
            self._tops.add(id(value))
            self._pickler.dump(value)

    def _own(self, thing: Any) -> None:
        """Write something of ours, which holds nothing of the notebook's that the receiver has."""
        if self._references is not None:
            self._references.are_off = True
        self._pickler.dump(thing)
        if self._references is not None:
            self._references.are_off = False

    def _take_back(self, before: tuple[int, int], was: Mapping[str, Any]) -> None:
        self._file.seek(before[0])
        self._file.truncate()
        del self._dump.buffers[before[1] :]
        self._pickler.restore_memo(was)


def _size_at_least(value: Any) -> int:
    """Size in bytes of a value that is known to be large without being written; 0 for any other."""
    return size_of(value) or 0


def is_importable(module: types.ModuleType) -> bool:
    """Tell if it travels by its name: not one that the notebook has made."""
    return module.__name__ in sys.modules or getattr(module, "is_deferred", False) is True


@dataclass
class Loaded:
    """A read graph. ``modules``: name → name of the module it holds (not imported here). ``missing``: name → reason
    for values that hold placeholders.
    """

    values: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    #: state of the notebook's own modules, by ``module:attribute``
    state: dict[str, Any] = field(default_factory=dict)
    #: names that went along because they could
    rest: set[str] = field(default_factory=set)
    #: of a save: what only the run that goes on needs
    resume: Any = None
    #: number in the stream → object (for a rank)
    memo: dict[int, Any] = field(default_factory=dict)
    #: ids of objects of the receiver that stand in the values
    own: set[int] = field(default_factory=set)
    #: names that were sent, of which the values hold copies of parts
    copied: set[str] = field(default_factory=set)
    #: code of the functions that read the receiver's names
    codes: list[types.CodeType] = field(default_factory=list)
    #: closures in classes of the receiver, each with what arrived for it
    closures: list[tuple[types.FunctionType, types.FunctionType]] = field(default_factory=list)
    #: globals of functions of the receiver in which something was set
    spaces: list[dict[str, Any]] = field(default_factory=list)
    #: objects that a call to their class has made, each with names of attributes that did not travel
    left: list[tuple[Any, list[str]]] = field(default_factory=list)

    def lacking(self, namespace: Mapping[str, Any]) -> list[str]:
        """Names that the code of what came reads and ``namespace`` has not."""
        reads = {name for code in self.codes for name in global_reads(code)}
        return sorted(name for name in reads - namespace.keys() - vars(builtins).keys() if not name.startswith("__"))


def load(
    stream: bytes,
    buffers: Sequence[Any],
    realm: NamespaceInfo,
    live: Live | None = None,
    first: Callable[[dict[str, Any]], None] = lambda _facts: None,
    *,
    trust: Trust,
) -> Loaded:
    """Rebuild all names of a graph; ``live`` finds the receiver's own objects that it refers to; ``first`` gets facts
    as soon as they are read, those before the values first; ``trust``: why it may be loaded.

    At home what cannot be rebuilt becomes a placeholder; in a rank it raises :class:`LoadError` with the name.
    """
    with without_gc(), suppressed_warnings():
        return _load(stream, buffers, realm, live, first, trust)


def _load(
    stream: bytes,
    buffers: Sequence[Any],
    realm: NamespaceInfo,
    live: Live | None,
    first: Callable[[dict[str, Any]], None],
    trust: Trust,
) -> Loaded:
    rebuilder = Rebuilder(realm)
    reading = _Reading(realm.namespace, first)
    parts = Parts.of(stream, trust)

    def reader(kind: Any) -> Any:
        def read(parts: Parts) -> Any:
            return kind(_from(stream, parts.things), trust, rebuilder, buffers[parts.buffers :]).load()

        rebuilder.targets = Targets(parts, live, read)
        return kind(_from(stream, parts.begin), trust, rebuilder, buffers)

    try:
        unpickler = reader(GraphUnpickler)
        loaded = reading.all_of(unpickler)
        if not realm.at_home and len(stream) <= LONGEST_NUMBERED:
            loaded.memo = unpickler.memo.copy()
    except Exception as error:
        if not realm.at_home and not reading.is_rest:
            raise _load_error(reading.name, error) from error
        # placeholders for what cannot be; in a rank only for what it may not need
        tolerant = reader(TolerantUnpickler)
        try:
            loaded = reading.all_of(tolerant, tolerant.reasons)
        except Exception as second:  # noqa: BLE001 - foreign code while loading
            raise _load_error(reading.name, second, at_home=realm.at_home) from error
    finally:
        reading.early.restore_names()
    if recipes := loaded.facts.pop(_SETS, ()):
        set_order.restore_order(recipes)
    settle_libraries()
    cached_functions.fill_all(rebuilder.caches)
    rebuilder.remember_arrivals(lambda value: value_digest(value, realm))
    loaded.codes, loaded.closures = rebuilder.codes, rebuilder.closures
    loaded.left, loaded.spaces = rebuilder.left, rebuilder.spaces
    loaded.resume = loaded.values.pop(RESUME, None)
    if realm.at_home:  # the run may go on with these, nobody else
        for name in loaded.facts.pop("shards", ()):
            loaded.values.pop(name, None)
            loaded.missing.pop(name, None)
    loaded.state = {name: loaded.values.pop(name) for name in list(loaded.values) if is_attribute_name(name)}
    loaded.own = rebuilder.targets.own
    loaded.copied = rebuilder.targets.copied
    if realm.at_home:
        kept_alive.clear()
        calls_left_out.clear()  # of what another object stands for here
    rebuilder.targets = ()  # what was sent is not to wait for the garbage collection
    return loaded


def settle_libraries() -> None:
    """Have what libraries keep by the ids of objects made anew: some have arrived, or were put in place of others."""
    for adapter in loaded_adapters():
        adapter.settle()


def _from(stream: bytes, begin: int) -> io.BytesIO:
    file = io.BytesIO(stream)
    file.seek(begin)
    return file


def _load_next(unpickler: Any) -> Any:
    return unpickler.load()


class _Reading:
    """Reads names one after the other and knows which one it is at."""

    name = ""
    is_rest = False

    def __init__(self, namespace: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
        self._namespace = namespace
        self._tell = tell
        self.early = EarlyNames(namespace)

    def all_of(self, unpickler: Any, reasons: list[str] | None = None) -> Loaded:
        loaded = Loaded()
        self.is_rest = False
        # what looks names up in the frames above it while it is rebuilt (formulas) finds the notebook's
        load_next = types.FunctionType(_load_next.__code__, self._namespace)
        while (head := unpickler.load()) is not None:
            if len(head) > 2:
                self._group(loaded, *head[2:])
                continue
            self.name, module = head
            if self.is_rest:
                loaded.rest.add(self.name)
            if module:
                loaded.modules[self.name] = module
                self.early.note_read({self.name: module_or_deferred(module, self._namespace)})
                continue
            value = load_next(unpickler)
            if self.name:
                loaded.values[self.name] = value
                self.early.note_read({self.name: value})
            else:
                self.is_rest = "rest" in value
                loaded.facts |= value
                self._tell(value)
            if reasons:
                loaded.missing[self.name] = reasons[0]
                reasons.clear()
        return loaded

    def _group(self, loaded: Loaded, values: dict[str, Any], early: Sequence[str] = ()) -> None:
        """Plain values; or, with ``early``, what these names hold until they are read."""
        if early:
            self.early.bind_early(early, values)
        else:
            loaded.values.update(values)
            self.early.note_read(values)


#: AttributeErrors of a module that is another version there; others are of the class's own code
_LACKS_NAME = re.compile(r"Can't get attribute .* on <module|module '.*' has no attribute")


def _load_error(name: str, error: Exception, *, at_home: bool = False) -> LoadError:
    if at_home:
        text = f"what came back cannot be read, at `{name}`: {type(error).__name__}: {error}"
        return LoadError(text, hint=f"run the cell again with --skip {name}")
    if isinstance(error, GpuReleaseError):
        reason, hint = error.message, error.hint
    elif isinstance(error, ModuleNotFoundError):
        reason = f"it needs the module {error.name}, which the cluster lacks"
        hint = f"install it on the nodes, or hold the name back with --skip {name}"
    elif isinstance(error, ImportError) or _LACKS_NAME.match(str(error)):
        reason = f"{type(error).__name__}: {error}"
        hint = f"compare the package versions of kernel and cluster (jupyter gpu doctor), or use --skip {name}"
    else:
        reason = f"what its class gives to pickle does not make it again: {type(error).__name__}: {error}"
        hint = f"hold it back with --skip {name} and make it in the cell, or give its class a `__reduce__`"
    return LoadError(f"`{name}` cannot be rebuilt on the node: {reason}", hint=hint)
