"""Frameworks against the driver."""

from __future__ import annotations

import sys

import pytest

from jupyter_gpu_release.checks.finding import BROKEN, OK
from jupyter_gpu_release.checks.frameworks import Driver, compare_cuda, cuda_version, dotted, installed_frameworks

_H100 = Driver(True, "550.54", (12, 4))
_NONE = Driver(False)


@pytest.mark.parametrize(
    ("driver", "cuda", "level", "words"),
    [
        (_H100, (12, 8), OK, "built for CUDA 12.8, the driver supports 12.4"),
        (_H100, (11, 8), OK, "built for CUDA 11.8"),
        (_H100, (13, 0), BROKEN, "built for CUDA 13, the driver 550.54 supports up to 12.4"),
        (_H100, None, BROKEN, "CPU build: its cells cannot use the GPUs"),
        (_NONE, None, OK, "CPU build, and there is no GPU here"),
        (_NONE, (13, 0), OK, "built for CUDA 13; there is no GPU here"),
    ],
)
def test_driver_against_framework(driver: Driver, cuda: tuple[int, int] | None, level: str, words: str) -> None:
    finding = compare_cuda(driver, "torch 2.13.0", cuda)
    assert finding.level == level
    assert words in finding.finding
    assert bool(finding.hint) == (level == BROKEN)


def test_the_installed_torch_is_named_and_not_imported() -> None:
    loaded = set(sys.modules)
    found = dict(installed_frameworks())
    (torch,) = [name for name in found if name.startswith("torch ")]
    assert "torch" not in set(sys.modules) - loaded
    assert cuda_version(dotted(found[torch])) == found[torch]
