"""pandas: frames and series with the parts of which they are made, and options."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import itertools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from .. import streams
from .adapter import Adapter, LibrarySettings, Reducer, Values

_LONGEST_ATTRIBUTE = 1000
#: of more objects in columns nobody looks which they are
_MOST_OBJECTS = 9_900
_ATOMS = frozenset({str, bytes, int, float, complex, bool, type(None)})
#: what their objects consist of is nobody's but theirs
_OPAQUE = ("pandas._libs", *(f"pandas.core.{part}" for part in ("arrays", "frame", "indexes", "internals", "series")))


def _is_own(kind: type) -> bool:
    """Tell if a class is of pandas itself, not one that somebody has made from it."""
    return str(kind.__module__).partition(".")[0] == "pandas"


def _own_getstate(kind: type) -> Any:
    return next(vars(base).get("__getstate__") for base in kind.__mro__ if base.__name__ == "NDFrame")


def reduce_frame(_pickler: Any, frame: Any) -> Any:
    """With the plain attributes that somebody set (``frame.name = "train"``), which pandas leaves out.

    (What libraries set may not be pickled at all: patsy's ``design_info``.)
    """
    own = {name: value for name, value in vars(frame).items() if not name.startswith("_") and name != "attrs"}
    plain = {name: value for name, value in own.items() if is_plain(value)}
    if not plain:
        return NotImplemented
    return copyreg.__newobj__, (type(frame),), {**plain, **frame.__getstate__()}  # type: ignore[attr-defined]


def is_plain(value: Any, depth: int = 4) -> bool:
    """Tell if it is a number, a text, or a small container of such."""
    if type(value) in _ATOMS:
        return True
    if type(value) not in (list, tuple, dict, set) or len(value) > _LONGEST_ATTRIBUTE or not depth:
        return False
    parts = [*value, *value.values()] if type(value) is dict else value
    return all(is_plain(part, depth - 1) for part in parts)


def reduce_arrow_column(pickler: Any, column: Any) -> Any:
    """In one piece: as that piece's own memory. Pandas copies it first (it joins the chunks, however few they are)."""
    data = vars(column).get("_pa_array")
    if data is None or data.num_chunks != 1:
        return NotImplemented
    chunk = data.chunk(0)
    if data.nbytes * 2 < chunk.get_total_buffer_size():  # a few rows of a large one: only they shall travel
        return NotImplemented
    pickler.keep.append(chunk)
    state = {name: value for name, value in vars(column).items() if name != "_cache"} | {"_pa_array": chunk}
    return copyreg.__newobj__, (type(column),), state  # type: ignore[attr-defined]


# -------------------------------------------------------------------------- frames that share memory (copy on write)
def reduce_block(_pickler: Any, block: Any) -> Any:
    """With the record of who shares its memory: whoever writes must go on copying first."""
    maker, arguments = block.__reduce__()[:2]
    return make_block, (maker, arguments, block.refs)


@streams.named
def make_block(maker: Any, arguments: tuple[Any, ...], sharing: Any) -> Any:
    """A block that shares its memory with those of the same record."""
    block = maker(*arguments)
    if sharing is not None:
        block.refs = sharing
        sharing.add_reference(block)
    return block


def reduce_column(_pickler: Any, manager: Any) -> Any:
    """A series' manager as its block, which pandas itself would make anew."""
    return make_column, (type(manager), manager.blocks[0], manager.axes[0])


@streams.named
def make_column(kind: Any, block: Any, axis: Any) -> Any:
    """The manager of one block."""
    return kind.from_blocks([block], [axis])


def reduce_sharing(_pickler: Any, sharing: Any) -> Any:
    """A record of sharing: empty, since blocks enter themselves."""
    return type(sharing), ()


def reduce_index(pickler: Any, index: Any) -> Any:
    """An index never changes, so it shares no memory with a column that may."""
    references = getattr(index, "_references", None)
    reduced = index.__reduce_ex__(5)
    if references is None or not references.has_reference() or len(reduced) < 2 or type(reduced[1][-1]) is not dict:
        return reduced
    state = dict(reduced[1][-1])
    if getattr(state.get("data"), "base", None) is not None:
        state["data"] = state["data"].copy()
        pickler.keep.append(state["data"])
    return (reduced[0], (*reduced[1][:-1], state), *reduced[2:])


# ------------------------------------------------------------------------------------- updated in place
def _update(old: Any, new: Any) -> bool:
    """Frames and series: their manager, of which blocks that look as before keep their memory."""
    if not all("_mgr" in getattr(each, "__dict__", ()) for each in (old, new)):
        return False
    for mine, theirs in zip(old._mgr.blocks, new._mgr.blocks, strict=False):
        is_alone = mine.refs is not None and not mine.refs.has_reference()
        if is_alone and _update_values(mine.values, theirs.values):
            theirs.values = mine.values
            theirs.refs = mine.refs
            theirs.refs.add_reference(theirs)
    object.__setattr__(old, "_mgr", new._mgr)
    for name in set(vars(new)) - {"_mgr", "_flags", "_item_cache"}:
        object.__setattr__(old, name, vars(new)[name])
    for name in set(vars(old)) - set(vars(new)):
        if not name.startswith("_") and is_plain(vars(old)[name]):  # others do not travel
            object.__delattr__(old, name)
    with contextlib.suppress(AttributeError):
        old.flags.allows_duplicate_labels = new.flags.allows_duplicate_labels
        vars(old).get("_item_cache", {}).clear()
    return True


def _update_values(old: Any, new: Any) -> bool:
    """The values of a block: an array of numpy's, or of pandas' own, which others may hold, too."""
    from .numpy.in_place import update_array

    if type(old) is not type(new) or old.dtype != new.dtype or old.shape != new.shape:
        return False
    categories = getattr(old.dtype, "categories", None)  # types with the same ones in another order are equal
    if categories is not None and not categories.equals(new.dtype.categories):
        return False
    if type(old).__name__ == "ndarray":
        return update_array(old, new)
    if hasattr(old, "_ndarray") and not update_array(old._ndarray, new._ndarray):
        return False
    for name, part in getattr(new, "__dict__", {}).items():
        mine = vars(old).get(name)
        if not type(mine).__name__ == type(part).__name__ == "ndarray" or not update_array(mine, part):
            vars(old)[name] = part
    if hasattr(old, "_freq"):
        old._freq = new._freq
    return True


def _update_index(old: Any, new: Any) -> bool:
    """Of an index only the names change, and the frequency of dates; one whose values were written is another."""
    if old.dtype != new.dtype or not old.equals(new):
        return False
    old.names = new.names
    if hasattr(old, "_freq"):
        old._freq = new._freq
    return True


def _columns_of_objects(manager: Any) -> list[Any]:
    """Arrays of Python's objects, of which a frame or series consists; less those of texts and numbers alone."""
    objects = _arrays_of_objects(manager)
    is_small = sum(each.size for each in objects) <= _MOST_OBJECTS
    return [each for each in objects if any(type(part) not in _ATOMS for part in each.flat)] if is_small else []


def _arrays_of_objects(manager: Any) -> list[Any]:
    values = [block.values for block in getattr(manager, "blocks", ())]
    return [each for each in values if type(each).__name__ == "ndarray" and each.dtype.hasobject]


def _memory_of(thing: Any) -> Iterator[int]:
    """Ids of the arrays that a frame or series consists of. Others may share them until somebody writes."""
    blocks = getattr(getattr(thing, "__dict__", {}).get("_mgr"), "blocks", ())
    arrays = [each.values for each in blocks]
    attributes = [[*getattr(each, "__dict__", {}).values(), getattr(each, "_ndarray", None)] for each in arrays]
    for part in itertools.chain(arrays, *attributes):
        yield id(part)
        while isinstance(part, sys.modules["numpy"].ndarray):  # what it is a view of
            part = part.base
            yield id(part)


# -------------------------------------------------- accessors, ``tqdm.pandas()``, methods that a notebook adds
def _extended_classes() -> list[type]:
    if not hasattr(sys.modules["pandas"], "DataFrame"):  # another thread is importing it
        return []
    grouped = sys.modules["pandas.core.groupby"]
    frames = [getattr(sys.modules["pandas"], name) for name in ("DataFrame", "Series", "Index")]
    return frames + [getattr(grouped, f"{name}GroupBy") for name in ("DataFrame", "Series", "")]


def _is_from_outside(value: Any) -> bool:
    """Tell if a function or an accessor is of another package, or of the notebook."""
    made_of = getattr(value, "_accessor", getattr(value, "__func__", value))
    if isinstance(value, property):  # one that is only set has no getter
        made_of = value.fget or value.fset
    module = getattr(made_of, "__globals__", {}).get("__name__") or getattr(made_of, "__module__", "")
    return str(module).partition(".")[0] != "pandas"


_METHODS = (types.FunctionType, property, classmethod, staticmethod)


def _is_extension(kind: type, name: str, value: Any) -> bool:
    is_one = type(value) in _METHODS or name in vars(kind).get("_accessors", ())
    return is_one and _is_from_outside(value)


@functools.cache
def _own_attributes(kind: type) -> dict[str, Any]:
    """Remembered once: what is still there was looked at."""
    return {name: value for name, value in vars(kind).items() if not _is_extension(kind, name, value)}


def _extensions() -> Iterator[tuple[type, str, Any]]:
    for kind in _extended_classes():
        own = _own_attributes(kind)
        unseen = [(name, value) for name, value in vars(kind).items() if own.get(name) is not value]
        found = {name: value for name, value in unseen if _is_extension(kind, name, value)}
        yield from ((kind, name, value) for name, value in found.items())
        if (accessors := vars(kind).get("_accessors", frozenset())).intersection(found):
            yield kind, "_accessors", set(accessors)


# ------------------------------------------------------------------------------------------- options
def _options(pandas: Any) -> Values:
    config = pandas._config.config
    return {
        key: functools.reduce(dict.__getitem__, key.split("."), config._global_config)
        for key in config._registered_options
    }


def _usual_options(pandas: Any) -> Values:
    return {key: option.defval for key, option in pandas._config.config._registered_options.items()}


def _set_option(pandas: Any, name: str, value: Any) -> None:
    pandas.set_option(name, value)


class PandasAdapter(Adapter):
    """Frames, series, indexes."""

    gives_values = True

    carried_calls = (
        "register_dataframe_accessor",
        "register_series_accessor",
        "register_index_accessor",
        "pandas.set_option",
        "set_eng_float_format",
    )
    settings = (LibrarySettings("pandas", _options, _usual_options, _set_option),)

    def gives_the_same(self, kind: type) -> bool:
        return True

    def reducer_for(self, kind: type) -> Reducer | None:
        names = {base.__name__ for base in kind.__mro__ if str(base.__module__).startswith("pandas")}
        if "ArrowExtensionArray" in names:
            return reduce_arrow_column
        if "BlockValuesRefs" in names:
            return reduce_sharing
        if "Block" in names and hasattr(kind, "refs"):
            return reduce_block
        if "SingleBlockManager" in names and hasattr(kind, "from_blocks"):
            return reduce_column
        if "NDFrame" in names and kind.__getstate__ is _own_getstate(kind):
            return reduce_frame
        return reduce_index if "Index" in names else None

    def update_in_place(self, old: Any, new: Any) -> bool | None:
        if not _is_own(type(old)):
            return None
        if isinstance(old, sys.modules["pandas"].Index):
            return _update_index(old, new)
        if isinstance(old, sys.modules["pandas"].api.extensions.ExtensionArray):
            return _update_values(old, new)
        return _update(old, new)

    def can_change(self, kind: type) -> bool | None:
        """Of an index the names do, and the frequency; arrays are memory of frames."""
        pandas = sys.modules["pandas"]
        return issubclass(kind, (pandas.DataFrame, pandas.Series, pandas.Index)) if _is_own(kind) else None

    def items_of(self, thing: Any) -> Any:
        """The axes, which several frames may share, and what is in columns of objects, if it is not very much."""
        manager = getattr(thing, "__dict__", {}).get("_mgr")
        axes = getattr(manager, "axes", None)
        columns = _columns_of_objects(manager)
        if axes is None or not columns:
            return axes
        return [*axes, *itertools.chain.from_iterable(column.flat for column in columns)]

    def set_items(self, thing: Any, items: dict[int, Any]) -> None:
        axes = thing._mgr.axes
        for place in [place for place in items if place < len(axes)]:
            axes[place] = items.pop(place)
        start = len(axes)
        for column in _columns_of_objects(thing._mgr) if items else ():
            for place in [place for place in items if place < start + column.size]:
                column.flat[place - start] = items.pop(place)
            start += column.size

    def has_more_items(self, thing: Any) -> bool:
        arrays = _arrays_of_objects(getattr(thing, "__dict__", {}).get("_mgr"))
        is_large = sum(each.size for each in arrays) > _MOST_OBJECTS
        return is_large and any(type(part) not in _ATOMS for each in arrays for part in each.flat)

    def own_memory(self, thing: Any) -> Iterable[int]:
        return _memory_of(thing) if _is_own(type(thing)) else ()

    def is_opaque(self, kind: type) -> bool:
        return str(kind.__module__).startswith(_OPAQUE)

    def shape_of(self, value: Any) -> tuple[int, ...] | None:
        return getattr(value, "shape", None) if _is_own(type(value)) else None

    def extended_classes(self) -> Iterable[type]:
        return _extended_classes()

    def extensions(self) -> Iterable[tuple[type, str, Any]]:
        return _extensions()

    def use_terminal(self) -> None:
        with contextlib.suppress(Exception):  # another version's options
            sys.modules["pandas"].set_option("display.max_columns", 0)

    def samples(self) -> dict[str, Any]:
        return {"frame": sys.modules["pandas"].DataFrame({"a": [1, 2], "b": ["x", "y"]})}


ADAPTER = PandasAdapter()
