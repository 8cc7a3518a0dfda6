"""Settings of logging: levels and their names, what is disabled, and handlers that write to standard output or error.

Only what differs from a fresh Python is read; such a setting is None.
"""

from __future__ import annotations

import copyreg
import functools
import io
import logging
import operator
import os
import sys
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from ... import streams
from ..adapter import Staying
from ..users_code import is_file_of_the_user

_DISABLE = "disable"
_CAPTURE = "captureWarnings"
_LOGGER = "logger "
_LEVEL = "level "
_USUAL_LEVELS = {0: "NOTSET", 10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR", 50: "CRITICAL"}
#: a handler's stream, level and formatter (its text, the dates', the style and the defaults), as they travel
Handler = tuple[str, int, tuple[Any, ...] | None]
#: first parts of the names of loggers that belong to a process
_OF_THE_PROCESS = frozenset(
    {
        "IPKernelApp",
        "IPython",
        "asyncio",
        "c10d-NullHandler-default",
        "comm",
        "concurrent",
        "grpc",
        "ipykernel",
        "jupyter",
        "jupyter_client",
        "jupyter_gpu_release",
        "jupyter_server",
        "parso",
        "prompt_toolkit",
        "pytest",
        "ray",
        "strobelight_compile_time_profiler",
        "strobelight_function_profiler",
        "tornado",
        "traitlets",
        "websockets",
        "zmq",
    }
)
_STREAMS = ("stderr", "stdout")
_NOT_IN = "what GPU cells log is not in the notebook's"
_STYLES = {logging.PercentStyle: "%", logging.StrFormatStyle: "{", logging.StringTemplateStyle: "$"}


def read(_module: Any) -> dict[str, Any]:
    """The settings, by the names of what they are set for."""
    found: dict[str, Any] = {_DISABLE: logging.root.manager.disable} if logging.root.manager.disable else {}
    if logging._warnings_showwarning is not None:  # type: ignore[attr-defined]
        found[_CAPTURE] = True
    if logging._levelToName != _USUAL_LEVELS:
        named = logging._levelToName.items() - _USUAL_LEVELS.items()
        found |= {f"{_LEVEL}{number}": name for number, name in sorted(named)}
    found |= _watch.found if _watch is not None else {}
    for logger in _loggers():
        state = _state(logger)
        if state != _usual(logger):
            found[f"{_LOGGER}{logger.name}"] = state
        else:
            found.pop(f"{_LOGGER}{logger.name}", None)
        if (logger.handlers or logger.filters) and not _is_of_library(logger):  # an import may have added them
            found |= {f"{_words(thing)} of {logger.name}": Staying(thing) for thing in _staying(logger)}
    return found


def write(_module: Any, name: str, value: Any) -> None:
    """Set one of them."""
    if name == _DISABLE:
        logging.disable(value or 0)
    elif name == _CAPTURE:
        logging.captureWarnings(bool(value))
    elif name.startswith(_LEVEL):
        number = int(name.removeprefix(_LEVEL))
        logging.addLevelName(number, value or _USUAL_LEVELS.get(number, f"Level {number}"))
    elif name.startswith(_LOGGER):
        logger = logging.getLogger(name.removeprefix(_LOGGER))
        _set(logger, *(value or _usual(logger)))


def what_stays() -> Iterator[str]:
    """Sentences on handlers of this process that no other has."""
    for logger in _loggers():
        for handler in logger.handlers:
            if isinstance(handler, logging.FileHandler):
                if handler.baseFilename != os.devnull:
                    yield f"{_NOT_IN} log file `{os.path.basename(handler.baseFilename)}`"
            elif not _is_of_library(logger) and _is_of_a_cell(handler) and handler in _staying(logger):
                yield f"{_NOT_IN} {type(handler).__name__} of {logger.name}"


def _is_of_a_cell(handler: logging.Handler) -> bool:
    """One of a library's class may be there because that was imported, and so in each process: if no cell names it."""
    if type(handler).__module__ in ("logging", "logging.handlers", "__main__"):
        return True
    cells = vars(sys.modules["__main__"]).get("_ih", ())
    return any(type(handler).__name__ in cell for cell in cells)


def package_of(name: str) -> str:
    """The package that may set this logger up, by its name; empty: none does."""
    logger = name.removeprefix(_LOGGER) if name.startswith(_LOGGER) else "root"
    return "" if logger == "root" else logger.partition(".")[0]


def _loggers() -> Iterator[logging.Logger]:
    yield logging.root
    known = logging.root.manager.loggerDict
    for logger in _that_may_be_set(known) if _watch is None else list(_watch.set_since.values()):
        if logger.name.partition(".")[0] in _OF_THE_PROCESS:
            continue
        if known.get(logger.name) is logger:  # not one that somebody made for itself
            yield logger
    if any(map(_is_of_somebody, map(operator.call, logging._handlerList))):  # type: ignore[attr-defined]
        loggers = [each for each in list(known.values()) if isinstance(each, logging.Logger) and _is_of_library(each)]
        yield from (each for each in loggers if any(map(_is_of_somebody, each.handlers)))


def _is_of_somebody(handler: Any) -> bool:
    """Tell if a handler counts that a library's logger has: somebody has added it."""
    return handler is not None and (_is_of_notebook(handler) or isinstance(handler, logging.FileHandler))


def _that_may_be_set(known: Mapping[str, object]) -> list[logging.Logger]:
    """Those that are not as they were made; each cell looks at some hundreds."""
    return [
        logger
        for logger in list(known.values())
        if isinstance(logger, logging.Logger)
        and (logger.level or logger.disabled or not logger.propagate or logger.filters or _acting(logger))
    ]


def _acting(logger: logging.Logger) -> list[logging.Handler]:
    """Handlers that do something: many a library has one that does not."""
    return [each for each in logger.handlers if type(each) is not logging.NullHandler]


class _Watch:
    """Libraries have some hundred loggers: in a process that is forked from another each look writes to their pages.

    So they are looked at once, before; after that only those that were set since, and all that are no library's.
    """

    def __init__(self) -> None:
        #: by their ids
        self.set_since: weakref.WeakValueDictionary[int, logging.Logger] = weakref.WeakValueDictionary()
        #: of the other loggers
        self.found: dict[str, Any] = {}
        #: to which handlers of libraries write that were imported before the rank had its own
        self.streams = [(name, getattr(sys, name)) for name in _STREAMS]
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if not isinstance(logger, logging.Logger) or name.partition(".")[0] in _OF_THE_PROCESS:
                continue
            if not _is_of_library(logger) or _acting(logger):
                self.set_since[id(logger)] = logger
            elif (state := _state(logger)) != _usual(logger):
                self.found[f"{_LOGGER}{name}"] = state

    def note_logger(self, logger: logging.Logger) -> None:
        """It is set, or new."""
        if logger is not logging.root:
            self.set_since[id(logger)] = logger


_watch: _Watch | None = None


def watch_loggers() -> None:
    """Note from now on which loggers are set."""
    global _watch
    if _watch is not None:
        return
    _watch = noted = _Watch()

    def set_and_note(logger: logging.Logger, name: str, value: Any) -> None:
        object.__setattr__(logger, name, value)
        if name in ("level", "disabled", "propagate", "handlers"):
            noted.note_logger(logger)

    add = logging.Logger.addHandler

    @functools.wraps(add)
    def add_and_note(logger: logging.Logger, hdlr: logging.Handler) -> None:
        add(logger, hdlr)
        noted.note_logger(logger)

    logging.Logger.__setattr__ = set_and_note  # type: ignore[assignment, method-assign]
    logging.Logger.addHandler = add_and_note  # type: ignore[assignment, method-assign]


def _usual(logger: logging.Logger) -> tuple[Any, ...]:
    return (logging.WARNING if logger is logging.root else logging.NOTSET, False, True, ())


def _state(logger: logging.Logger) -> tuple[Any, ...]:
    """As a library sets up its loggers itself when it is imported, and perhaps the notebook since."""
    handlers = _handlers(logger) if logger.handlers else ()
    state = (logger.level, logger.disabled, logger.propagate, handlers)
    return state if handlers else _same_state(*state)


@functools.lru_cache(256)
def _same_state(*state: Any) -> tuple[Any, ...]:
    """The same object each time: it is packed once."""
    return state


def _is_of_library(logger: logging.Logger) -> bool:
    """Tell if it has the name of a module, unless that is the notebook's own."""
    top = logger.name.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None) or "<frozen"
    return top in sys.modules and top != "__main__" and not is_file_of_the_user(file)


