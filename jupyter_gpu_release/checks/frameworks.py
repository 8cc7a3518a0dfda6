"""Frameworks against the NVIDIA driver: the CUDA that they were built for; none of them is imported."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from .finding import Finding, broken, ok


@dataclass(frozen=True)
class Driver:
    """The driver of one machine. ``cuda``: the highest CUDA version that it supports, as (major, minor)."""

    has_gpus: bool
    version: str = ""
    cuda: tuple[int, int] = (0, 0)


def installed_frameworks() -> Iterator[tuple[str, tuple[int, int] | None]]:
    """Installed frameworks and the CUDA version of their build (None: a CPU build)."""
    spec = util.find_spec("torch")
    if spec is not None and spec.origin:
        facts = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
        yield f"torch {facts.get('__version__')}", cuda_version(facts.get("cuda") or "")
    for distribution in metadata.distributions():
        match = re.fullmatch(r"(jax-cuda|cupy-cuda)(\d+)x?(?:-plugin)?", (distribution.metadata["Name"] or "").lower())
        if match:
            yield f"{match[1].split('-')[0]} {distribution.version}", (int(match[2]), 0)


def cuda_version(text: str) -> tuple[int, int] | None:
    """``12.8`` as two numbers; None for anything else."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def dotted(version: tuple[int, int] | None) -> str:
    """``12.8``; empty for None."""
    return "" if version is None else ".".join(map(str, version))


def compare_cuda(driver: Driver, framework: str, cuda: tuple[int, int] | None, *, where: str = "") -> Finding:
    """Tell if a framework built for ``cuda`` (None: a CPU build) can work with the machine's driver."""
    at = f"{where}: " if where else ""
    if cuda is None:
        if not driver.has_gpus:
            return ok("cuda", f"{at}{framework} is a CPU build, and there is no GPU here", where=where)
        said = f"{at}{framework} is a CPU build: its cells cannot use the GPUs"
        return broken("cuda", said, "install its CUDA build", where=where)
    built = f"{at}{framework} is built for CUDA {cuda[0]}" + (f".{cuda[1]}" if cuda[1] else "")
    if not driver.has_gpus:
        return ok("cuda", f"{built}; there is no GPU here", where=where)
    # since CUDA 11 a driver runs every minor version of its own major version
    if driver.cuda[0] < cuda[0]:
        mend = f"upgrade the NVIDIA driver, or install {framework.split()[0]} for CUDA {driver.cuda[0]}"
        said = f"{built}, the driver {driver.version} supports up to {dotted(driver.cuda)}"
        return broken("cuda", said, mend, where=where)
    return ok("cuda", f"{built}, the driver supports {dotted(driver.cuda)}", where=where)
