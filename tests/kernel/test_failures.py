from __future__ import annotations

import pickle

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from jupyter_gpu_release.core.messages import ErrorInfo
from jupyter_gpu_release.errors import OptionError, RunFailedError
from jupyter_gpu_release.kernel.failures import remote_error, syntax_error, without_traceback


class Stubborn(Exception):
    """Cannot be rebuilt from its own pickle: its constructor wants more."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


class Sealed(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


def rendered(error: BaseException) -> list[str]:
    return error._render_traceback_()  # type: ignore[attr-defined, no-any-return]


def info(error: Exception, **more: object) -> ErrorInfo:
    fields = {"ename": type(error).__name__, "evalue": str(error), "traceback": ["line 1", "line 2"]}
    return ErrorInfo(**{**fields, "pickled": pickle.dumps(error), **more})


def test_the_users_exception_stays_itself():
    error = remote_error(info(KeyError("k")), "below")
    assert isinstance(error, KeyError)
    assert error.args == ("k",)
    assert rendered(error) == ["line 1", "line 2", "below"]


def test_what_cannot_be_rebuilt_keeps_its_name():
    for pickled in (b"", b"junk", pickle.dumps(Stubborn("a", "b")), pickle.dumps("not an exception")):
        error = remote_error(ErrorInfo("Stubborn", "a", ["t"], pickled=pickled))
        assert type(error).__name__ == "Stubborn"
        assert str(error) == "a"
        assert rendered(error) == ["t"]


def test_a_sealed_exception_gets_a_stand_in():
    error = remote_error(info(Sealed("x")))
    assert type(error).__name__ == "Sealed"
    assert rendered(error) == ["line 1", "line 2"]


def test_kinds_that_ipython_shows_in_its_own_way():
    for original in (SyntaxError("bad"), ExceptionGroup("many", [ValueError("a")])):
        error = remote_error(info(original))
        assert not isinstance(error, SyntaxError | BaseExceptionGroup)
        assert type(error).__name__ == type(original).__name__
        assert rendered(error)[0] == "line 1"


def test_ours_come_back_as_ours():
    error = remote_error(ErrorInfo("CellProcessDied", "segfault", code="failed", mend="look"), "receipt")
    assert isinstance(error, RunFailedError)
    assert rendered(error) == ["\x1b[31mRunFailedError\x1b[39m: segfault", "  → look", "receipt"]


def test_our_errors_show_message_and_mend_only():
    assert rendered(without_traceback(OptionError("no", mend="yes"))) == [
        "\x1b[31mOptionError\x1b[39m: no",
        "  → yes",
    ]


def test_syntax_errors_look_as_ipythons():
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    try:
        compile("a = = 1", "Cell In[3]", "exec")
    except SyntaxError as caught:
        error = syntax_error(caught, shell)
    assert type(error).__name__ == "SyntaxError"
    shown = "\n".join(rendered(error))
    assert "Cell In[3]" in shown
    assert "^" in shown
