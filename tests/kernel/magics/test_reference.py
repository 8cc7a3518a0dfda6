"""The reference names every magic, the help every option."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpu_release.kernel.magics.magics import GpuMagics
from jupyter_gpu_release.options.definitions import OPTIONS, Option
from jupyter_gpu_release.options.sweep_options import SEARCH

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "reference.md").read_text()


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_in_the_help(name: str):
    assert f"--{name} " in (GpuMagics.gpu_train.__doc__ or "")


def test_the_help_is_grouped_and_begins_with_the_usual_options():
    """Completion has the order of ``OPTIONS``, too: ``kernel/completion/test_magic_lines.py``."""
    shown = GpuMagics.gpu_train.__doc__ or ""
    titles = ["Usual", "Devices", "Names", "Environment", "Waiting", "Background", "Gangs", "Results"]
    assert re.findall(r"^(\w+):$", shown, re.MULTILINE) == titles
    assert re.findall(r"^  --([\w-]+)", shown, re.MULTILINE) == list(OPTIONS)
    usual = re.findall(r"^  --([\w-]+)", shown.partition("Devices:")[0], re.MULTILINE)
    assert usual == ["gpus", "gpu-type", "timeout", "name", "async", "restartable", "estimate"]


def test_a_long_option_has_a_line_of_its_own():
    (line,) = re.findall(r"^  --on-disconnect.*$", GpuMagics.gpu_train.__doc__ or "", re.MULTILINE)
    assert line == "  --on-disconnect continue|cancel"


@pytest.mark.parametrize("option", SEARCH, ids=lambda option: option.name)
def test_options_of_sweeps_are_in_their_help_and_on_their_page(option: Option):
    assert f"--{option.name} " in (GpuMagics.gpu_sweep.__doc__ or "")
    assert f"`--{option.name}" in (DOCS / "use" / "sweeps.md").read_text()


@pytest.mark.parametrize("magic", [GpuMagics.gpu_train, GpuMagics.gpu_sweep])
def test_the_help_is_plain_text_that_fits_a_terminal_of_80_columns(magic: Callable[..., None]):
    help_text = magic.__doc__ or ""
    assert [line for line in help_text.splitlines() if len(line) > 80] == []
    assert "`" not in help_text


def test_the_magics_of_the_reference_are_those_that_there_are():
    magics = {f"%{name}" for name in GpuMagics.magics["line"]} | {f"%%{name}" for name in GpuMagics.magics["cell"]}
    assert set(re.findall(r"`(%+gpu_\w+)", REFERENCE.partition("## From Python")[0])) == magics
