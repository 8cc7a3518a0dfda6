"""Addresses, pages and file mappings of this process, as the C library and the Linux kernel know them."""

from __future__ import annotations

import ctypes
import mmap
import os

_PAGE = mmap.PAGESIZE
_MAP_FIXED = 0x10
_NORESERVE = 0x4000
_WRITE_OUT = 2  # SYNC_FILE_RANGE_WRITE


class _PyBuffer(ctypes.Structure):
    """``Py_buffer`` of the C API (part of the stable ABI)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(view: memoryview) -> int:
    """The address of a contiguous view's memory, be it writable or not; 0 for an empty one."""
    if not view.nbytes:
        return 0
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), ctypes.c_int(0))
    try:
        return int(buffer.buf)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


def page_flags(address: int, length: int) -> bytes | None:
    """The high byte of each page's entry in ``/proc/self/pagemap``; None where the system does not tell."""
    first, last = address // _PAGE, (address + length - 1) // _PAGE + 1
    try:
        descriptor = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.pread(descriptor, 8 * (last - first), 8 * first)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data[7::8] if len(data) == 8 * (last - first) else None


def map_file(address: int, length: int, descriptor: int) -> None:
    """Map a file private and writable over memory that is reserved at ``address``; raises OSError."""
    _map(address, length, mmap.MAP_PRIVATE | _MAP_FIXED | _NORESERVE, descriptor)


def map_zeros(address: int, length: int) -> None:
    """Put pages of zeros in the place of what is mapped there; raises OSError."""
    _map(address, length, mmap.MAP_PRIVATE | _MAP_FIXED | _NORESERVE | mmap.MAP_ANONYMOUS, -1)


def _map(address: int, length: int, flags: int, descriptor: int) -> None:
    made = _LIBC.mmap(address, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if made != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def start_write_out(descriptor: int, at: int, length: int) -> None:
    """Ask for written pages to be sent to the disk now, without waiting (the final fsync then waits less)."""
    if _SYNC_RANGE is not None:
        _SYNC_RANGE(descriptor, at, length, _WRITE_OUT)


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_SYNC_RANGE = getattr(_LIBC, "sync_file_range", None)
if _SYNC_RANGE is not None:
    _SYNC_RANGE.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
