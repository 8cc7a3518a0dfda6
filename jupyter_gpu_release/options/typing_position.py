"""The place at which somebody types in a magic's line: an option's name, its value, or the statement behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .definitions import MORE_NAMES, OPTION, OPTIONS, WORD, Option

#: metavars of lists: what stands behind the last comma is being typed
_LISTS = frozenset({"NAMES", "KEYS"})


@dataclass(frozen=True)
class Cursor:
    """A place in a line.

    ``typed``: what a completion replaces. Without ``option`` and ``statement`` an option's name is typed there.
    """

    typed: str
    #: whose value is being typed
    option: Option | None = None
    #: what stands behind the options: the code of ``%gpu_train``
    statement: str = ""
    #: options before it
    given: tuple[str, ...] = ()
    #: values before it in the same list
    listed: tuple[str, ...] = ()


def find_cursor(head: str, known: Mapping[str, Option] = OPTIONS) -> Cursor:
    """Read the options in ``head``, the line as far as the cursor; takes whatever stands there, also what is wrong."""
    given: list[str] = []
    at = 0
    while match := OPTION.match(head, at):
        if match.end() == len(head) and not match[2]:
            return Cursor(match[0].lstrip(), given=tuple(given))
        option = _known(match[1], known)
        at = match.end()
        if option is None:
            continue
        given.append(option.name)
        if match[2] or not option.is_flag:
            end = _end_of_value(option, head, at)
            if end is None:
                return _in_value(option, head[at:].lstrip(), tuple(given))
            at = end
    rest = head[at:].lstrip()
    word = re.search(r"\S*$", rest)
    typed = word[0] if word is not None else ""
    is_option = rest in ("", "-", "--")
    return Cursor(typed, statement="" if is_option else rest, given=tuple(given))


def find_setting(head: str) -> Cursor:
    """The same for ``%gpu_config``: ``gpus=2 memory=8GiB``."""
    *before, word = re.split(r"\s+", head)
    given = tuple(option.name for each in before if (option := _known(each.partition("=")[0])) is not None)
    name, equals, value = word.partition("=")
    option = _known(name)
    if not equals:
        return Cursor(word, given=given)
    return Cursor(value, statement=word) if option is None else _in_value(option, value, given)


def _known(name: str, known: Mapping[str, Option] = OPTIONS) -> Option | None:
    return known.get(name.replace("_", "-").lower())


def _end_of_value(option: Option, head: str, at: int) -> int | None:
    """The end of a value that is complete: something stands behind it. None: the cursor is in it."""
    start = at + len(head[at:]) - len(head[at:].lstrip())
    match = WORD.match(head, start)
    if match is None:
        return None
    if match[0].startswith("--"):
        return start  # its value is missing, and another option begins
    end = match.end()
    while option.metavar in _LISTS and (more := MORE_NAMES.match(head, end)):
        end = more.end()
    is_open = end == len(head) or (option.metavar in _LISTS and not head[end:].strip(" ,\t") and "," in head[end - 1 :])
    return None if is_open else end


def _in_value(option: Option, text: str, given: tuple[str, ...]) -> Cursor:
    if option.metavar not in _LISTS:
        return Cursor(text, option, given=given)
    *listed, typed = re.split(r"\s*,\s*", text)
    names = tuple(name.lstrip("+") for name in listed)
    return Cursor(typed.lstrip("+"), option, given=given, listed=names)
