"""A run on a store, and what it looks like exported."""

from __future__ import annotations

import io
from pathlib import Path

from jupyter_gpu_release.store.bundle import BundleHead, BundleReader, write_bundle
from jupyter_gpu_release.store.graph_file import write_graph
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, write_manifest

RUN = "20260101-000000-00000001"
SECRET = "the token"
MIB = 1 << 20


def make_run(store: Path, **facts: object) -> tuple[RunPaths, str]:
    paths = create_run_folder(store, RUN)
    digest = write_graph(paths.values, b"stream", [b"a" * MIB, b"b" * (3 * MIB), b"small"], durable=False)
    write_graph(paths.inputs, b"in", [b"a" * MIB], durable=False)
    paths.events.write_bytes(b"events")
    (paths.files / "deep").mkdir()
    (paths.files / "deep" / "model é.bin").write_bytes(b"m" * 70_000)
    (paths.files / "empty").touch()
    manifest = {"run": RUN, "state": "succeeded", "outcome": {"values": {"file": "values.graph", "digest": digest}}}
    write_manifest(paths, manifest | facts, durable=False)
    return paths, digest


def export(store: Path, target: Path) -> BundleHead:
    return write_bundle(store, RUN, target, exported_by="ann@here", secret=SECRET)


def read(path: Path) -> BundleReader:
    return BundleReader(io.BytesIO(path.read_bytes()), path.name)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
