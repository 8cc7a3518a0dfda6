"""Outputs of examples that the site shows are those that they have today."""

from __future__ import annotations

from pathlib import Path

import pytest
from ran_examples import NAMES, RAN, execute, form, read

pytestmark = pytest.mark.thorough
#: run by tests of their own (``test_tutorial.py``, ``test_gang_examples.py``)
_ELSEWHERE = ("digits", "ddp_digits")


@pytest.mark.timeout(300)  # they train, on all cores
@pytest.mark.parametrize("name", [name for name in NAMES if name not in _ELSEWHERE])
def test_an_example_still_gives_what_the_site_shows(tmp_path: Path, name: str) -> None:
    ran = {cell["id"]: form(cell) for cell in execute(name, tmp_path).cells}
    assert ran == {cell["id"]: form(cell) for cell in read(RAN, name).cells}
