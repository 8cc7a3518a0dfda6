"""A large array into the store and out of it."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch

from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.serialization import codec, rebuild
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.digests import digest_of
from jupyter_gpu_release.store.graph_file import open_graph, write_graph
from jupyter_gpu_release.store.layout import RunPaths, blobs_folder
from jupyter_gpu_release.store.run_folders import create_run_folder
from jupyter_gpu_release.unpickling import Trust

from ..report import Report

_PAGE = 4096


def timed_ms(call: Callable[[], Any]) -> float:
    """Milliseconds of one call; garbage is collected before, not within."""
    gc.collect()
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


@contextmanager
def folder() -> Iterator[Path]:
    """On the disk that the store would be on."""
    made = Path(tempfile.mkdtemp(prefix="jgr-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def put_in(store: Path, values: dict[str, Any]) -> tuple[RunPaths, str]:
    """As a cell's inputs go: pickled, large buffers to blobs, durable."""
    paths = create_run_folder(store, new_run_id())
    dump = codec.dump(values, rebuild.NamespaceInfo({}, at_home=True))
    return paths, write_graph(paths.inputs, dump.stream, dump.buffers, name_durable=False)


def take_out(path: Path, digest: str) -> dict[str, Any]:
    """As results are bound in the notebook."""
    opened = open_graph(path, digest)
    return codec.load(opened.stream, opened.buffers, rebuild.NamespaceInfo({}, at_home=True), trust=Trust.OWN).values


def saved(path: Path, write: Callable[[Any], Any]) -> None:
    """A durable file, as ours are."""
    with path.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def large_in(report: Report, *, quick: bool) -> None:
    """1 GiB in: new content, the same again, and everybody else's way."""
    rounds, size = (2, 1 << 27) if quick else (6, 1 << 30)
    array = np.random.default_rng(0).integers(0, 255, size, dtype="u1").view("f8")
    found: dict[str, list[float]] = {}

    def note(name: str, call: Callable[[], Any]) -> None:
        found.setdefault(name, []).append(timed_ms(call))

    written = 0
    for number in range(rounds):
        with folder() as here:
            array[number * 1000] += 1.0  # another content each time
            note("numpy_save", lambda: saved(here / "a.npy", lambda file: np.save(file, array)))
            note("in_first_1gib", lambda: put_in(here, {"x": array}))
            before = _blob_facts(here)
            note("digest_1gib", lambda: digest_of(memoryview(array).cast("B")))
            note("in_again_1gib", lambda: put_in(here, {"x": array}))
            written += _blob_facts(here) != before
            note("torch_save", lambda: saved(here / "a.pt", lambda file: torch.save(torch.from_numpy(array), file)))
            note("cloudpickle_dump", lambda: saved(here / "a.pkl", lambda file: cloudpickle.dump(array, file)))
    for name, values in found.items():
        report.add(name, values[1:])  # warm ones
    report.add("in_again_blobs_written", [float(written)], unit="blobs")
    _ratios(report, "in_first", "in_first_1gib", numpy="numpy_save", torch="torch_save", cloudpickle="cloudpickle_dump")
    _ratios(report, "in_again", "in_again_1gib", digest="digest_1gib")


def _blob_facts(store: Path) -> list[tuple[str, int]]:
    root = blobs_folder(store)
    return sorted(
        (blob.digest, os.stat(BlobStore(root).path_of(blob.digest)).st_ino) for blob in BlobStore(root).list_blobs()
    )


def large_out(report: Report, *, quick: bool) -> None:
    """1 GiB out, warm: opened, loaded, every page touched."""
    rounds, size = (2, 1 << 27) if quick else (6, 1 << 30)
    with folder() as here:
        paths, digest = _write_everywhere(here, np.random.default_rng(1).integers(0, 255, size, dtype="u1"))
        found: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, load in {
                "numpy_load_mmap": lambda: np.load(here / "a.npy", mmap_mode="c"),
                "out_first_use_1gib": lambda: take_out(paths.inputs, digest)["x"],
                "torch_load": lambda: torch.load(here / "a.pt").numpy(),
                "torch_load_mmap": lambda: torch.load(here / "a.pt", mmap=True).numpy(),
                "cloudpickle_load": lambda: pickle.loads((here / "a.pkl").read_bytes()),
            }.items():
                found.setdefault(name, []).append(timed_ms(lambda load=load: int(load()[::_PAGE].sum())))  # type: ignore[misc]
    for name, values in found.items():
        report.add(name, values[1:])
    theirs = {
        "numpy": "numpy_load_mmap",
        "torch": "torch_load",
        "torch_mmap": "torch_load_mmap",
        "cloudpickle": "cloudpickle_load",
    }
    _ratios(report, "out", "out_first_use_1gib", **theirs)


def _write_everywhere(here: Path, array: Any) -> tuple[RunPaths, str]:
    np.save(here / "a.npy", array)
    torch.save(torch.from_numpy(array), here / "a.pt")
    saved(here / "a.pkl", lambda file: cloudpickle.dump(array, file))
    return put_in(here, {"x": array})


def _ratios(report: Report, name: str, ours: str, **theirs: str) -> None:
    for whose, metric in theirs.items():
        report.ratios[f"{name}_{whose}"] = report.results[metric]["median"] / report.results[ours]["median"]
