"""A stand-in for NVIDIA's ``cuda-checkpoint`` program."""

from __future__ import annotations

from pathlib import Path

#: as much of cuda-checkpoint as is asked; a file per process is its state, one named full is a device without room
_PROGRAM = """#!/bin/sh
folder={folder}
[ "$1" = "--help" ] && {{ echo "Usage: --toggle --pid N | --get-state"; exit 0; }}
while [ $# -gt 0 ]; do
  case "$1" in --pid) pid=$2; shift;; --toggle) verb=toggle;; --get-state) verb=state;; esac
  shift
done
state=running; [ -e "$folder/$pid" ] && state=checkpointed
[ $verb = state ] && {{ echo $state; exit 0; }}
[ "$pid" = 13 ] && {{ echo "process is not using CUDA" >&2; exit 1; }}
if [ $state = running ]; then touch "$folder/$pid"; elif [ -e "$folder/full" ]; then echo "OS call failed" >&2; exit 1;
else rm "$folder/$pid"; fi
"""


def stand_in_program(folder: Path) -> Path:
    """Put it into ``folder``, where it also keeps its state; 13 does not use CUDA."""
    program = folder / "cuda-checkpoint"
    program.write_text(_PROGRAM.format(folder=folder))
    program.chmod(0o700)
    return program
