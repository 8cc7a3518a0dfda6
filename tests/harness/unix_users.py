"""Unix users of tests: numbers without accounts. Needs root, which may become anybody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from forked import forked

ANN, BOB, SERVICE, TEAM = 61001, 61002, 61003, 61010
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become other users")


def as_user(uid: int, work: Callable[[], object], *, groups: Sequence[int] = (), umask: int = 0o077) -> int:
    """Do ``work`` in a fork as this user (and its group of the same number). 0: it came to its end."""

    def become() -> None:
        os.umask(umask)
        os.setgroups([uid, *groups])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        work()

    return forked(become)


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that everybody may enter; those of pytest are one user's."""
    folder = Path(tempfile.mkdtemp(prefix="jgr-users-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


_IN_OPEN_ROOM = """#!/bin/sh
# {python}, where other users may run it, too: what only root may enter is replaced by the little that Python needs
exec unshare --mount --propagation slave -- sh -c '
set -e
mkdir -p {aside}
for part in {parts}; do mkdir -p {aside}$part; mount --bind $part {aside}$part; done
mount -t tmpfs -o mode=755 none {closed}
for part in {parts}; do mkdir -p $part; mount --bind {aside}$part $part; done
exec {python} "$@"' sh "$@"
"""


def python_for_all(folder: Path) -> str:
    """This Python as other users may run it, or a program that makes it so in a mount namespace of its own."""
    needed = {os.path.realpath(path) for path in (sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)))}
    closed = {str(above) for path in needed for above in Path(path).parents if not above.stat().st_mode & 0o001}
    if not closed:
        return sys.executable
    top = min(closed, key=len)
    program = folder / "python"
    parts = " ".join(sorted(path for path in needed if path.startswith(top)))
    program.write_text(_IN_OPEN_ROOM.format(python=sys.executable, closed=top, parts=parts, aside=folder / "aside"))
    program.chmod(0o755)
    if subprocess.run([program, "-c", "pass"], capture_output=True, check=False).returncode:
        pytest.skip("other users cannot run this Python")
    return str(program)


_WITH_ACCOUNTS = """exec unshare --mount sh -c 'mount --bind {table} /etc/passwd && exec "$@"' sh """


def jupyter_for_all(folder: Path, python: str, accounts: Sequence[str] = ()) -> str:
    """A folder for ``PATH`` whose ``jupyter gpu`` is run by this Python.

    ``accounts``: lines that ``/etc/passwd`` has more for it, and for all that it starts; that needs root.
    """
    place, before = folder / "bin", "exec "
    place.mkdir(mode=0o755)
    if accounts:
        table = folder / "passwd"
        table.write_text("\n".join([Path("/etc/passwd").read_text().rstrip(), *accounts, ""]))
        before = _WITH_ACCOUNTS.format(table=table)
    program = place / "jupyter"
    program.write_text(f'#!/bin/sh\nshift # gpu\n{before}{python} -m jupyter_gpu_release.cli "$@"\n')
    program.chmod(0o755)
    return str(place)


_BECOME = """
import os, sys
uid = int(sys.argv[1])
os.setgroups([int(group) for group in sys.argv[2].split()])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
os.chdir(os.environ["HOME"])
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
"""


def run_python_as(
    python: str, uid: int, words: Sequence[str], home: Path, environment: Mapping[str, str], groups: Sequence[int] = ()
) -> str:
    """Output of a Python that a user runs at home; ``python``: one for all."""
    with start_python_as(python, uid, words, home, environment, groups) as process:
        said, errors = process.communicate(timeout=240)
    assert process.returncode == 0, said + errors
    return said


def start_python_as(
    python: str, uid: int, words: Sequence[str], home: Path, environment: Mapping[str, str], groups: Sequence[int] = ()
) -> subprocess.Popen[str]:
    """Like :func:`run_python_as`, for one that goes on."""
    command = [python, "-c", _BECOME, str(uid), " ".join(map(str, groups)), *words]
    own = {"PATH": os.environ["PATH"], "HOME": str(home), **environment}
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def make_home(folder: Path, uid: int) -> Path:
    """A user's folder that nobody else may enter."""
    home = folder / str(uid)
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    return home
