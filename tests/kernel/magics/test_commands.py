"""Notebook variables in option values."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.kernel.notebook import expand_variables


def test_variables_are_put_in():
    assert expand_variables({"gpus": ["{n}"], "memory": ["${size}GiB", "$n"]}, {"n": 2, "size": 8})["gpus"] == ["2"]


@pytest.mark.parametrize("value", ["{nosuch}", "$nosuch", "{nosuch + 1}"])
def test_a_variable_that_is_not_there_is_named(value: str):
    with pytest.raises(OptionError, match="there is no variable nosuch") as caught:
        expand_variables({"gpus": [value]}, {"n": 2})
    assert caught.value.hint


def test_free_text_keeps_its_braces():
    assert expand_variables({"env": ["A={nosuch}", 'B={"a": 1}']}, {}) == {"env": ["A={nosuch}", 'B={"a": 1}']}
