"""Place where a stuck rank stands: its Python stack, written by a signal handler that needs no interpreter."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time
from time import sleep

#: one that no library uses
_SIGNAL = signal.SIGRTMIN + 7
#: it is ended anyway, and on a busy machine it may be slow to begin, and pause between two lines
_WAIT_S, _LOOK_S = 8.0, 0.3
_MOST_LINES = 40
#: frames below the cell's own
_MACHINERY = ("/jupyter_gpu_release/node/", "/IPython/core/", "/asyncio/", "<frozen runpy>")
#: threads that do nothing but this wait for work
_POOLS = ("/concurrent/futures/", "/threading.py")


def dump_on_signal(stack: int) -> None:
    """Have this process write its threads' stacks to the file ``stack`` when it is asked to."""
    faulthandler.register(_SIGNAL, file=stack, all_threads=True, chain=False)


def ask_for_stack(rank: int, stack: int) -> str:
    """Ask the process ``rank``; its stack as indented lines after a heading, or why there is none."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(rank, _SIGNAL)
    text = _read(stack)
    if not text:
        return "\n(it does not show where it stands: it is stopped, or waits in the system)"
    return "\nWhere it stood, innermost first:\n" + "\n".join(cell_frames(text))


def _read(stack: int) -> str:
    """Wait until the process has written and goes on writing no more."""
    deadline, seen = time.monotonic() + _WAIT_S, -1
    while time.monotonic() < deadline:
        size = os.fstat(stack).st_size
        if size and size == seen:
            break
        seen = size
        sleep(_LOOK_S)
    return os.pread(stack, 1 << 16, 0).decode("utf-8", "replace")


def cell_frames(text: str) -> list[str]:
    """The cell's thread first, then others; without frames of ours, of IPython and of asyncio, and idle threads."""
    shown: list[str] = []
    blocks = [block.partition("\n") for block in text.strip().split("\n\n")]
    for heading, _, rest in sorted(blocks, key=lambda block: not block[0].startswith("Current thread")):
        lines = [line for line in rest.split("\n") if line.strip() and not any(part in line for part in _MACHINERY)]
        if not all(any(part in line for part in _POOLS) for line in lines):
            shown += [*([heading] if shown else []), *lines]
    return shown[:_MOST_LINES] or text.strip().split("\n")[:_MOST_LINES]
