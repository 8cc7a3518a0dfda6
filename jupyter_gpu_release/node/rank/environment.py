"""Environment of a cell: directory, path, variables, threads, cores, and the front end that libraries ask for.

pandas, rich, tqdm, jax, transformers and ipywidgets look at the shell's class, its ``kernel``, its configuration, the
environment and ``sys.stdout.isatty()``; some of them once, while they are imported.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import psutil
from traitlets.config import Config

from ...adapters.registry import loaded_adapters
from ...errors import OptionError
from ...host import process_control
from ...protocol.cell import CellPayload, FrontEnd
from ...store.files import make_store_folder, write_atomic
from ...store.layout import RunPaths
from ..ipc.frames import Go, RankOrder

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_MAX_THREADS")
#: names that this process holds for its cores, until it and all that it forked are gone
_held: list[socket.socket] = []
_MODULE = "ipykernel.zmqshell"
_APPLICATION = "IPKernelApp"


def set_thread_count(count: int, *, quickly: bool = False) -> None:
    """Have frameworks, here and in processes that the cell starts, use this many threads.

    ``quickly``: not those libraries of numpy and scipy that are loaded already, which takes 25 ms.
    """
    for name in _THREAD_VARIABLES:
        os.environ.setdefault(name, str(count))
    for adapter in loaded_adapters():
        adapter.set_thread_count(count)
    if "threadpoolctl" in sys.modules and not quickly:  # what is loaded does not read the environment again
        with contextlib.suppress(Exception):
            sys.modules["threadpoolctl"].threadpool_limits(count)


def confine_to_cores(cpus: float) -> set[int]:
    """Confine this process to as many cores as were reserved for it, to its own while there are enough.

    A core is taken by a name that only one process of the cluster's node can have; the system gives it back with the
    last process that has it.
    """
    cores = sorted(os.sched_getaffinity(0))
    wanted = min(len(cores), math.ceil(cpus))
    taken = [core for core in cores if len(_held) < wanted and _take(core)]
    shared = [core for core in cores if core not in taken][: wanted - len(taken)]
    chosen = {*taken, *shared}
    os.sched_setaffinity(0, chosen)
    return chosen


def _take(core: int) -> bool:
    cluster = os.environ.get(process_control.CLUSTER_MARKER, "")
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0jgr-core-{cluster}-{core}")
    except OSError:
        name.close()
        return False
    _held.append(name)
    return True


def set_cell_environment(order: RankOrder, payload: CellPayload) -> list[str]:
    """Set environment, directory and module path of this process; returns notes for the receipt."""
    paths = RunPaths(Path(order.folder))
    os.environ.update(_rank_environment(order, paths))
    for name in payload.unset:
        os.environ.pop(name, None)
    os.environ.update(payload.env)
    notes: list[str] = []
    first = len(payload.sys_path) - payload.sys_path_behind
    path, behind = (list(filter(_is_folder, part)) for part in (payload.sys_path[:first], payload.sys_path[first:]))
    if "" not in (*path, *behind):
        path.insert(0, "")
    if payload.workdir_deleted:
        _leave_all_folders()
        notes.append("the notebook's folder was deleted: relative paths lead nowhere, as in a plain cell")
    elif has_notebook_folder(payload):
        _change_folder(payload.workdir)
    elif payload.workdir_asked:
        raise OptionError(
            f"--workdir {payload.workdir}: no such folder on the node",
            hint="name a folder on the shared filesystem, or leave the option out",
        )
    else:
        os.chdir(paths.files)
        notes.append(f"{_why_not_there(payload.workdir)}: the cell worked in its run folder")
        part = path if "" in path else behind
        next_to_it = part.index("") + 1
        part[next_to_it:next_to_it] = _unpack_modules(payload, paths)
    sys.path[:] = [*path, *sys.path, *behind]
    sys.argv = [""]
    return notes


def _is_folder(entry: str) -> bool:
    return not entry or Path(entry).is_dir()


def _leave_all_folders() -> None:
    """Be in a folder that is deleted, too."""
    folder = tempfile.mkdtemp(prefix="jgr-deleted-")
    os.chdir(folder)
    os.rmdir(folder)


def _change_folder(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        raise OptionError(
            f"the cell cannot work in {path}: {error.strerror}", hint="name another folder with --workdir"
        ) from error


def set_visible_gpus(gpu_ids: list[str], *, simulated: bool) -> None:
    """Let this process see the GPUs of its lease, and no others (``--env`` cannot change that)."""
    ids = ",".join(gpu_ids)
    has_device = Path("/dev/nvidiactl").exists()
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if simulated and has_device else ids
    # CUDA numbers GPUs of several types by their speed: another one would be meant than the driver watches
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.environ["JUPYTER_GPU_IDS"] = ids


def limit_threads(order: RankOrder) -> bool:
    """Have frameworks use as many threads as ``--cpus`` says; False: as many as they like.

    A CPU stage (no GPU) has no more cores than it reserved. Processes of a gang share a node's cores evenly, also
    without ``--cpus``: with all cores for each they would be in each other's way.
    """
    if not order.cpus and order.sharers == 1:
        return False
    cpus = (order.cpus or len(os.sched_getaffinity(0))) / order.sharers
    set_thread_count(max(1, int(cpus)), quickly=not order.cpus)
    if order.cpus and order.role == "rank" and not os.environ.get("JUPYTER_GPU_IDS"):
        confine_to_cores(cpus)
    return True


def _rank_environment(order: RankOrder, paths: RunPaths) -> dict[str, str]:
    return {
        "JUPYTER_GPU_RUN": order.run,
        "GPU_RUN_DIR": str(paths.files),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }


def set_rank_variables(go: Go, payload: CellPayload) -> None:
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


def has_notebook_folder(payload: CellPayload) -> bool:
    """Tell if this node has the notebook's folder, and it is the same one (not just the same path).

    A folder that the cell's user may not enter is none, unless it was asked for.
    """
    if not payload.workdir:
        return False
    try:
        found = os.stat(payload.workdir)
    except OSError:
        return False
    if payload.workdir_asked:
        return True
    return payload.workdir_stamp[0] in (0, found.st_ino) and os.access(payload.workdir, os.X_OK)


def _why_not_there(folder: str) -> str:
    try:
        os.stat(f"{folder}/.")
    except PermissionError:
        return f"the cell's user (uid {os.geteuid()}) may not enter the notebook's folder {folder}"
    except OSError:
        pass
    return "the notebook's folder is not visible on the node"


def _unpack_modules(payload: CellPayload, paths: RunPaths) -> list[str]:
    if not payload.modules:
        return []
    for name, source in payload.modules.items():
        target = (paths.code / name).resolve()
        if not target.is_relative_to(paths.code.resolve()):
            raise OptionError(
                f"module path {name!r} leads out of the run folder", hint="import it from a folder on `sys.path`"
            )
        make_store_folder(target.parent)
        write_atomic(target, [source], durable=False)
    return [str(paths.code)]


class RankKernel:
    """Stands where a notebook's shell has its kernel."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        #: id of the notebook's request that runs the cell: output widgets collect what belongs to it
        self.request = ""

    def get_parent(self, channel: str | None = None) -> dict[str, Any]:
        """The request that the notebook's kernel carries out now."""
        header = {"msg_id": self.request, "msg_type": "execute_request"}
        return {"header": header, "msg_id": self.request} if self.request else {}

    @property
    def comm_manager(self) -> Any:
        """Keeps the widgets of this process."""
        import comm

        return comm.get_comm_manager()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"get_ipython().kernel.{name} is not there in a GPU cell: the notebook's kernel is another process"
        )