def _set(logger: logging.Logger, level: int, disabled: bool, propagate: bool, handlers: tuple[Handler, ...]) -> None:
    if logger.level != level:  # setting it looks at all loggers
        logger.setLevel(level)
    logger.disabled = disabled
    logger.propagate = propagate
    if _handlers(logger) != handlers:
        for handler in [handler for handler in logger.handlers if _packed(handler) is not None]:
            logger.removeHandler(handler)
        for packed in handlers:
            logger.addHandler(_built(*packed))


def _handlers(logger: logging.Logger) -> tuple[Handler, ...]:
    return tuple(packed for handler in logger.handlers if (packed := _packed(handler)) is not None)


def _packed(handler: Any) -> Handler | None:
    """None: it is not one that can be built anew."""
    if type(handler) is not logging.StreamHandler or handler.filters:
        return None
    streams = [*((name, getattr(sys, name)) for name in _STREAMS), *(_watch.streams if _watch is not None else ())]
    name = next((name for name, stream in streams if handler.stream is stream), "")
    formatter = handler.formatter
    if formatter is None:
        return (name, handler.level, None) if name else None
    style = _STYLES.get(type(formatter._style))
    if not name or type(formatter) is not logging.Formatter or style is None:
        return None
    defaults = getattr(formatter._style, "_defaults", None)
    return (name, handler.level, (formatter._fmt, formatter.datefmt, style, defaults))


