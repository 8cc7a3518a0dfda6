"""Functions that another minor version of Python has compiled: stand-ins here, themselves again at home."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_gpu_release.adapters.stdlib import code_objects
from jupyter_gpu_release.errors import MissingHereError
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust


def _made() -> dict[str, Any]:
    start = [1]

    def step() -> list[int]:
        return [each + start[0] for each in start]

    def numbers(count: int = 2) -> Any:
        yield from (start[0] + each for each in range(count))

    # one line and one name: two functions all the same (without a closure they would be known here)
    pair = (lambda: start[0]), (lambda: start[0] + 1)
    return {"step": step, "numbers": numbers, "pair": pair, "data": {"x": [1, 2]}}


def test_what_another_python_made_says_why_it_does_not_run_and_runs_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setattr(code_objects, "_HERE", "3.99")
        away = codec.dump(_made(), NamespaceInfo({}, at_home=True))
    arrived = codec.load(away.stream, away.buffers, NamespaceInfo({}, at_home=False), trust=Trust.OWN).values
    assert arrived["data"] == {"x": [1, 2]}
    calls: list[tuple[Callable[[], Any], str]] = [
        (arrived["step"], "_made.<locals>.step"),
        (lambda: arrived["numbers"](3), "_made.<locals>.numbers"),
        (arrived["pair"][1], "_made.<locals>.<lambda>"),
    ]
    for call, name in calls:
        with pytest.raises(MissingHereError, match=r"was made by Python 3\.99, and this process has 3") as caught:
            call()
        assert str(caught.value).startswith(name)
        assert caught.value.hint
    back = codec.dump(dict(arrived), NamespaceInfo({}, at_home=True))
    monkeypatch.setattr(code_objects, "_HERE", "3.99")
    home = codec.load(back.stream, back.buffers, NamespaceInfo({}, at_home=False), trust=Trust.OWN).values
    assert (home["step"](), list(home["numbers"]())) == ([2], [1, 2])
    assert [each() for each in home["pair"]] == [1, 2]
