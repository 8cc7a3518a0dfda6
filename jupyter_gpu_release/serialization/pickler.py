"""Cloudpickle with notebook semantics.

Uses internals of cloudpickle (pinned in pyproject, held by tests): its class tracker and its class reducers.
"""

from __future__ import annotations

import copy
import enum
import functools
import hashlib
import io
import sys
import types
import typing
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, ValuesView
from typing import Any

from cloudpickle import cloudpickle

from ..adapters.adapter import REFUSING, Reducer
from ..adapters.registry import adapters_of, first_answer
from ..adapters.singletons import key_of_nan, plain_marks
from ..adapters.stdlib.values import reduce_replaced_class, reduce_stream
from . import abstract_classes, class_statements, exceptions, instances, rebuild
from .identity import (
    OF_GLOBALS,
    class_attributes,
    class_id,
    function_attributes,
    function_id,
    is_by_reference,
    member_attributes,
    module_with_globals,
    own_globals,
)
from .load_order import global_reads, reads_while_rebuilt
from .rebuild import NamespaceInfo
from .sharing.references import References
from .small_values import GraphStream

#: smaller buffers travel inside the stream
OUT_OF_BAND_BYTES = 512

_NOT_MINE = NotImplemented
_METHODS = (types.FunctionType, staticmethod, classmethod, property)


