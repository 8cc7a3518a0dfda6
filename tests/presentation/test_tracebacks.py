"""Our own errors show the user's line, not ours."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

import jupyter_gpu_release
from jupyter_gpu_release.errors import CannotSendError, NoSuchRunError
from jupyter_gpu_release.presentation.tracebacks import drop_own_causes, without_own


def _failing() -> BaseException:
    with pytest.raises(NoSuchRunError) as caught:
        jupyter_gpu_release.load("no run")
    return caught.value


def test_the_last_frame_is_the_users() -> None:
    error = _failing()
    assert len(traceback.extract_tb(error.__traceback__)) > 1
    frames = traceback.extract_tb(without_own(error.__traceback__))
    assert [frame.filename for frame in frames] == [__file__]
    assert len(traceback.extract_tb(error.__traceback__)) > 1, "the debugger still has the whole one"


def test_frames_that_a_dataclass_of_ours_wrote_are_ours() -> None:
    with pytest.raises(CannotSendError) as caught:
        jupyter_gpu_release.launch(3)  # type: ignore[arg-type]
    assert any(frame.filename == "<string>" for frame in traceback.extract_tb(caught.value.__traceback__))
    frames = traceback.extract_tb(without_own(caught.value.__traceback__))
    assert [frame.filename for frame in frames] == [__file__]


def test_frames_of_ours_that_call_the_user_stay() -> None:
    class Weird:
        def __str__(self) -> str:
            raise RuntimeError("users own")

    with pytest.raises(RuntimeError) as caught:
        jupyter_gpu_release.load(Weird())  # type: ignore[arg-type]
    frames = traceback.extract_tb(without_own(caught.value.__traceback__))
    assert frames[-1].name == "__str__"


def test_where_all_is_ours_all_stays() -> None:
    error: Any = _failing()
    ours = error.__traceback__.tb_next
    assert traceback.extract_tb(without_own(ours)) == traceback.extract_tb(ours)
    assert without_own(None) is None


def test_of_the_errors_behind_only_the_users_are_shown() -> None:
    inner, error = _failing(), NoSuchRunError("outer")
    assert inner.__traceback__ is not None
    error.__context__ = inner.with_traceback(inner.__traceback__.tb_next)
    drop_own_causes(error)
    assert error.__suppress_context__
    error = NoSuchRunError("outer")
    error.__context__ = ValueError("users own").with_traceback(_failing().__traceback__)
    drop_own_causes(error)
    assert not error.__suppress_context__
