"""Compiles an environment's modules, each version of a file once per node: environments share them by hard links.

Bytecode is not checked against its source: an environment is never written to, and what wheels bring is removed first.
It names files by their path below the folder of packages, so it is the same in each environment; Python puts the whole
path in when it loads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from .installer import run_program

#: run in the Python below the environment with the folder of packages; reads names of files, writes those compiled
_COMPILE = """
import py_compile, sys
root = sys.argv[1]
for name in sys.stdin.read().split("\\0"):
    try:
        py_compile.compile(root + "/" + name, dfile=name, doraise=True, quiet=2,
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        print(name, end="\\0")
    except (py_compile.PyCompileError, OSError, ValueError, RecursionError, SyntaxError):
        pass  # templates and code for other Pythons: it is compiled when somebody imports it, if ever
"""
_AT_ONCE = 500
#: larger modules are compiled when somebody imports them
_LARGEST_BYTES = 4 << 20


async def compile_modules(python: str, packages: Path, cache: Path) -> None:
    """Leave bytecode beside every module below ``packages``; ``cache`` is a folder of the same filesystem.

    ``python``: an interpreter of the same version that no package has a part in.
    """
    await asyncio.to_thread(cache.mkdir, parents=True, exist_ok=True)
    waiting = await asyncio.to_thread(_take_known, packages, cache)
    names = list(waiting)
    for start in range(0, len(names), _AT_ONCE):
        compiled = await _compile(python, packages, names[start : start + _AT_ONCE])
        await asyncio.to_thread(_keep, packages, {name: waiting[name] for name in compiled if name in waiting})


def remove_unused(cache: Path) -> None:
    """Remove what no environment shares with the cache any more."""
    for path in cache.glob("*"):
        with contextlib.suppress(OSError):  # somebody else does
            if path.stat().st_nlink == 1:
                path.unlink()


def _take_known(packages: Path, cache: Path) -> dict[str, Path]:
    """Link the bytecode that is known; return the other modules, and where theirs will be kept."""
    waiting = {}
    for folder in list(packages.rglob("__pycache__")):
        shutil.rmtree(folder)
    for name in _modules(packages):
        source = packages / name
        if source.stat().st_size > _LARGEST_BYTES:
            continue
        key = blake3(name.encode() + b"\0" + source.read_bytes()).hexdigest()
        kept = cache / f"{sys.implementation.cache_tag}-{key}.pyc"
        target = Path(importlib.util.cache_from_source(str(source)))
        target.parent.mkdir(exist_ok=True)
        try:
            os.link(kept, target)
        except OSError:  # it is not known, or its filesystem makes no links (or no more of it)
            waiting[name] = kept
    return waiting


def _modules(packages: Path) -> Iterator[str]:
    for root, folders, names in os.walk(packages):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith(".py"):
                yield os.path.relpath(os.path.join(root, name), packages)


async def _compile(python: str, packages: Path, names: list[str]) -> list[str]:
    """Names of those that were compiled."""
    command = [python, "-I", "-S", "-W", "ignore", "-c", _COMPILE, str(packages)]
    ended = await run_program(command, Path("/"), os.environ, said="\0".join(names).encode())
    return ended.output.split("\0")[:-1]


def _keep(packages: Path, compiled: dict[str, Path]) -> None:
    for name, kept in compiled.items():
        made = Path(importlib.util.cache_from_source(str(packages / name)))
        with contextlib.suppress(OSError):  # its filesystem makes no links
            temp = kept.with_name(f".{kept.name}.{secrets.token_hex(4)}")
            os.link(made, temp)
            os.replace(temp, kept)
