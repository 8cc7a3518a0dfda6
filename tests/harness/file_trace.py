"""Files of ours that a run passes: functions that run in any process of a cluster while the trace is on.

:class:`FileTrace` puts a ``sitecustomize.py`` into a folder. Every Python that is started with the folder on its
``PYTHONPATH`` imports it and notes, while the folder's flag is set, each file of the package of which a function is
called. Functions that only run because a module is being imported do not count.
"""

from __future__ import annotations

from pathlib import Path

import jupyter_gpu_release

_PACKAGE = Path(jupyter_gpu_release.__file__).parent
_WARMUP, _CELL = "/node/rank/warmup.py", "/node/rank/cell.py"
#: functions of a pair's processes that run from its start to its end
_BEGINNINGS = {"supervise", "run_rank"}

#: forked processes go on with the profile function and the mapped flag (the number of the trace, 0: off)
_SITECUSTOMIZE = '''
import mmap, os, sys, threading
_here, _package = os.path.dirname(__file__), {package!r}
_known, _getpid = set(), os.getpid
with open(_here + "/flag", "r+b") as _file:
    _flag = mmap.mmap(_file.fileno(), 1)


def _note(frame, event, _argument):
    turn = _flag[0]
    if not turn or event != "call":
        return
    code = frame.f_code
    path = code.co_filename
    key = (turn, _getpid(), code)
    if not path.startswith(_package) or not code.co_flags & 1 or key in _known or _is_import(frame.f_back):
        return
    _known.add(key)
    with open(f"{{_here}}/seen/{{key[1]}}", "a") as file:  # one for each process: lines never mix
        fields = sys.argv[0] or "python", str(key[1]), str(os.getppid()), path, code.co_qualname
        file.write("\\t".join(fields) + "\\n")


def _is_import(frame):
    """Tell if a module's own code is what called; the program that was started with -m is none."""
    while frame is not None:
        if not frame.f_code.co_flags & 1 and frame.f_code.co_filename.startswith(_package):
            if frame.f_globals.get("__name__") != "__main__":
                return True
        frame = frame.f_back
    return False


sys.setprofile(_note)
threading.setprofile(_note)
'''


class FileTrace:
    """Traces what is started with ``folder`` on its ``PYTHONPATH``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._flag, self._seen = folder / "flag", folder / "seen"
        self._seen.mkdir(parents=True)
        self._flag.write_bytes(b"\0")
        self._turn = 0
        (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(package=f"{_PACKAGE}/"))

    def begin(self) -> None:
        """Note what is called from now on."""
        for file in self._seen.iterdir():
            file.unlink()
        self._turn += 1
        self._set(self._turn)

    def end(self) -> dict[str, set[str]]:
        """File → programs that called a function of it, since :meth:`begin`."""
        self._set(0)
        lines = [line for file in self._seen.iterdir() for line in file.read_text().splitlines(keepends=True)]
        calls = [line[:-1].split("\t") for line in lines if line.endswith("\n")]  # one may just be written
        # a pair that starts or warms up meanwhile and gets no cell is for a later one
        others = {pid for _, pid, _, path, name in calls if path.endswith(_WARMUP) or name in _BEGINNINGS}
        others -= {of_pair for _, *pair, path, _ in calls if path.endswith(_CELL) for of_pair in pair}
        found: dict[str, set[str]] = {}
        for program, pid, _, path, _ in calls:
            if pid not in others:
                found.setdefault(str(Path(path).relative_to(_PACKAGE)), set()).add(Path(program).name)
        return found

    def _set(self, value: int) -> None:
        with self._flag.open("r+b") as file:  # in place: the processes have mapped it
            file.write(bytes([value]))
