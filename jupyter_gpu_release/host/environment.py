"""Environment variables: which a cluster gets, which travel with cells.

A cluster serves more than the one who starts it, and for longer: what is in that shell (keys of clouds and services)
is not for all cells. So only what is named here goes along, and what the operator names in :data:`MORE`.

What belongs to a machine, a process or a rank stays there, whatever a cell sets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..settings.built_in import BUILT_IN
from .secrets import looks_secret

#: names and patterns (``MY_*``) of further variables, separated by commas
MORE = "JUPYTER_GPU_ENVIRONMENT"

#: machine, user, language, programs and libraries, temporary files, certificates, proxies
_PLAIN = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TZDIR",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_*",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBRARY_PATH",
    "CPATH",
    "CC",
    "CXX",
    "SLURM_CONF",
    "MALLOC_*",
    "GLIBC_TUNABLES",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
)
#: Python's environment
_PYTHON = ("PYTHON*", "VIRTUAL_ENV", "CONDA_*", "MAMBA_*", "PYENV_*", "JUPYTER_PATH", "JUPYTER_*_DIR", "IPYTHONDIR")
#: GPUs, threads, what gangs meet through
_HARDWARE = (
    "CUDA*",
    "NVIDIA_*",
    "CUDNN_*",
    "CUBLAS_*",
    "NCCL_*",
    "UCX_*",
    "GLOO_*",
    "OMPI_*",
    "FI_*",
    "HIP_*",
    "ROCR_*",
    "OMP_*",
    "KMP_*",
    "MKL_*",
    "OPENBLAS_*",
    "BLIS_*",
    "NUMEXPR_*",
    "NUMBA_*",
    "GOTO_*",
)
#: settings and caches of libraries
_LIBRARIES = (
    "TORCH*",
    "PYTORCH_*",
    "TRITON_*",
    "TF_*",
    "TFDS_*",
    "XLA_*",
    "JAX_*",
    "KERAS_*",
    "CUPY_*",
    "HF_*",
    "HUGGINGFACE_*",
    "TRANSFORMERS_*",
    "DATASETS_*",
    "TOKENIZERS_PARALLELISM",
    "DIFFUSERS_*",
    "SENTENCE_TRANSFORMERS_HOME",
    "NLTK_DATA",
    "SCIKIT_LEARN_DATA",
    "SEABORN_DATA",
    "MPLCONFIGDIR",
    "MPLBACKEND",
    "PANDAS_*",
    "POLARS_*",
    "ARROW_*",
    "DGLBACKEND",
    "WANDB_DIR",
    "WANDB_MODE",
    "WANDB_CACHE_DIR",
    "MLFLOW_TRACKING_URI",
)
_OURS = ("JUPYTER_GPU_*",)
NAMED = (*_PLAIN, *_PYTHON, *_HARDWARE, *_LIBRARIES, *_OURS)

#: whatever the operator names: who speaks for whom, which kernel called, another cluster's Ray
_NEVER = ("JUPYTER_GPU_TOKEN", "JUPYTER_GPU_URL", "JUPYTER_GPU_RUN", "JUPYTER_GPU_KERNEL", "RAY_*")
LOGIN_IN_URL = re.compile(r"://[^/@\s]+@")


def for_cluster(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environment`` that a cluster's processes get."""
    more = [name.strip() for name in environment.get(MORE, "").split(",") if name.strip()]
    return {name: value for name, value in environment.items() if _goes_along(name, value, more)}


#: Ray sets these for its own workers; cells shall have the machine's cores
_NOT_FOR_CELLS = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONBREAKPOINT", "PYTHONUNBUFFERED")


def for_cells(environment: Mapping[str, str], markers: Mapping[str, str], hash_seed: str) -> dict[str, str]:
    """The variables of a fork server, and so of all cells, on a node whose agent has ``environment``."""
    kept = {name: value for name, value in for_cluster(environment).items() if name not in _NOT_FOR_CELLS}
    return {**kept, **markers, "PYTHONFAULTHANDLER": "1", "PYTHONHASHSEED": hash_seed}