def look_like_a_notebook(shell: InteractiveShell) -> None:
    """Pretend to be a notebook, before any library is imported: most cells come from one."""
    cls = type(shell)
    cls.__name__ = cls.__qualname__ = "ZMQInteractiveShell"
    cls.__module__ = _MODULE
    module = ModuleType(_MODULE)
    vars(module)["ZMQInteractiveShell"] = cls
    sys.modules.setdefault(_MODULE, module)
    shell.config[_APPLICATION] = Config()
    shell.kernel = RankKernel(shell)


def _look_like_a_terminal(shell: InteractiveShell) -> None:
    cls = type(shell)
    cls.__name__ = cls.__qualname__ = "TerminalInteractiveShell"
    cls.__module__ = "IPython.terminal.interactiveshell"
    sys.modules.pop(_MODULE, None)
    shell.config.pop(_APPLICATION, None)
    shell.__dict__.pop("kernel", None)
    for adapter in loaded_adapters():
        adapter.use_terminal()


def use_front_end(shell: InteractiveShell, payload: CellPayload) -> None:
    """Show what the cell's own front end shows; before the cell's ``--env``."""
    front = payload.front_end
    if payload.terminal:
        _look_like_a_terminal(shell)
    elif (kernel := getattr(shell, "kernel", None)) is not None:
        kernel.request = front.request
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # none of ours
            stream.is_terminal = front.is_terminal  # type: ignore[union-attr]
    _take_environment(front)


def _take_environment(front: FrontEnd) -> None:
    for name in front.asked:
        if name not in front.environment:
            os.environ.pop(name, None)
    os.environ.update(front.environment)
