"""The reference names everything that there is."""

from __future__ import annotations

import re
from argparse import SUPPRESS
from pathlib import Path

import pytest

from jupyter_gpu_release import errors
from jupyter_gpu_release.cli import parser
from jupyter_gpu_release.kernel.magics.magics import GpuMagics
from jupyter_gpu_release.options.definitions import OPTIONS

REFERENCE = (Path(__file__).parents[3] / "docs" / "reference.md").read_text()
COMMANDS = REFERENCE[REFERENCE.index("## Command line") : REFERENCE.index("## Environment variables")]


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_in_the_reference_and_in_the_help(name: str):
    assert re.search(rf"`--{name}\b", REFERENCE)
    assert f"--{name} " in (GpuMagics.gpu_train.__doc__ or "")


def test_the_help_fits_a_terminal_of_80_columns():
    assert [line for line in (GpuMagics.gpu_train.__doc__ or "").splitlines() if len(line) > 80] == []


def test_the_help_is_plain_text():
    assert "`" not in (GpuMagics.gpu_train.__doc__ or "")


def test_no_option_is_invented():
    known = {f"--{name}" for name in OPTIONS} | {"--paths", "--simulated-gpus", "--rank", "--list", "--clear"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", REFERENCE.replace(COMMANDS, ""))) <= known


def test_commands_and_their_options_are_in_the_reference_and_none_is_invented():
    _, commands = parser.build()
    known = {"--version", "--help"}
    for name, command in commands.items():
        assert re.search(rf"`{name}\b", COMMANDS), name
        options = {each for action in command._actions for each in action.option_strings if action.help != SUPPRESS}
        known |= options
        for option in options - {"--help", "-h"}:
            assert re.search(rf"{option}\b", COMMANDS), f"{name} {option}"
    for action in parser.RUNS_ACTIONS:
        assert f"`runs {action} " in COMMANDS
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", COMMANDS)) <= known


def test_magics_and_errors_are_in_the_reference():
    for name in GpuMagics.magics["line"]:
        assert f"%{name}" in REFERENCE, name
    for cls in errors.BY_CODE.values():
        assert f"`{cls.__name__}`" in REFERENCE, cls
