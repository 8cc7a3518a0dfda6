from __future__ import annotations

import sys
import threading
import types
import urllib.error
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from jupyter_gpu_release.client.tracebacks import failure_of, remote_error, shows_lines, syntax_error, without_traceback
from jupyter_gpu_release.errors import OptionError, RunCancelledError, RunFailedError
from jupyter_gpu_release.node.ipc.frames import died_outcome
from jupyter_gpu_release.protocol import wire
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, RunView
from jupyter_gpu_release.serialization import exceptions


class Stubborn(Exception):
    """Its constructor wants more than its ``args``."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


class Named(Stubborn):
    __slots__ = ("place",)

    def __init__(self, *, place: str) -> None:
        super().__init__("named", second=place)
        self.place = place


class Lost(Stubborn, KeyError):
    """Of a module that is not here."""

    def __str__(self) -> str:
        return f"lost {self.second}"


class Sealed(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


def rendered(error: BaseException) -> list[str]:
    return error._render_traceback_()  # type: ignore[attr-defined, no-any-return]


def info(error: BaseException, **more: object) -> ErrorInfo:
    fields = {"ename": type(error).__name__, "evalue": str(error), "traceback": ["line 1", "line 2"]}
    return ErrorInfo(**{**fields, "pickled": exceptions.pack_error(error), **more})


def test_a_run_that_was_cancelled_before_its_first_statement_is_called_cancelled():
    outcome = died_outcome("interrupted", "KeyboardInterrupt", "interrupted before its first statement")
    view = RunView("20260101-000000-00000001", "ann", "cancelled", outcome=outcome)
    error = failure_of(view, 0)
    assert isinstance(error, RunCancelledError)
    assert error.message == "interrupted before its first statement"
    assert isinstance(failure_of(view, 1), KeyboardInterrupt)  # by the stop button of this kernel


def test_a_cell_that_took_an_interrupt_and_ended_well_is_no_failure() -> None:
    view = RunView("20260101-000000-00000001", "ann", "succeeded", outcome=Outcome("ok"))
    assert failure_of(view, 1) is None
    assert isinstance(failure_of(view, 2), KeyboardInterrupt), "who asks twice ends what comes after, too"


def test_the_class_of_a_runs_error_is_kept_where_code_catches_it() -> None:
    packed = info(SyntaxError("bad", ("f.py", 3, 2, "a = = 1")))
    view = RunView("20260101-000000-00000001", "ann", "failed", outcome=Outcome("error", error=packed))
    assert isinstance(failure_of(view, 0, to_catch=True), SyntaxError)
    assert not isinstance(failure_of(view, 0), SyntaxError)


def test_the_users_exception_stays_itself():
    error = remote_error(info(KeyError("k")), "below")
    assert isinstance(error, KeyError)
    assert error.args == ("k",)
    assert rendered(error) == ["line 1", "below", "", "line 2"]


@pytest.mark.parametrize(
    ("original", "facts"),
    [
        (Stubborn("a", "b"), {"second": "b"}),
        (Named(place="here"), {"second": "here", "place": "here"}),
        (FileNotFoundError(2, "No such file", "x.txt"), {"errno": 2, "filename": "x.txt"}),
        (urllib.error.HTTPError("http://u", 404, "not found", {}, None), {"code": 404, "filename": "http://u"}),  # type: ignore[arg-type]
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), {"start": 0, "reason": "bad"}),
        (StopIteration(4), {"value": 4}),
        (Sealed("x"), {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_its_class_text_and_attributes_arrive(original: Exception, facts: dict[str, Any]):
    error = remote_error(info(original))
    assert type(error) is type(original)
    assert (error.args, str(error)) == (original.args, str(original))
    assert {name: getattr(error, name) for name in facts} == facts
    assert rendered(error) == ["line 1", "line 2"]


def test_a_class_of_the_notebook_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch):
    there: dict[str, Any] = {"__name__": "__main__"}
    source = (
        "class E(Exception):\n    def __init__(self, code, msg):\n        super().__init__(msg)\n"
        "        self.code = code"
    )
    exec(source, there)
    packed = info(there["E"](3, "x"))
    here = types.ModuleType("__main__")
    exec(source, here.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", here)
    error: Any = remote_error(packed)
    assert type(error) is here.E  # type: ignore[attr-defined]
    assert (error.code, error.args) == (3, ("x",))


def test_a_class_that_is_not_here_leaves_its_nearest_base(monkeypatch: pytest.MonkeyPatch):
    packed = info(Lost("a", "b"))
    monkeypatch.delattr(sys.modules[__name__], "Lost")
    error: Any = remote_error(packed)
    assert type(error).__name__ == "Lost"
    assert isinstance(error, Stubborn)
    assert (str(error), error.second, rendered(error)) == ("lost b", "b", ["line 1", "line 2"])


def test_what_cannot_travel_stays_behind():
    original = Stubborn("a", "b")
    original.__dict__ |= {"lock": (line for line in ""), "small": 1, "large": b"x" * (1 << 17)}
    original.args = ("a", lambda: 0)
    packed = info(original)
    assert len(packed.pickled) < exceptions.LIMIT_BYTES
    error = remote_error(packed)
    assert error.__dict__.keys() >= {"second", "small"}
    assert not error.__dict__.keys() & {"lock", "large"}
    assert error.args[0] == "a"
    assert len(error.args) == 2


class Locked(Exception):
    """Its text is made of what cannot travel."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.where = threading.Lock()

    def __str__(self) -> str:
        return f"{self.args[0]}: {type(self.where).__name__}"


