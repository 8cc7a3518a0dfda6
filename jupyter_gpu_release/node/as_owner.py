"""Starts a program as a user: in a process of ours, which becomes that user before anything of the program is loaded.

Root executes no file that a user chose, not even the interpreter of an environment: that would read ``.pth`` files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import msgspec

from ..errors import ClusterError
from ..protocol.config import UnixUser
from .rank.owner import become_owner


class _Start(msgspec.Struct, frozen=True):
    """``parent``: process that the program ends with. ``keep``: descriptors that it gets."""

    owner: UnixUser
    parent: int
    keep: list[int]
    command: list[str]


def command_as(owner: UnixUser, command: Sequence[str], keep: Sequence[int] = ()) -> list[str]:
    """The command by which a process of this thread starts ``command`` as this user; its program is a path."""
    start = _Start(owner, os.getpid(), list(keep), list(command))
    return [sys.executable, "-m", __name__, msgspec.json.encode(start).decode()]


def main() -> None:
    """Become the user, then be the program."""
    start = msgspec.json.decode(sys.argv[1], type=_Start)
    try:
        become_owner(start.owner, start.keep, start.parent)
        os.execv(start.command[0], start.command)
    except ClusterError as error:
        sys.exit(error.message)
    except OSError as error:
        sys.exit(f"{start.owner.name} (uid {start.owner.uid}) cannot start {start.command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
