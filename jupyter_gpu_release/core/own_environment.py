"""Which environment variables are the notebook's own, and travel with its cells: those that it set itself. Pure.

What belongs to a machine, a process or a rank stays there, whatever a cell sets.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .environment import LOGIN_IN_URL
from .secrets import looks_secret

#: variables by which libraries decide how they draw: the notebook's front end's, also where it did not set them
FRONT_END = (
    "TERM", "COLORTERM", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "JUPYTER_COLUMNS",
    "JUPYTER_LINES", "PAGER", "GIT_PAGER", "MANPAGER", "JPY_PARENT_PID", "JPY_SESSION_NAME", "VSCODE_PID",
    "VSCODE_CWD", "DATABRICKS_RUNTIME_VERSION", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE",
)  # fmt: skip
_OF_THE_MACHINE = (
    "PATH", "LD_*", "PYTHONPATH", "PYTHONHOME", "HOME", "TMPDIR", "TMP", "TEMP", "PWD", "OLDPWD", "SHLVL", "_", "USER",
    "LOGNAME", "SHELL", "HOSTNAME", "DISPLAY", "XDG_*", "SSH_*", "DBUS_*", "VIRTUAL_ENV", "CONDA_*", "SLURM_*",
    "MPLCONFIGDIR",  # matplotlib sets one of its own where it cannot write into the home folder
)  # fmt: skip
_OF_THE_PROCESS = (
    "CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "RAY_*", "JUPYTER_*", "JPY_*", "GPU_RUN_DIR", "MPLBACKEND", "IPYTHON*",
    "PYDEVD_*", "PYTEST_*", "COVERAGE_*", "COV_CORE_*",
)  # fmt: skip
_OF_THE_RANK = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_*", "NODE_RANK",
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*", "TF_CONFIG", "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID", "NUM_PROCESSES", "PROCESS_ID", "DMLC_*",
)  # fmt: skip
_STAY = (*FRONT_END, *_OF_THE_MACHINE, *_OF_THE_PROCESS, *_OF_THE_RANK)
#: for debugging: as good on one machine as on another
_TRAVEL = frozenset({"CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG"})
#: libraries set them when they are imported, so they say nothing about a cell
SET_BY_IMPORTS = frozenset({"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})

MOST_BYTES, MOST_BYTES_IN_ALL = 4 << 10, 64 << 10


@dataclass(frozen=True)
class OwnVariables:
    """What was set (None: deleted) since ``initial``; ``secret`` and ``large`` are names of what stays."""

    values: dict[str, str | None] = field(default_factory=dict)
    secret: list[str] = field(default_factory=list)
    large: list[str] = field(default_factory=list)


@functools.cache
def may_travel(name: str) -> bool:
    """Whether a variable can be the notebook's own."""
    return name in _TRAVEL or not any(fnmatchcase(name, pattern) for pattern in _STAY)


@functools.lru_cache(512)
def stays(name: str, value: str) -> bool:
    """Whether such a value is a secret, or too large."""
    return _is_secret(name, value) or _size(name, value) > MOST_BYTES


def own_variables(
    now: Mapping[str, str], initial: Mapping[str, str], *, but: Collection[str] = frozenset()
) -> OwnVariables:
    """The variables that were set, changed or deleted since ``initial``, ``but`` for some."""
    changed = {name: now.get(name) for name in {**initial, **now} if now.get(name) != initial.get(name)}
    found, room = OwnVariables(), MOST_BYTES_IN_ALL
    for name, value in sorted(changed.items()):
        if name in but or not may_travel(name):
            continue
        size = _size(name, value or "")
        if value is not None and _is_secret(name, value):
            found.secret.append(name)
        elif size > min(MOST_BYTES, room):
            found.large.append(name)
        else:
            room -= size
            found.values[name] = value
    return found


def _is_secret(name: str, value: str) -> bool:
    return looks_secret(name, value) or LOGIN_IN_URL.search(value) is not None


def _size(name: str, value: str) -> int:
    return len(name) + len(value.encode(errors="surrogateescape"))
