"""Which environment variables a cluster's processes, and so everybody's cells, get from whoever starts them.

A cluster serves more than the one who starts it, and for longer: what is in that shell (keys of clouds and services)
is not for all cells. So only what is named here goes along, and what the operator names in :data:`MORE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from .secrets import looks_secret

#: names and patterns (``MY_*``) of further variables, separated by commas
MORE = "JUPYTER_GPU_ENVIRONMENT"

#: machine, user, language, programs and libraries, temporary files, certificates, proxies
_PLAIN = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR",
    "TMPDIR", "TMP", "TEMP", "XDG_*", "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "CC", "CXX",
    "MALLOC_*", "GLIBC_TUNABLES", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
#: Python's environment
_PYTHON = ("PYTHON*", "VIRTUAL_ENV", "CONDA_*", "MAMBA_*", "PYENV_*", "JUPYTER_PATH", "JUPYTER_*_DIR", "IPYTHONDIR")
#: cards, threads, what gangs meet through
_HARDWARE = (
    "CUDA*", "NVIDIA_*", "CUDNN_*", "CUBLAS_*", "NCCL_*", "UCX_*", "GLOO_*", "OMPI_*", "FI_*", "HIP_*", "ROCR_*",
    "OMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "NUMEXPR_*", "NUMBA_*", "GOTO_*",
)  # fmt: skip
#: settings and caches of libraries
_LIBRARIES = (
    "TORCH*", "PYTORCH_*", "TRITON_*", "TF_*", "TFDS_*", "XLA_*", "JAX_*", "KERAS_*", "CUPY_*", "HF_*", "HUGGINGFACE_*",
    "TRANSFORMERS_*", "DATASETS_*", "TOKENIZERS_PARALLELISM", "DIFFUSERS_*", "SENTENCE_TRANSFORMERS_HOME", "NLTK_DATA",
    "SCIKIT_LEARN_DATA", "SEABORN_DATA", "MPLCONFIGDIR", "MPLBACKEND", "PANDAS_*", "POLARS_*", "ARROW_*", "DGLBACKEND",
    "WANDB_DIR", "WANDB_MODE", "WANDB_CACHE_DIR", "MLFLOW_TRACKING_URI",
)  # fmt: skip
_OURS = ("JUPYTER_GPU_*",)
NAMED = (*_PLAIN, *_PYTHON, *_HARDWARE, *_LIBRARIES, *_OURS)

#: whatever the operator names: who speaks for whom, which kernel called, another cluster's Ray
_NEVER = ("JUPYTER_GPU_TOKEN", "JUPYTER_GPU_URL", "JUPYTER_GPU_RUN", "JUPYTER_GPU_KERNEL", "RAY_*")
LOGIN_IN_URL = re.compile(r"://[^/@\s]+@")


def for_cluster(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environment`` that a cluster's processes get."""
    more = [name.strip() for name in environment.get(MORE, "").split(",") if name.strip()]
    return {name: value for name, value in environment.items() if _goes_along(name, value, more)}


def _goes_along(name: str, value: str, more: list[str]) -> bool:
    if _matches(name, _NEVER):
        return False
    if _matches(name, more):  # by the operator's own word, whatever it looks like
        return True
    return _matches(name, NAMED) and not looks_secret(name, value) and LOGIN_IN_URL.search(value) is None


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
