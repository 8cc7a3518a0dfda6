"""pandas: frames and series with the parts of which they are made, and options."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import sys
from typing import Any

from .. import streams
from .adapter import Adapter, LibrarySettings, Reducer, Values

_LONGEST_ATTRIBUTE = 1000


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
    if type(value) in (str, bytes, int, float, complex, bool, type(None)):
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

    settings = (LibrarySettings("pandas", _options, _usual_options, _set_option),)

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

    def use_terminal(self) -> None:
        with contextlib.suppress(Exception):  # another version's options
            sys.modules["pandas"].set_option("display.max_columns", 0)

    def samples(self) -> dict[str, Any]:
        return {"frame": sys.modules["pandas"].DataFrame({"a": [1, 2], "b": ["x", "y"]})}


ADAPTER = PandasAdapter()
