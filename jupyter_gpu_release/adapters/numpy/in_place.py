"""Arrays and generators of the notebook, brought to what came back for them."""

from __future__ import annotations

from typing import Any

import numpy

from .. import cupy
from ..memory import LARGEST_COPIED_BYTES
from . import generators


def update(old: Any, new: Any) -> bool | None:
    """An array, or a generator; False: another one of numpy's objects; None: of a class of the user's."""
    if isinstance(old, numpy.ndarray):
        return _update_subclass(old, new) if type(old) is not numpy.ndarray else _update_plain(old, new)
    if isinstance(old, numpy.void):
        return old.dtype == new.dtype and update_array(numpy.asarray(old), numpy.asarray(new))
    if generators.reducer_for(type(old)) is not None:
        return _update_drawing(old, new)
    module = str(type(old).__module__)
    if module.partition(".")[0] != "numpy":
        return None
    return module.startswith("numpy.random") and _update_generator(old, new)


def _update_plain(old: Any, new: Any) -> bool:
    """Its memory and its shape (``m.shape = …``): views of it are still such."""
    shape = old.shape
    if shape != new.shape and old.nbytes == new.nbytes and old.flags.c_contiguous and old.dtype == new.dtype:
        old.resize(new.shape, refcheck=False)  # as long as before, so nothing moves
    if update_array(old, new):
        return True
    if old.shape != shape:
        old.resize(shape, refcheck=False)
    return False


def update_array(old: Any, new: Any) -> bool:
    """Its memory."""
    is_alike = old.shape == new.shape and old.dtype == new.dtype
    if not is_alike or not old.flags.writeable or old.nbytes > LARGEST_COPIED_BYTES:
        return False
    if cupy.array_mark(old) != cupy.array_mark(new):
        return False
    old[...] = new
    if not new.flags.writeable:
        old.flags.writeable = False
    return True


def _update_subclass(old: Any, new: Any) -> bool:
    """A masked array, a matrix, …: its memory, and its attributes, of which arrays stay themselves, too."""
    if isinstance(old, numpy.memmap) or old.dtype.hasobject:
        return False
    if not update_array(*(numpy.ndarray.view(each, numpy.ndarray) for each in (old, new))):
        return False
    mine, theirs = getattr(old, "__dict__", None), getattr(new, "__dict__", None)
    if mine is None or theirs is None:
        return True
    kept = {
        name: value
        for name, value in mine.items()
        if type(value) is type(theirs.get(name)) is numpy.ndarray and update_array(value, theirs[name])
    }
    mine.clear()
    mine.update(theirs)
    mine.update(kept)
    return True


def _update_seed(old: Any, new: Any) -> bool:
    """A seed counts those that it has spawned, and nothing else of it changes."""
    alike = all(getattr(old, name) == getattr(new, name) for name in ("spawn_key", "pool_size"))
    more = new.n_children_spawned - old.n_children_spawned
    if not alike or more < 0 or not numpy.array_equal(old.entropy, new.entropy):
        return False
    old.spawn(more)
    return True


def _update_generator(old: Any, new: Any) -> bool:
    """numpy's generators of random numbers, of which others draw as well."""
    if isinstance(old, numpy.random.SeedSequence):
        return _update_seed(old, new)
    mine, theirs = (getattr(each, "_bit_generator", each) for each in (old, new))
    if type(mine) is not type(theirs) or not isinstance(mine, numpy.random.BitGenerator):
        return False
    spawned = [getattr(getattr(each, "seed_seq", None), "n_children_spawned", 0) for each in (mine, theirs)]
    if spawned[0] != spawned[1] and not _update_seed(mine.seed_seq, theirs.seed_seq):
        return False
    if hasattr(old, "set_state"):
        old.set_state(new.get_state(legacy=False))
    else:
        mine.state = theirs.state
    return True


def _update_drawing(old: Any, new: Any) -> bool:
    """One of a class made from numpy's, with its attributes."""
    if not _update_generator(old, new):
        return False
    if hasattr(old, "__dict__"):
        vars(old).clear()
        vars(old).update(vars(new))
    return True