def installer_variables(index: str, wheels: Sequence[str]) -> dict[str, str]:
    """Variables by which a cell's pip and uv take packages from where the operator says (``none``: no index)."""
    found = {"PIP_FIND_LINKS": " ".join(wheels), "UV_FIND_LINKS": ",".join(wheels)} if wheels else {}
    if index == "none":
        return {**found, "PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}
    return {**found, "PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index} if index else found


def _goes_along(name: str, value: str, more: list[str]) -> bool:
    if _matches(name, _NEVER):
        return False
    if _matches(name, more):  # by the operator's own word, whatever it looks like
        return True
    return _matches(name, NAMED) and not looks_secret(name, value) and LOGIN_IN_URL.search(value) is None


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


#: variables by which libraries decide how they draw: the notebook's front end's, also where it did not set them
FRONT_END = (
    "TERM",
    "COLORTERM",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
    "JUPYTER_COLUMNS",
    "JUPYTER_LINES",
    "PAGER",
    "GIT_PAGER",
    "MANPAGER",
    "JPY_PARENT_PID",
    "JPY_SESSION_NAME",
    "VSCODE_PID",
    "VSCODE_CWD",
    "DATABRICKS_RUNTIME_VERSION",
    "COLAB_RELEASE_TAG",
    "KAGGLE_KERNEL_RUN_TYPE",
)
_OF_THE_MACHINE = (
    "PATH",
    "LD_*",
    "PYTHONPATH",
    "PYTHONHOME",
    "HOME",
    "TMPDIR",
    "TMP",
    "TEMP",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "DISPLAY",
    "XDG_*",
    "SSH_*",
    "DBUS_*",
    "VIRTUAL_ENV",
    "CONDA_*",
    "SLURM_*",
    "MPLCONFIGDIR",  # matplotlib sets one of its own where it cannot write into the home folder
)
_OF_THE_PROCESS = (
    "CUDA_*",
    "NVIDIA_*",
    "NCCL_*",
    "GLOO_*",
    "RAY_*",
    "JUPYTER_*",
    "JPY_*",
    "GPU_RUN_DIR",
    "MPLBACKEND",
    "IPYTHON*",
    "PYDEVD_*",
    "PYTEST_*",
    "COVERAGE_*",
    "COV_CORE_*",
)
_OF_THE_RANK = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_*",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_*",
    "TF_CONFIG",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "NUM_PROCESSES",
    "PROCESS_ID",
    "DMLC_*",
)
_STAY = (*FRONT_END, *_OF_THE_MACHINE, *_OF_THE_PROCESS, *_OF_THE_RANK)
#: for debugging: as good on one machine as on another
_TRAVEL = frozenset({"CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG"})
#: libraries set them when they are imported, so they say nothing about a cell
SET_BY_IMPORTS = frozenset({"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})

MOST_BYTES: int = BUILT_IN["travelling_variable_bytes"].default
MOST_BYTES_IN_ALL: int = BUILT_IN["travelling_variables_bytes"].default


@dataclass(frozen=True)
class OwnVariables:
    """Variables that were set (None: deleted) since ``initial``; ``secret`` and ``large`` are names of what stays."""

    values: dict[str, str | None] = field(default_factory=dict)
    secret: list[str] = field(default_factory=list)
    large: list[str] = field(default_factory=list)


@functools.cache
def may_travel(name: str) -> bool:
    """Tell if a variable can be the notebook's own."""
    return name in _TRAVEL or not any(fnmatchcase(name, pattern) for pattern in _STAY)


@functools.lru_cache(512)
def stays_here(name: str, value: str) -> bool:
    """Tell if such a value is a secret, or too large."""
    return _is_secret(name, value) or _size(name, value) > MOST_BYTES


def own_variables(
    now: Mapping[str, str], initial: Mapping[str, str], *, but: Collection[str] = frozenset()
) -> OwnVariables:
    """The variables that were set, changed or deleted since ``initial``, ``but`` for some."""
    now = dict(now)  # each look at `os.environ` decodes
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
