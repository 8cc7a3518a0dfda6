"""``functools.cache`` and ``lru_cache``: a cached function travels with what it remembers and its counters.

Python offers no way to what is in such a cache, nor to put something there but by a call. So its entries are read from
what the garbage collector sees of it, and written by calls, for which another function stands in the place of the
cached one.

Source: CPython 3.11, Modules/_functoolsmodule.c. The layout is tried out before it is used: with another one, cached
functions travel with an empty cache, and that is said.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

#: calls, hits, misses, whether calls are missing, attributes
State = tuple[list[tuple[Any, ...]], int, int, bool, dict[str, Any]]
_ATOMS = frozenset({str, bytes, int, float, complex, bool, type(None)})
_ABSENT = object()
#: attributes that each cached function is made with
_OWN = frozenset({"cache_parameters", "__wrapped__"})


class Entry(NamedTuple):
    """A call that is remembered."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None
    result: Any


class _Layout(ctypes.Structure):
    """The beginning of a cached function in memory."""

    _fields_ = [
        ("count", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("link", ctypes.c_void_p * 5),
        ("call", ctypes.c_void_p),
        ("typed", ctypes.c_int),
        ("cache", ctypes.c_void_p),
        ("hits", ctypes.c_ssize_t),
        ("function", ctypes.c_void_p),
        ("maxsize", ctypes.c_ssize_t),
        ("misses", ctypes.c_ssize_t),
    ]


def _memory(cached: Any) -> _Layout:
    return _Layout.from_address(id(cached))


@functools.lru_cache(1)
def _mark() -> Any:
    """The object between arguments and named ones in a key; None: the layout is another one here."""

    def asked(*_args: Any, **_kwargs: Any) -> None: ...

    probe = functools.lru_cache(maxsize=7)(asked)
    for number in (1, 1, 1, 2):
        probe(number)
    memory = _memory(probe)
    seen = memory.hits, memory.misses, memory.maxsize, memory.function
    refs = gc.get_referents(probe)
    is_known = sys.implementation.name == "cpython" and seen == (2, 2, 7, id(asked))
    if not is_known or memory.cache not in map(id, refs) or refs[1:3] + refs[4:6] != [1, None, 2, None]:
        return None
    probe(name=1)
    keys = [key for key in gc.get_referents(probe) if type(key) is tuple]
    return keys[0][0] if [key[1:] for key in keys] == [("name", 1)] else None


def entries_of(cached: Any) -> list[Entry] | None:
    """The calls that a cached function remembers, in the order in which it forgets them; None: they cannot be known."""
    pairs = _pairs(cached)
    is_typed = cached.cache_parameters()["typed"]
    return None if pairs is None else [Entry(*_call(key, is_typed), result) for key, result in pairs]


def _pairs(cached: Any) -> list[tuple[Any, Any]] | None:
    """Keys and results."""
    if _mark() is None:
        return None
    refs, memory = gc.get_referents(cached), _memory(cached)
    place = next(place for place, thing in enumerate(refs) if id(thing) == memory.cache)
    if memory.maxsize < 0:
        return list(refs[place].items())
    return list(zip(refs[1:place:3], refs[2:place:3], strict=True))


def _call(key: Any, is_typed: bool) -> tuple[tuple[Any, ...], dict[str, Any] | None]:
    """Arguments of the call that a key stands for."""
    if type(key) is not tuple:
        return (key,), None
    marks = [place for place, part in enumerate(key) if part is _mark()]
    if not marks:
        return key[: len(key) // 2] if is_typed else key, None
    count = marks[0]
    names = key[count + 1 :]
    if is_typed:
        names = names[: (len(names) - count) * 2 // 3]
    return key[:count], dict(zip(names[::2], names[1::2], strict=True))


def fill(cached: Any, entries: list[Entry], hits: int, misses: int) -> None:
    """Have a cached function remember these calls, and no others."""
    cached.cache_clear()
    if _mark() is None:
        return
    memory, here = _memory(cached), threading.get_ident()
    address, result = memory.function, None
    function = ctypes.cast(address, ctypes.py_object).value

    def answer(*args: Any, **kwargs: Any) -> Any:
        return result if threading.get_ident() == here else function(*args, **kwargs)

    memory.function = id(answer)
    try:
        for entry in entries:
            result = entry.result
            try:
                cached(*entry.args, **(entry.kwargs or {}))
            except Exception:  # noqa: BLE001 - the arguments' own hash or comparison
                continue
    finally:
        memory.function = address
    memory.hits, memory.misses = hits, misses


def update(old: Any, new: Any) -> bool:
    """Have ``old`` remember what ``new`` does; what could not travel stays. False: they keep differently much."""
    if old.cache_parameters() != new.cache_parameters() or _mark() is None:
        return False
    entries, info = entries_of(new) or [], new.cache_info()
    if new in _partial:
        known = {key for key, _ in _pairs(new) or ()}
        is_typed = old.cache_parameters()["typed"]
        stay = [Entry(*_call(key, is_typed), result) for key, result in _pairs(old) or () if key not in known]
        entries = stay + entries
    fill(old, entries, info.hits, info.misses)
    vars(old).update(_attributes(new))
    return True


def replace_entries(cached: Any, new_for: Callable[[Any], Any]) -> None:
    """Put ``new_for(thing)`` in the place of each result and argument, where that is another object."""
    entries, info = entries_of(cached) or [], cached.cache_info()
    made = [Entry(new_for(entry.args), entry.kwargs, new_for(entry.result)) for entry in entries]
    if any(now.args is not was.args or now.result is not was.result for now, was in zip(made, entries, strict=True)):
        fill(cached, made, info.hits, info.misses)


# ------------------------------------------------------------------------------------------------- travelling
#: cached functions here that do not remember all that they did where they came from
_partial: weakref.WeakSet[Any] = weakref.WeakSet()


def state_of(pickler: Any, cached: Any) -> State:
    """All that it remembers and that can be pickled."""
    info, entries = cached.cache_info(), entries_of(cached)
    sent = _sendable(pickler, entries or [])
    lacks = len(sent) < info.currsize
    if lacks:
        pickler.remarks.append(f"without a part of what {cached.__name__}() remembers, which cannot be pickled")
    lacks = lacks or cached in _partial
    return list(map(tuple, sent)), info.hits, info.misses, lacks, _attributes(cached)


def _attributes(cached: Any) -> dict[str, Any]:
    """Those that do not come from the function in it."""
    return {
        name: value
        for name, value in vars(cached).items()
        if name not in _OWN and value is not getattr(cached.__wrapped__, name, _ABSENT)
    }


def _sendable(pickler: Any, entries: list[Entry]) -> list[Entry]:
    """Those that can be pickled: what is kept for later must not keep a cell from running."""
    unsure = [entry for entry in entries if not _is_plain(entry)]
    if not unsure or pickler.can_write(list(map(tuple, unsure))):
        return entries
    return [entry for entry in entries if _is_plain(entry) or pickler.can_write(tuple(entry))]


def _is_plain(entry: Entry) -> bool:
    return all(type(part) in _ATOMS for part in (*entry.args, *(entry.kwargs or {}).values(), entry.result))


def fill_all(made: Iterable[tuple[Any, State]]) -> None:
    """Have loaded functions remember what they did where they come from."""
    for cached, (entries, hits, misses, lacks, attributes) in made:
        fill(cached, [Entry(*entry) for entry in entries], hits, misses)
        vars(cached).update(attributes)
        if lacks:
            _partial.add(cached)
