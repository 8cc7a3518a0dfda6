"""The reference names every magic, the help every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_gpu_release.kernel.magics.magics import GpuMagics
from jupyter_gpu_release.options.definitions import OPTIONS

REFERENCE = (Path(__file__).parents[3] / "docs" / "reference.md").read_text()


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_in_the_help(name: str):
    assert f"--{name} " in (GpuMagics.gpu_train.__doc__ or "")


def test_the_help_fits_a_terminal_of_80_columns():
    assert [line for line in (GpuMagics.gpu_train.__doc__ or "").splitlines() if len(line) > 80] == []


def test_the_help_is_plain_text():
    assert "`" not in (GpuMagics.gpu_train.__doc__ or "")


def test_the_magics_of_the_reference_are_those_that_there_are():
    magics = {f"%{name}" for name in GpuMagics.magics["line"]} | {f"%%{name}" for name in GpuMagics.magics["cell"]}
    assert set(re.findall(r"`(%+gpu_\w+)", REFERENCE.partition("## From Python")[0])) == magics