class GraphPickler(cloudpickle.Pickler):
    """Writes several values with one memo, so that what they share stays shared.

    ``compact``: a fingerprint for comparing, not for loading: a class that arrived from outside is only its id and
    what changed of it, and a tensor on a device is only a digest made there. ``with_nans``: each NaN, and each text
    that is a mark, stays itself.
    """

    def __init__(
        self,
        file: io.BytesIO,
        realm: NamespaceInfo,
        buffers: list[Any],
        *,
        compact: bool = False,
        references: References | None = None,
        with_nans: bool = False,
    ) -> None:
        #: to what the receiver has already
        self.references = references
        number = None if references is None else references.persistent_id()
        if with_nans:
            self.persistent_id = _also_nans(number)
        elif number is not None:
            self.persistent_id = number
        # no method of its own, which would keep what it has written alive until the garbage is collected
        super().__init__(file, protocol=5, buffer_callback=functools.partial(_keep_in, buffers))
        self.realm = realm
        self.compact = compact
        self.buffers = buffers
        #: names of notebook globals that functions read, in order of appearance
        self.reads: dict[str, None] = {}
        #: classes and functions of the notebook that travel by value
        self.definitions: list[Any] = []
        #: names of notebook globals that rebuilding what is written reads
        self.reads_at_load: dict[str, None] = {}
        #: modules that by-reference things come from
        self.modules: set[str] = set()
        #: what functions by value import when called (code objects)
        self.codes: list[types.CodeType] = []
        #: how the value being written travels otherwise than it is
        self.remarks: list[str] = []
        #: the same of a part of it, which may have a name of its own
        self.remarks_on_parts: list[tuple[Any, str]] = []
        #: owners of memory that the stream refers to by id, kept alive until the dump ends
        self.keep: list[Any] = []
        #: memory (by a key of its library's reducer) that travels as a whole: views of it are written as views
        self.whole: set[Hashable] = set()
        #: memory of which a view was written alone; ``torn``: before the memory itself turned up
        self.parts: set[Hashable] = set()
        self.torn: set[Hashable] = set()
        self.holders: dict[tuple[Any, str], Any] = {}
        #: address → array that is written with that memory of its own
        self.arrays: dict[int, Any] = {}
        self._reducers: dict[type, Reducer | None] = {type(sys.stdout): reduce_stream, type(sys.stderr): reduce_stream}
        self.nested = False
        #: id → (thing, whether it can be written by itself)
        self._tried: dict[int, tuple[Any, bool]] = {}

    def can_write(self, thing: Any) -> bool:
        """Try to write something that is left out otherwise; within such a trial True, as it fails then by itself."""
        return self.nested or self._try(thing, nested=True)

    def can_write_by_itself(self, thing: Any) -> bool:
        """The same for a part that is left out of what holds it, within a trial, too: each is tried once."""
        if id(thing) not in self._tried:
            self._tried[id(thing)] = thing, True  # while it is tried: it may hold itself
            self._tried[id(thing)] = thing, self._try(thing, nested=False)
        return self._tried[id(thing)][1]

    def _try(self, thing: Any, *, nested: bool) -> bool:
        trial = GraphPickler(io.BytesIO(), self.realm, [], compact=True)
        trial.nested = nested
        trial._tried = self._tried
        try:
            trial.dump(thing)
        except Exception:  # noqa: BLE001 - reducers are foreign code
            return False
        return True

    def copy_memo(self) -> dict[str, Any]:
        """A copy of what is known about what has been written, for :meth:`restore_memo`."""
        own = {name: copy.copy(getattr(self, name)) for name in ("holders", "arrays", "whole", "parts", "torn")}
        return {"memo": self.memo.copy(), **own}

    def held_beside_memo(self) -> Iterator[Any]:
        """Objects that it holds by more than its memo, as often as it does."""
        for table in (self.keep, self.arrays.values(), self.holders.values(), self.globals_ref.values()):
            yield from table
        yield from (thing for thing, _ in self._tried.values())
        for view in self.buffers:
            yield from (view.obj, view.obj)  # the view does, and the PickleBuffer that it was made of

    def restore_memo(self, was: Mapping[str, Any]) -> None:
        """Forget what was written since, as if it had never been."""
        for name, value in was.items():
            setattr(self, name, value)

    def reference_for(self, view: Any) -> Any:
        """The way to write a view on memory that the receiver has already; None: it has no such memory."""
        number = None if self.references is None else self.references.place_of(view)
        return None if number is None else (rebuild.referred, (number,))

    def note_memory_sent(self, key: Hashable) -> None:
        """A reducer writes all of this memory."""
        self.whole.add(key)
        if key in self.parts:
            self.torn.add(key)

    def is_memory_sent(self, key: Hashable) -> bool:
        """Asked for a small view of this memory: False, it is written alone (as far as known now)."""
        if key in self.whole:
            return True
        self.parts.add(key)
        return False

    def note_buffers_sent(self) -> None:
        """Note Python's own buffers and dicts among what travels: pickle writes them and asks nobody."""
        waiting = [key for key in self.parts if isinstance(key, tuple) and key[0] in ("buffer", "globals")]
        memo = self.memo.copy() if waiting else {}
        for key in waiting:
            if key[1] in memo:
                self.note_memory_sent(key)

    def reducer_override(self, obj: Any) -> Any:
        """Called for every object that is not of a plain built-in type."""
        kind = type(obj)
        if kind is types.FunctionType:
            return self._reduce_function(obj)
        try:
            reducer = self._reducers[kind]
        except KeyError:
            reducer = self._reducers[kind] = self._find_reducer(kind)
        return _NOT_MINE if reducer is None else reducer(self, obj)

    def _find_reducer(self, kind: type) -> Reducer | None:
        found = _cached_reducer(kind)
        reads = {} if self.compact else self._reads_while_rebuilt(kind)
        if not reads:
            return found

        def with_reads(pickler: GraphPickler, thing: Any) -> Any:
            pickler.reads_at_load |= reads
            return _NOT_MINE if found is None else found(pickler, thing)

        return with_reads

    def _reads_while_rebuilt(self, kind: type) -> dict[str, None]:
        try:
            return reads_while_rebuilt(kind, self.realm.namespace)
        except Exception:  # noqa: BLE001 - classes of any kind; it is a hint on the order of names, and no value fails for it
            return {}

    # ------------------------------------------------------------------------------- functions
    def _reduce_function(self, function: types.FunctionType) -> Any:
        if is_by_reference(function):
            self.modules.add(function.__module__)
            return _NOT_MINE
        if self.compact and function in self.realm.origins:
            changes = self._changes(function, self._function_look)
            own = {name: part for name, part in self._function_look(function).items() if name.startswith(OF_GLOBALS)}
            delta = (changes, function.__defaults__, function.__kwdefaults__, vars(function), own)
            ident = function_id(function) or self.realm.origins.number_of(function)
            return rebuild.known_class, (ident, function.__closure__), delta
        self.codes.append(function.__code__)
        self.definitions.append(function)
        where, foreign = self._where(function)
        name = function.__name__
        arguments = (function_id(function), function.__code__, where, name, function.__closure__)
        slots: dict[str, Any] = {
            "__qualname__": function.__qualname__,
            "__module__": function.__module__,
            "__doc__": function.__doc__,
            "__annotations__": function.__annotations__,
            "__defaults__": function.__defaults__,
            "__kwdefaults__": function.__kwdefaults__,
        }
        changed, removed = self._changes(function, self._function_look)
        slots |= {part: getattr(function, part) for part in ("__code__", "__name__") if part in changed}
        state = (slots, dict(vars(function)), foreign, changed, removed)
        return rebuild.make_function, arguments, state, None, None, rebuild.set_function

    def _where(self, function: types.FunctionType) -> tuple[Any, dict[str, Any] | None]:
        """Owner of the globals: the notebook's (None), an importable module's (its name) or a dict (with content)."""
        space = function.__globals__
        if space is self.realm.namespace:
            self.reads.update(global_reads(function.__code__))
            return None, None
        module = module_with_globals(function)
        if module is not None:
            self.modules.add(module.__name__)
            return module.__name__, None
        self.keep.append(space)
        if self.is_memory_sent(("globals", id(space))):  # whoever has it sees what the function does to it
            return space, None
        shared = self.globals_ref.setdefault(id(space), {"__name__": space.get("__name__", "")})
        return shared, own_globals(function)

    def _function_look(self, function: types.FunctionType) -> dict[str, Any]:
        return function_attributes(function, self.realm.namespace)

    # --------------------------------------------------------------------------------- classes
    def _reduce_class(self, cls: Any) -> Any:
        if (replaced := reduce_replaced_class(self, cls)) is not None:
            return replaced
        reduced = cloudpickle._class_reduce(cls)
        if reduced is NotImplemented:
            self.modules.add(cls.__module__)
            return _NOT_MINE
        if len(reduced) == 2:  # NoneType and the like
            return reduced
        of_library = first_answer(adapter.reducer_for(type(cls)) for adapter in adapters_of(type(cls)))
        if of_library is not None and (made := of_library(self, cls)) is not None:
            return made
        changed, removed = self._changes(cls, class_attributes)
        if self.compact and cls in self.realm.origins:
            now = class_attributes(cls)
            delta = {name: now[name] for name in changed}
            return rebuild.known_class, (class_id(cls),), (delta, removed), None, None, rebuild.set_class
        maker, arguments, (attributes, _slots), *_ = reduced
        self.definitions.append(cls)
        kind = "enum" if maker is cloudpickle._make_skeleton_enum else "class"
        attributes |= _same_as_inherited(cls, attributes)
        if kind == "class":
            arguments = _class_arguments(cls, arguments, attributes)
            if (statement := self._statement(cls)) is not None:
                arguments = None, cls.__name__, (), {}, arguments[4], statement
                space, cells = self.realm.namespace, self.realm.cells
                attributes = class_statements.own_attributes(cls, statement, cells, space, self.can_write)
        else:
            arguments = _enum_arguments(cls, arguments, attributes)
            attributes |= member_attributes(cls)
        if owners := abstract_classes.registered_with(cls):
            attributes[abstract_classes.WITH] = owners
        if known := abstract_classes.known_to(cls):
            attributes[abstract_classes.KNOWN] = known
        if any(map(abstract_classes.is_registration, changed)):
            changed += [abstract_classes.OWN, abstract_classes.WITH, abstract_classes.KNOWN]
        state = (attributes, [name for name in changed if name in attributes], removed)
        return rebuild.make_class, (kind, *arguments), state, None, None, rebuild.set_class

    def _statement(self, cls: type) -> types.CodeType | None:
        """The statement by which the receiver makes the class, where attributes are not all of it."""
        if not class_statements.is_completed_by_library(cls):
            return None
        space = self.realm.namespace
        code = class_statements.statement_of(cls, self.realm.cells, space)
        if code is None or class_statements.lacks_names(code, space):
            return None
        names = class_statements.names_read(code, space)
        self.reads |= names | class_statements.read_later(code, space)
        self.reads_at_load |= names
        return code

    def _changes(self, thing: Any, attributes: Callable[[Any], dict[str, Any]]) -> tuple[list[str], list[str]]:
        """Changes that the cell made to a class or function that came from outside."""
        if self.nested or thing not in self.realm.origins:
            return [], []
        return self.realm.origins.changes(thing, attributes(thing), self.digest_of) or ([], [])

    def digest_of(self, value: Any) -> bytes | None:
        """Digest of one attribute's value, for comparing within this process."""
        return value_digest(value, self.realm)


