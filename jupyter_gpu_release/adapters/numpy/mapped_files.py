"""``np.memmap``: a file, and so are its views. It travels as the place in the file, never as a copy of its bytes.

So does a tensor over a file (``torch.from_file(shared=True)``, ``torch.from_numpy(memmap)``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from typing import Any, NamedTuple

import numpy as np

from ... import streams
from ...errors import MappedFileError

_A_COPY = "as a copy: the file that it maps is gone, so what is written to it reaches no file"
_MEND = "keep the file where notebook and nodes see it under the same path, or send its values: np.array(…)"
#: what is known of the file: its path, inode, size and time of the last change
FileFacts = tuple[str, int, int, int]


def mapping_of(array: Any) -> np.memmap[Any, Any] | None:
    """The ``np.memmap`` that maps the file whose memory ``array`` looks at; None: there is none."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap):
            return array
        array = array.base
    return None


def reduce_mapped(pickler: Any, array: Any) -> Any:
    """A map of a file, or a view of one. With ``mode="c"`` changes stay in memory, so its bytes travel."""
    root = mapping_of(array)
    if root is None or root.mode == "c" or array.dtype.hasobject:
        return NotImplemented
    facts = _facts_of(root, must_flush=pickler.realm.at_home and root.mode != "r")
    if facts is None:
        pickler.remarks.append(_A_COPY)
        return NotImplemented
    if pickler.compact:  # what is in the file is no part of the object
        facts = (facts[0], 0, 0, 0)
    if array is root:
        order = "C" if root.flags.c_contiguous else "F"
        return map_file, (facts, root.dtype, root.mode, root.offset, root.shape, order)
    pickler.keep.append(root)
    offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    place = (array.dtype, array.shape, array.strides, offset, array.flags.writeable)
    return view_of_map, (root, isinstance(array, np.memmap), *place)


def _facts_of(root: np.memmap[Any, Any], *, must_flush: bool) -> FileFacts | None:
    """None: the file is gone. Flushed, so that another machine sees what is in it."""
    if root.filename is None:
        return None
    path = os.fspath(root.filename)
    try:
        if must_flush:
            root.flush()
        found = os.stat(path)
    except OSError:
        return None
    if found.st_size < root.offset + root.nbytes:
        return None
    return path, found.st_ino, found.st_size, found.st_mtime_ns


@streams.named
def map_file(facts: FileFacts, dtype: Any, mode: Any, offset: int, shape: Any, order: Any) -> Any:
    """The same place of the same file, mapped here. Raises :class:`MappedFileError` where the file is not seen."""
    path, inode, size, changed_ns = facts
    try:
        found = os.stat(path)
        # network filesystems tell changes late, and some number files anew on each machine: one of the two must agree
        if found.st_size != size or (found.st_ino != inode and found.st_mtime_ns != changed_ns):
            raise MappedFileError(f"it maps the file {path}, and another file has that name here", hint=_MEND)
        mapped: Any = np.memmap(path, dtype, "r" if mode == "r" else "r+", offset, shape, order)
    except OSError as error:
        text = f"it maps the file {path}, which cannot be opened here: {error.strerror}"
        raise MappedFileError(text, hint=_MEND) from error
    mapped.mode = mode
    return mapped


@streams.named
def view_of_map(root: Any, is_memmap: bool, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """A view of a mapped file: a ``np.memmap``, as its slices are, or a plain array, as ``np.asarray`` makes it."""
    memory = (root if root.flags.c_contiguous else root.T).reshape(-1).view("u1")
    kind: Any = np.memmap if is_memmap else np.ndarray
    view = np.ndarray.__new__(kind, shape, dtype, memory, offset, strides)
    if is_memmap:
        view._mmap, view.filename, view.offset, view.mode = root._mmap, root.filename, root.offset, root.mode
    view.flags.writeable = writeable
    return view


# ------------------------------------------------------------------------------------- memory of tensors
_SHARED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) rw.s ([0-9a-f]+) \S+ (\d+) +(/.*)$", re.MULTILINE)
_NO_FILES = ("/dev/", "/memfd:", "/SYSV")
_MS_SYNC = 4


class MappedMemory(NamedTuple):
    """A file in this process's memory that is written by what is written there."""

    begin: int
    end: int
    offset: int
    inode: int
    path: str


def mapped_memory() -> list[MappedMemory]:
    """All such memory of this process."""
    with open("/proc/self/maps", "rb") as file:
        lines = _SHARED.findall(file.read())
    found = [
        MappedMemory(int(begin, 16), int(end, 16), int(offset, 16), int(inode), os.fsdecode(path))
        for begin, end, offset, inode, path in lines
    ]
    return [each for each in found if not each.path.startswith(_NO_FILES)]


def file_at(address: int, size: int, memory: list[MappedMemory], *, must_flush: bool) -> tuple[Any, ...] | None:
    """Arguments of :func:`map_file` for bytes that lie in a mapped file that is still there.

    One that is only read is none of these: the values say as much, and need no file where they arrive.
    """
    here = next((each for each in memory if each.begin <= address and address + size <= each.end), None)
    if here is None:
        return None
    try:
        found = os.stat(here.path)
    except OSError:
        return None
    offset = here.offset + address - here.begin
    if found.st_ino != here.inode or found.st_size < offset + size:
        return None
    if must_flush:
        start = address - address % mmap.PAGESIZE
        ctypes.CDLL(None).msync(ctypes.c_void_p(start), ctypes.c_size_t(address + size - start), _MS_SYNC)
    facts = (here.path, found.st_ino, found.st_size, found.st_mtime_ns)
    return facts, np.dtype("u1"), "r+", offset, (size,), "C"
