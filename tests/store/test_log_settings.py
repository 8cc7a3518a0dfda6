"""Loggers that were set since a look at all of them are found without another look at all."""

from __future__ import annotations

import gc
import logging
import logging.handlers
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_gpu_release.adapters.stdlib import log_settings


def _by_config() -> None:
    import logging.config

    logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a fork server does; what the test does to loggers is undone."""
    for name in ("email.of_a_library", "email.made", "jgr_test_mine"):
        logging.getLogger(name)
    logging.getLogger("email.made").setLevel(logging.ERROR)
    found = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [(each, each.level, each.disabled, each.propagate, list(each.handlers)) for each in [logging.root, *found]]
    monkeypatch.setattr(logging.Logger, "__setattr__", object.__setattr__)
    monkeypatch.setattr(logging.Logger, "addHandler", logging.Logger.addHandler)
    monkeypatch.setattr(log_settings, "_watch", None)
    log_settings.watch_loggers()
    yield
    for logger, level, disabled, propagate, handlers in before:
        logger.level, logger.disabled, logger.propagate, logger.handlers[:] = level, disabled, propagate, handlers
    logging.disable(0)


@pytest.mark.parametrize(
    ("change", "is_usual"),
    [
        (lambda: None, True),
        (lambda: logging.getLogger("email.of_a_library").setLevel(logging.DEBUG), False),
        (lambda: setattr(logging.getLogger("email.of_a_library"), "disabled", True), False),
        (lambda: logging.getLogger("email.made").setLevel(logging.NOTSET), False),
        (lambda: logging.getLogger("email.of_a_library").addHandler(logging.StreamHandler()), False),
        (lambda: setattr(logging.getLogger("email.of_a_library"), "propagate", False), False),
        (lambda: logging.getLogger("email.made").handlers.clear(), True),
        (lambda: logging.getLogger("email.new").setLevel(logging.INFO), False),
        (lambda: logging.getLogger("jgr_test_mine").addHandler(logging.StreamHandler()), False),
        (lambda: setattr(logging.getLogger("jgr_test_mine"), "propagate", False), False),
        (lambda: setattr(logging.getLogger("jgr_test_new"), "propagate", False), False),
        (lambda: logging.getLogger().setLevel(logging.DEBUG), False),
        (lambda: logging.disable(logging.INFO), False),
        (_by_config, False),
    ],
    ids=[
        "nothing",
        "level",
        "disabled",
        "level as usual",
        "handler of a library",
        "propagate of a library",
        "no handlers as before",
        "new of a library",
        "handler",
        "propagate",
        "new",
        "root",
        "disable",
        "config",
    ],
)
@pytest.mark.usefixtures("watched")
def test_what_was_set_since_is_read_as_by_a_look_at_all(
    change: Callable[[], None], is_usual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = log_settings.read(logging)
    change()
    quick = log_settings.read(logging)
    monkeypatch.setattr(log_settings, "_watch", None)
    whole = log_settings.read(logging)
    assert _plain(quick) == _plain(whole)
    assert (_plain(quick) == _plain(first)) is is_usual


@pytest.mark.usefixtures("watched")
def test_loggers_that_logging_does_not_know_are_not_read_nor_kept() -> None:
    first = _plain(log_settings.read(logging))
    alone, twin = logging.Logger("jgr_test_alone", logging.DEBUG), logging.Logger("email.made", logging.DEBUG)
    assert _plain(log_settings.read(logging)) == first
    assert first["logger email.made"][0] == logging.ERROR
    held = weakref.ref(alone), weakref.ref(twin)
    del alone, twin
    gc.collect()
    assert [reference() for reference in held] == [None, None]


@pytest.mark.usefixtures("watched")
def test_loggers_of_libraries_are_looked_at_only_if_they_were_set_since(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def state(logger: logging.Logger) -> Any:
        looked_at.append(logger.name)
        return usual(logger)

    usual = log_settings._state
    monkeypatch.setattr(log_settings, "_state", state)
    log_settings.read(logging)
    assert ("email.of_a_library" in looked_at, "jgr_test_mine" in looked_at) == (False, True)
    logging.getLogger("email.of_a_library").setLevel(logging.DEBUG)
    log_settings.read(logging)
    assert "email.of_a_library" in looked_at


@pytest.mark.usefixtures("watched")
def test_what_stays_in_its_process_is_named_and_a_handler_that_does_nothing_is_not() -> None:
    logger, mine = logging.getLogger("jgr_test_mine"), logging.handlers.SocketHandler("here", 9)
    logger.handlers += [logging.NullHandler(), mine]
    found = log_settings.read(logging)
    staying = {name: value.thing for name, value in found.items() if isinstance(value, log_settings.Staying)}
    assert {name: thing for name, thing in staying.items() if "jgr_test_mine" in name} == {
        "SocketHandler of jgr_test_mine": mine
    }


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Without what stays in its process, which is another object each time."""
    return {name: value for name, value in found.items() if not isinstance(value, log_settings.Staying)}
