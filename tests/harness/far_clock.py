"""A wall clock that is ahead, for the processes that are told to have it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def jump_clock(folder: Path, ahead_s: int) -> dict[str, str]:
    """Environment of processes whose clock is so far ahead; what it needs is built in ``folder``."""
    library, source = folder / "jump_clock.so", Path(__file__).with_name("jump_clock.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "JUMP_CLOCK_S": str(ahead_s)}
