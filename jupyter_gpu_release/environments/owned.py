"""Names of the packages that are the cluster's own: no environment of a notebook has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from packaging.utils import canonicalize_name

from ..protocol.environments import OURS, Distribution, Installed
from .requirements import Requirements

#: libraries that have to fit the GPUs' driver, and each other
GPU_LIBRARIES = (
    "torch",
    "torchvision",
    "torchaudio",
    "torchtext",
    "torchcodec",
    "torchao",
    "pytorch-triton*",
    "triton",
    "jax",
    "jaxlib",
    "jax-*",
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tf-nightly*",
    "nvidia-*",
    "cuda-*",
    "cupy",
    "cupy-*",
    "ray",
)
#: of these the cluster's will do, where it has one
_INSTALLERS = frozenset({"pip", "setuptools", "wheel", "uv"})


class Owned:
    """Decides for one cluster. ``patterns``: more names, as the operator wrote them (``flash-attn``, ``acme-*``)."""

    def __init__(self, cluster: Installed, patterns: Iterable[str] = (), interpreter: str = "") -> None:
        """``interpreter``: as in :class:`.Plan`. Of another Python only what it has stays its own."""
        here = {each.name: each for each in cluster.distributions}
        self._names = required_by_us(here, Requirements(cluster.markers)) | (_INSTALLERS & here.keys())
        self._patterns = (*GPU_LIBRARIES, *(_normalized(pattern) for pattern in patterns))
        self._all = here.keys() if interpreter else None

    def __contains__(self, name: str) -> bool:
        return name in self._names or self.has_to_fit(name)

    def has_to_fit(self, name: str) -> bool:
        """Tell if it is a GPU library, or the operator's: what is compiled against it goes with one version only."""
        is_any = self._all is None or name in self._all
        return is_any and any(fnmatchcase(name, pattern) for pattern in self._patterns)


def _normalized(pattern: str) -> str:
    return str(canonicalize_name(pattern.strip()))


def required_by_us(here: Mapping[str, Distribution], requirements: Requirements) -> set[str]:
    """This package and all that it requires without its extras: ranks import these before a cell does."""
    found: set[str] = set()
    waiting = [OURS]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += requirements.of(here[name]) if name in here else ()
    return found
