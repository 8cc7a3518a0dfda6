"""Where the cell runs: working directory, module path, environment, and which files it wrote there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from ..core.messages import CellPayload, FileInfo
from ..errors import OptionError
from ..storage.atomic import make_private_folder, write_atomic
from ..storage.layout import RunPaths
from . import cores
from .frames import Go, RankOrder

_MOST_FILES = 200


def enter(order: RankOrder, payload: CellPayload) -> list[str]:
    """Set environment, directory and module path of this process; returns notes for the receipt."""
    paths = RunPaths(Path(order.folder))
    os.environ.update(_rank_environment(order, paths))
    for name in payload.unset:
        os.environ.pop(name, None)
    os.environ.update(payload.env)
    notes: list[str] = []
    extra = [entry for entry in payload.sys_path if Path(entry).is_dir()]
    if is_visible(payload):
        _change_folder(payload.workdir)
    elif payload.workdir_asked:
        raise OptionError(
            f"--workdir {payload.workdir}: no such folder on the node",
            mend="name a folder on the shared filesystem, or leave the option out",
        )
    else:
        os.chdir(paths.files)
        notes.append("the notebook's folder is not visible on the node: the cell worked in its run folder")
        extra = [*_unpack_modules(payload, paths), *extra]
    sys.path[:0] = ["", *extra]
    sys.argv = [""]
    return notes


def _change_folder(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        raise OptionError(
            f"the cell cannot work in {path}: {error.strerror}", mend="name another folder with --workdir"
        ) from error


def take_gpus(gpu_ids: list[str], *, simulated: bool) -> None:
    """Let this process see the GPUs of its lease, and no others (``--env`` cannot change that)."""
    ids = ",".join(gpu_ids)
    has_device = Path("/dev/nvidiactl").exists()
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if simulated and has_device else ids
    os.environ["JUPYTER_GPU_IDS"] = ids


def limit_threads(order: RankOrder) -> None:
    """The frameworks use as many threads as ``--cpus`` says; a CPU stage (no GPU) has no more cores than it reserved.

    Processes of a gang share a node's cores evenly, also without ``--cpus``: with all cores for each they would be in
    each other's way.
    """
    if not order.cpus and order.sharers == 1:
        return
    cpus = (order.cpus or len(os.sched_getaffinity(0))) / order.sharers
    cores.use_threads(max(1, int(cpus)), quickly=not order.cpus)
    if order.cpus and order.role == "rank" and not os.environ.get("JUPYTER_GPU_IDS"):
        cores.keep_to(cpus)


def _rank_environment(order: RankOrder, paths: RunPaths) -> dict[str, str]:
    return {
        "JUPYTER_GPU_RUN": order.run,
        "GPU_RUN_DIR": str(paths.files),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }


def take_seat(go: Go, payload: CellPayload) -> None:
    """Environment that is known once the gang is complete; what the cell sets with ``--env`` stays."""
    os.environ.update({key: value for key, value in go.environment.items() if key not in payload.env})
    if go.nodes > 1:
        address = go.address or go.environment.get("MASTER_ADDR", "")  # those of rank 0's node are not told another
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            if interface := _interface_of(address):
                os.environ.setdefault(name, interface)


def _interface_of(address: str) -> str:
    """The network interface with this address: gloo goes by the host's name, which often means the loopback."""
    return next(
        (name for name, found in psutil.net_if_addrs().items() if any(each.address == address for each in found)), ""
    )


def is_visible(payload: CellPayload) -> bool:
    """Whether this node has the notebook's folder, and it is the same one (not just the same path)."""
    if not payload.workdir:
        return False
    try:
        found = os.stat(payload.workdir)
    except OSError:
        return False
    return payload.workdir_asked or payload.workdir_stamp[0] in (0, found.st_ino)


def _unpack_modules(payload: CellPayload, paths: RunPaths) -> list[str]:
    if not payload.modules:
        return []
    for name, source in payload.modules.items():
        target = (paths.code / name).resolve()
        if not target.is_relative_to(paths.code.resolve()):
            raise OptionError(f"module path {name!r} leads out of the run folder")
        make_private_folder(target.parent)
        write_atomic(target, [source], durable=False)
    return [str(paths.code)]


def written_files(opened: Iterable[str], since_s: float, run_dir: Path, here: Path) -> list[FileInfo]:
    """Files that the cell wrote: opened for writing by Python code, in ``run_dir``, or new in ``here``, its folder.

    Writes of native code are found in those two folders only. At most 200 are listed.
    """
    candidates = {Path(path) for path in opened} | {Path(p) for p in _walk(run_dir)} | _newer(here, since_s)
    found: list[FileInfo] = []
    for path in sorted(candidates):
        shown = _shown(path, here, run_dir)
        if shown and len(found) < _MOST_FILES:
            with contextlib.suppress(OSError):
                if path.is_file():
                    found.append(FileInfo(shown, path.stat().st_size))
    return found


def _shown(path: Path, here: Path, run_dir: Path) -> str:
    if path.is_relative_to(run_dir):
        return f"run_dir/{path.relative_to(run_dir)}"
    if "__pycache__" in path.parts or path.suffix == ".ipynb":  # the notebook itself is saved while it runs
        return ""
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return "" if str(path).startswith(("/proc/", "/dev/", "/sys/", "/tmp/")) else str(path)


def _walk(folder: Path) -> list[str]:
    return [os.path.join(root, name) for root, _dirs, names in os.walk(folder) for name in names][:_MOST_FILES]


def _newer(folder: Path, since_s: float) -> set[Path]:
    found: set[Path] = set()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_file() and entry.stat().st_mtime >= since_s:
                    found.add(Path(entry.path))
    return found