def _also_nans(number: Callable[[Any], int | None] | None) -> Callable[[Any], int | str | None]:
    """Pickle asks this for each object, so it does little."""
    marks = plain_marks()

    def persistent_id(thing: Any) -> int | str | None:
        if type(thing) is float and thing != thing:
            return key_of_nan(thing)
        if id(thing) in marks:
            return marks[id(thing)]
        return None if number is None else number(thing)

    return persistent_id


def _keep_in(buffers: list[Any], buffer: Any) -> bool:
    raw = buffer.raw()
    if raw.nbytes < OUT_OF_BAND_BYTES:
        return True
    buffers.append(raw)
    return False


def _same_as_inherited(cls: type, attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes that cloudpickle leaves out, as a base has the very same: else another base may come first."""
    bases = cls.__mro__[1:]
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in attributes
        and _is_of_body(name, value, is_enum=issubclass(cls, enum.Enum))
        and any(name in vars(base) and vars(base)[name] is value for base in bases)
    }


def _is_of_body(name: str, value: Any, *, is_enum: bool) -> bool:
    """Tell if the user has written it, and not the metaclass."""
    is_special = name.startswith("_") and name.endswith("_")
    return not is_special or (not is_enum and (type(value) in _METHODS or name in ("__slots__", "__hash__")))


def _class_arguments(cls: type, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> tuple[Any, ...]:
    """Initial class arguments, with what cloudpickle 3.1 gives too late (slots), too early (``NamedTuple``) or never
    (that it is nested in another).
    """
    meta, name, bases, kwargs, ident, extra = arguments
    if cls.__qualname__ != name:
        kwargs = {**kwargs, "__qualname__": cls.__qualname__}
    if "__slots__" in attributes:
        kwargs = {**kwargs, "__slots__": attributes.pop("__slots__")}
    if typing.NamedTuple in bases:
        bases = cls.__bases__
    if type(cls).__name__ == "_TypedDictMeta":  # typing, and typing_extensions
        bases = ()
    return meta, name, bases, kwargs, ident, extra


def _enum_arguments(cls: Any, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> tuple[Any, ...]:
    """Initial arguments of an enum, with all names that it has for its members (cloudpickle 3.1 leaves aliases out)."""
    bases, name, qualname, _members, *rest = arguments
    members = {each: member.value for each, member in cls.__members__.items()}
    for each in members:
        attributes.pop(each, None)
    return bases, name, qualname, members, *rest


def value_digest(value: Any, realm: NamespaceInfo, *, most_bytes: int | None = None) -> bytes | None:
    """A digest of ``value`` that changes when the value does, within one process; None: it cannot be pickled, or is
    larger than about ``most_bytes``.
    """
    file = GraphStream()
    file.end = most_bytes
    buffers: list[Any] = []
    pickler = GraphPickler(file, realm, buffers, compact=True)
    pickler.nested = True
    try:
        pickler.dump(value)
    except Exception:  # noqa: BLE001 - reducers are foreign code
        return None
    if most_bytes is not None and file.tell() + sum(buffer.nbytes for buffer in buffers) > most_bytes:
        return None
    total = hashlib.sha1(file.getbuffer(), usedforsecurity=False)
    for buffer in buffers:
        total.update(buffer)
    return total.digest()


_REDUCERS: weakref.WeakKeyDictionary[type, Reducer | None] = weakref.WeakKeyDictionary()


def _cached_reducer(kind: type) -> Reducer | None:
    try:
        return _REDUCERS[kind]
    except KeyError:
        reducer = _REDUCERS[kind] = _find_reducer(kind)
        return reducer


def is_refused(value: Any) -> bool:
    """Tell if such things never travel, whatever is in them."""
    kind = type(value)
    return _cached_reducer(kind) in REFUSING or any(adapter.is_refused(value) for adapter in adapters_of(kind))


def _find_reducer(kind: type) -> Reducer | None:
    if issubclass(kind, type):
        return GraphPickler._reduce_class
    found: Reducer | None = kind.__dict__.get("__graph_reduce__")
    if found is None and issubclass(kind, BaseException):
        found = exceptions.reducer_for(kind)
    return found or instances.reducer_for(
        kind, first_answer(adapter.reducer_for(kind) for adapter in adapters_of(kind))
    )


class WrittenObjects(Mapping[int, tuple[int, Any]]):
    """id → (number in the stream, object). It holds the objects, so no id is given away again.

    ``memo``: the pickler's (None: nothing is known). Copying it costs as much as
    pickling small values.
    """

    def __init__(self, memo: Any = None) -> None:
        self._memo = memo

    @functools.cached_property
    def _table(self) -> dict[int, tuple[int, Any]]:
        return {} if self._memo is None else self._memo.copy()

    def __getitem__(self, ident: int) -> tuple[int, Any]:
        return self._table[ident]

    def __iter__(self) -> Iterator[int]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def values(self) -> ValuesView[tuple[int, Any]]:
        """As of any mapping, and at once."""
        return self._table.values()
