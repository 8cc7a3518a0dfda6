"""Exceptions by class name, args, attributes: as error and as value.

Pickle would call the class with ``args``, which fails for every class whose ``__init__`` takes something else.
"""

from __future__ import annotations

import contextlib
import copyreg
import importlib
import io
import pickle
import types
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from .. import streams
from ..protocol.wire import decode, encode
from ..unpickling import Trust, loads

#: of arguments and attributes in all
LIMIT_BYTES = 1 << 16
#: set by Python from the failing object itself, which may be anything (and large)
_NOT_SENT = ("obj",)
_NO_TEXT = "<no text: its __str__ failed>"


class Raised(msgspec.Struct, frozen=True, array_like=True):
    """The classes (module, qualified name), the nearest first; what cannot be pickled is empty or missing."""

    classes: list[tuple[str, str]]
    args: list[bytes]
    #: members of the class (slots, ``OSError.filename``) and attributes
    members: dict[str, bytes]
    attributes: dict[str, bytes]
    #: the members of an exception group, each with its text
    group: list[tuple[str, Raised]] = []


def error_text(error: BaseException) -> str:
    """``str(error)``, also where the class's own method for that fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - foreign code
        return _NO_TEXT


def has_text(error: BaseException) -> bool:
    """Tell if the class's own method for ``str(error)`` does not fail."""
    return error_text(error) is not _NO_TEXT


def pack_error(error: BaseException) -> bytes:
    """Write ``error`` down; of what a class could make it raise, only that a group is too large (BufferError)."""
    return encode(_packed(error, _Room(LIMIT_BYTES)))


def _packed(error: BaseException, room: _Room) -> Raised:
    classes = [(cls.__module__, cls.__qualname__) for cls in type(error).__mro__ if issubclass(cls, BaseException)]
    group = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    args = [room.pickle_value(argument) for argument in (error.args[:1] if group else error.args)]
    members = {name: room.pickle_value(value) for name, value in _members(error)}
    attributes = {name: room.pickle_value(value) for name, value in error.__dict__.items() if isinstance(name, str)}
    return Raised(classes, args, _full(members), _full(attributes), [_member(each, room) for each in group])


def _member(error: BaseException, room: _Room) -> tuple[str, Raised]:
    text = error_text(error)
    room.write(text.encode(errors="replace"))  # a group of very many finds no room
    return text, _packed(error, room)


def unpack_error(data: bytes) -> Raised:
    """Read what :func:`pack_error` wrote; raises where it is damaged."""
    raised: Raised = decode(data, Raised)
    return raised


def class_named(module: str, qualname: str) -> type[BaseException] | None:
    """The exception class, if it can be had here."""
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception:  # noqa: BLE001 - importing runs foreign code
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def rebuild_error(
    raised: Raised, cls: type[BaseException], trust: Trust, group: Sequence[BaseException] = ()
) -> BaseException:
    """Make the exception as an instance of ``cls`` without calling its ``__init__``; may raise anything.

    ``trust``: why what it holds may be loaded; ``group``: its members, made already.
    """
    args = [_loaded(argument, trust) for argument in raised.args]
    args = ["<cannot be had here>" if value is _ABSENT else value for value in args]
    if group:
        args.append(list(group))
    error = make_exception(cls, tuple(args))
    members, attributes = (
        {name: value for name, data in each.items() if (value := _loaded(data, trust)) is not _ABSENT}
        for each in (raised.members, raised.attributes)
    )
    _fill(error, tuple(args), members, attributes)
    return error


_ABSENT = object()


def _loaded(data: bytes, trust: Trust) -> Any:
    try:
        return loads(data, trust)
    except Exception:  # noqa: BLE001 - foreign code: a class may be missing here
        return _ABSENT


def _members(error: BaseException) -> Iterator[tuple[str, Any]]:
    kinds = (types.MemberDescriptorType, types.GetSetDescriptorType)
    for cls in type(error).__mro__:
        if cls is BaseExceptionGroup:  # its members are exceptions themselves
            continue
        for name, value in vars(cls).items():
            if isinstance(value, kinds) and not name.startswith("__") and name not in ("args", *_NOT_SENT):
                with contextlib.suppress(Exception):  # not set
                    if (content := value.__get__(error)) is not None:
                        yield name, content


def _full(pickles: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in pickles.items() if data}


class _Room(io.RawIOBase):
    """Takes pickles until it is full."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._pieces: list[bytes] = []

    def pickle_value(self, value: Any) -> bytes:
        """One value; empty if it cannot be pickled or finds no room."""
        left, self._pieces = self._left, []
        try:
            pickle.Pickler(self, protocol=5).dump(value)
        except Exception:  # noqa: BLE001 - foreign code
            self._left = left
            return b""
        return b"".join(self._pieces)

    def write(self, piece: Any) -> int:
        """Called by the pickler; raises when there is no room."""
        size = len(piece)
        if size > self._left:
            raise BufferError("the exception is too large")
        self._left -= size
        self._pieces.append(bytes(piece))
        return size


def reducer_for(kind: type[BaseException]) -> Any:
    """The reducer for an exception class, None if the class (or a base of it) says itself how to pickle it."""
    own = not isinstance(kind.__reduce__, types.MethodDescriptorType) or kind.__reduce_ex__ is not object.__reduce_ex__
    return None if own or kind in copyreg.dispatch_table else reduce_exception


def reduce_exception(pickler: Any, error: BaseException) -> Any:
    """Without its traceback (frames belong to their process); causes stay behind when they cannot travel."""
    kind = type(error)
    reduced: Any = error.__reduce__()
    if reduced[0] is not kind:
        return NotImplemented
    arguments = reduced[1]
    if isinstance(error, BaseExceptionGroup):  # its class may take more than Python's own part of it does
        arguments = (error.message, list(error.exceptions))
    linked = [_travels(pickler, part) for part in (error.__cause__, error.__context__)]
    state = (error.args, dict(vars(error)), *linked, error.__suppress_context__, dict(_members(error)))
    return make_exception, (kind, arguments), state, None, None, set_exception


def _travels(pickler: Any, error: BaseException | None) -> BaseException | None:
    if error is None or pickler.nested or pickler.digest_of(error) is not None:
        return error
    return None


@streams.named
def make_exception(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """As Python's own part of the class makes it (``OSError`` reads its ``errno`` from the arguments)."""
    base: type[Any] = next(part for part in kind.__mro__ if part.__module__ == "builtins")
    made: BaseException = base.__new__(kind, *arguments)
    with contextlib.suppress(TypeError):  # the class gives Python's own part of it other arguments
        base.__init__(made, *arguments)
    return made


@streams.named
def set_exception(error: BaseException, state: tuple[Any, ...]) -> None:
    """The rest, once the exception is known to the stream."""
    arguments, attributes, error.__cause__, error.__context__, error.__suppress_context__, members = state
    _fill(error, arguments, members, attributes)


def _fill(error: BaseException, args: tuple[Any, ...], members: dict[str, Any], attributes: dict[str, Any]) -> None:
    put = BaseException.__setattr__  # the class's own may refuse
    put(error, "args", args)
    for name, value in members.items():
        with contextlib.suppress(Exception):
            put(error, name, value)
    vars(error).update(attributes)


def has_group(error: BaseException | None) -> bool:
    """Tell if IPython prints ``error`` as Python itself does, since a group is among what it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, BaseExceptionGroup):
            return True
        seen.add(id(error))
        error = error.__context__
    return False