def _built(stream: str, level: int, written: tuple[Any, ...] | None) -> logging.Handler:
    handler = logging.StreamHandler(getattr(sys, stream))
    handler.setLevel(level)
    if written is not None:
        text, dates, style, defaults = written
        handler.setFormatter(logging.Formatter(text, dates, style, validate=False, defaults=defaults))
    return handler


def _staying(logger: logging.Logger) -> list[Any]:
    things = [*(each for each in _acting(logger) if _packed(each) is None), *logger.filters]
    return [each for each in things if not (_is_of_notebook(each) or _is_own(logger, each))]


def _is_own(logger: logging.Logger, thing: Any) -> bool:
    """Tell if it, or what formats for it, is made of a class of the logger's library, which sets it up itself."""
    tops = [type(part).__module__.partition(".")[0] for part in (thing, getattr(thing, "formatter", None))]
    return _is_of_library(logger) and logger.name.partition(".")[0] in tops


# ------------------------------------------------------------- handlers and filters that the notebook has written
def holds_records(kind: type) -> bool:
    """Tell if it is a class of handlers that only keep what is logged."""
    return kind.__module__ == "logging.handlers" and kind.__name__ in ("BufferingHandler", "MemoryHandler")


def _is_of_notebook(thing: Any) -> bool:
    if holds_records(type(thing)):
        target = getattr(thing, "target", None)
        return target is None or _packed(target) is not None or _is_of_notebook(target)
    if type(thing) is logging.StreamHandler:
        thing = thing.stream if _packed(thing) is None else None
    if type(thing) is io.StringIO:
        return True
    made_of = thing if isinstance(thing, types.FunctionType) else type(thing)
    return made_of.__module__ == "__main__" and not isinstance(thing, logging.FileHandler)


class _Adding(type):
    """Attributes of its class are handlers and filters of loggers; those that are set stand in the place of others."""

    def __setattr__(cls, _words: str, value: tuple[str, list[Any], list[Any]]) -> None:
        name, things, _looks = value
        _told_of.add(name)
        logger = logging.getLogger(name)
        has = _of_notebook(logger)
        if has == things:  # others may stand between them
            return
        for thing in has:
            logger.removeHandler(thing) if isinstance(thing, logging.Handler) else logger.removeFilter(thing)
        for thing in things:
            logger.addHandler(thing) if isinstance(thing, logging.Handler) else logger.addFilter(thing)


class ToldLogging(metaclass=_Adding):
    """Handlers and filters of the notebook's classes, functions that filter, and the notebook's other handlers.

    Those that write to standard output or error are built anew where only settings travel: these are the objects
    themselves, which names may hold, too.
    """

    __module__ = streams.__name__


#: loggers that have, or had, such things
_told_of: set[str] = set()


def told() -> Iterator[tuple[type, str, Any]]:
    """Those that loggers have, each time with the logger's name."""
    for logger in dict.fromkeys([*_loggers(), *map(logging.getLogger, _told_of)]):
        if (things := _of_notebook(logger)) or logger.name in _told_of:
            _told_of.add(logger.name)
            words = f"handlers and filters of logger {logger.name}".replace(".", "/")  # it is no path
            yield ToldLogging, words, (logger.name, things, list(map(_packed, things)))


def _of_notebook(logger: logging.Logger) -> list[Any]:
    is_own = not _is_of_library(logger)
    return [
        each
        for each in (*logger.handlers, *logger.filters)
        if _is_of_notebook(each) or (is_own and _packed(each) is not None)
    ]


def reduce_handler(_pickler: Any, handler: logging.Handler) -> Any:
    """Without its lock."""
    state = {name: value for name, value in vars(handler).items() if name != "lock"}
    return copyreg.__newobj__, (type(handler),), state, None, None, set_handler  # type: ignore[attr-defined]


@streams.named
def set_handler(handler: logging.Handler, state: dict[str, Any]) -> None:
    """Fill a handler; its lock is new."""
    vars(handler).update(state)
    handler.createLock()


def _words(thing: Any) -> str:
    path = getattr(thing, "baseFilename", "")
    return f"{type(thing).__name__}{f' ({path})' if path else ''}"