def test_an_exception_whose_text_is_made_of_what_cannot_travel_says_what_it_said_there():
    error = remote_error(info(Locked("no")), "the receipt")
    assert (isinstance(error, Locked), type(error).__name__, error.args) == (True, "Locked", ("no",))
    assert (str(error), rendered(error)) == ("no: lock", ["line 1", "the receipt", "", "line 2"])


def test_what_cannot_be_rebuilt_keeps_its_name():
    for pickled in (b"", b"junk", wire.encode(exceptions.Raised([("no_such", "E")], [], {}, {}))):
        error = remote_error(ErrorInfo("Stubborn", "a", ["t"], pickled=pickled))
        assert type(error).__name__ == "Stubborn"
        assert str(error) == "a"
        assert rendered(error) == ["t"]


def test_an_exception_that_cannot_say_what_it_is():
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError

    assert "failed" in exceptions.error_text(Mute())


def test_kinds_that_ipython_shows_in_its_own_way():
    for original in (SyntaxError("bad"), ExceptionGroup("many", [ValueError("a")]), SystemExit(3)):
        error = remote_error(info(original))
        assert isinstance(error, Exception)
        assert not isinstance(error, SyntaxError | BaseExceptionGroup)
        assert type(error).__name__ == type(original).__name__
        assert rendered(error)[0] == "line 1"


def test_functions_raise_them_as_they_are():
    bad: Any = remote_error(info(SyntaxError("bad", ("f.py", 3, 2, "a = = 1"))), to_catch=True)
    assert type(bad) is SyntaxError
    assert (bad.msg, bad.filename, bad.lineno) == ("bad", "f.py", 3)
    inner = ExceptionGroup("inner", [Named(place="here"), Sealed("x")])
    many: Any = remote_error(info(ExceptionGroup("many", [KeyError("k"), inner])), to_catch=True)
    assert type(many) is ExceptionGroup
    assert str(many) == "many (2 sub-exceptions)"
    assert [type(each) for each in many.exceptions] == [KeyError, ExceptionGroup]
    named, sealed = many.exceptions[1].exceptions
    assert (type(named), named.place, type(sealed), sealed.args) == (Named, "here", Sealed, ("x",))
    ended = remote_error(info(SystemExit(3)), to_catch=True)  # would end the script, in silence
    assert isinstance(ended, Exception)


def test_a_member_whose_class_is_not_here_keeps_name_and_text(monkeypatch: pytest.MonkeyPatch):
    class Here(Exception):
        """Of no module."""

    packed = info(BaseExceptionGroup("many", [Lost("a", "b"), Here("c"), KeyboardInterrupt()]))
    monkeypatch.delattr(sys.modules[__name__], "Lost")
    many: Any = remote_error(packed, to_catch=True)
    lost, here, interrupt = many.exceptions
    assert (type(lost).__name__, str(lost), isinstance(lost, Stubborn)) == ("Lost", "lost b", True)
    assert (type(here).__name__, str(here), type(interrupt)) == ("Here", "c", KeyboardInterrupt)


def test_a_group_of_very_many_is_refused():
    with pytest.raises(BufferError):
        exceptions.pack_error(ExceptionGroup("many", [ValueError("x" * 100)] * 1000))


def test_what_is_too_large_leaves_the_room_to_the_rest():
    error: Any = ValueError("odd")
    error.batch, error.rows = [bytes(60_000), bytes(70_000)], bytes(10_000)
    found = remote_error(info(error), to_catch=True)
    assert vars(found).keys() & {"batch", "rows"} == {"rows"}


def test_ours_come_back_as_ours():
    error = remote_error(ErrorInfo("CellProcessDied", "segfault", code="failed", hint="look"), "receipt")
    assert isinstance(error, RunFailedError)
    assert rendered(error) == ["\x1b[31mRunFailedError\x1b[39m: segfault", "  → look", "receipt"]


def test_our_errors_show_message_and_mend_only():
    assert rendered(without_traceback(OptionError("no", hint="yes"))) == ["\x1b[31mOptionError\x1b[39m: no", "  → yes"]


def test_a_mend_is_shown_without_the_backticks_that_pages_make_code_of():
    error = without_traceback(OptionError("`x` is none", hint="see `jupyter gpu nodes`"))
    assert rendered(error) == ["\x1b[31mOptionError\x1b[39m: `x` is none", "  → see jupyter gpu nodes"]
    assert error.hint == "see `jupyter gpu nodes`", "programs and pages get it as it is"


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


def test_only_ipythons_own_usage_errors_are_shown_without_lines() -> None:
    """Other libraries have errors of that name (click, pytest), which have a traceback as any."""
    own = type("UsageError", (Exception,), {})
    errors = [None, UsageError("magic"), own("cell"), ValueError("cell")]
    assert [shows_lines(error) for error in errors] == [False, False, True, True]
