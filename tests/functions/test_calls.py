"""What can be said of a call before anything is sent: whose keywords are whose, and what cannot be launched."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jupyter_gpu_release.errors import CannotSendError, OptionError, WrongCallError
from jupyter_gpu_release.functions.api import gpu, launch
from jupyter_gpu_release.functions.arguments import Call, divide_keywords, hint_to_launch, options_as_text
from jupyter_gpu_release.options.run_options import build_options


def train(data: Any, epochs: int = 1, *, name: str = "net") -> None:
    """A function that has a parameter called like an option."""


def steps() -> Any:
    yield 1


async def fetch(url: str) -> None:
    """One that is awaited there."""


def test_options_are_launchs_own_and_the_rest_is_the_functions():
    own, given = divide_keywords(train, ["d"], {}, {"gpus": 2, "epochs": 3, "memory": "8GiB"})
    assert own == {"gpus": 2, "memory": "8GiB"}
    assert given == {"epochs": 3}
    own, given = divide_keywords(train, ["d"], {"name": "theirs"}, {"name": "run's"})
    assert own == {"name": "run's"}
    assert given == {"name": "theirs"}
    assert divide_keywords(lambda name: None, ["theirs"], {}, {"name": "run's"})[0] == {"name": "run's"}


def test_a_keyword_that_could_be_either_is_refused():
    with pytest.raises(OptionError, match=r"name= could be launch's own or a parameter of train[^$]*kwargs=\{'name'"):
        divide_keywords(train, ["d"], {}, {"name": "which?"})


def test_python_values_become_options():
    own = {
        "gpus": "h100:2",
        "ranks": 2,
        "cpus": 1.5,
        "memory": 2**30,
        "timeout": timedelta(minutes=2),
        "wait": 10,
        "env": {"A": 1, "B": "x=y"},
        "label": ["zone=a"],
        "fresh": True,
        "pin": False,
        "name": None,
        "gather": True,
        "send": ["api_token", "more"],
        "skip": ("a", "b"),
    }
    options = build_options(options_as_text(own))
    assert (options.ask.gpus, options.ask.gpu_type, options.ask.ranks, options.ask.cpus) == (2, "h100", 2, 1.5)
    assert (options.ask.memory_bytes, options.timeout_s, options.wait_s) == (2**30, 120.0, 10.0)
    assert (options.env, options.ask.labels) == ({"A": "1", "B": "x=y"}, {"zone": "a"})
    assert (options.fresh, options.pin, options.name, options.gather) == (True, False, "", ("result",))
    assert (options.send, options.send_more, options.skip) == (None, ("api_token", "more"), ("a", "b"))


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"gpus": -1}, "--gpus -1"),
        ({"gpus": 1.5}, "--gpus 1.5: several"),
        ({"gpus": True}, "a bool is no value"),
        ({"memory": "lots"}, "--memory lots: not a size"),
        ({"gather": "x"}, "gather='x': not True or False"),
        ({"fresh": "yes"}, "fresh='yes': not True or False"),
        ({"cache": True}, "there is no such option"),
        ({"timeout": object}, "a type is no value"),
    ],
)
def test_wrong_options_are_refused_by_name(own: dict[str, Any], words: str):
    with pytest.raises(OptionError, match=words):
        build_options(options_as_text(own))


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "kind", "words"),
    [
        (42, (), {}, CannotSendError, r"cannot launch 42: it is no function[^$]*not launch\(train\(data\)\)"),
        (steps, (), {}, CannotSendError, "steps: it yields values one by one"),
        (train, (), {}, TypeError, r"train\(\) missing a required argument: 'data'"),
        (train, ("d",), {"epoch": 2}, TypeError, "unexpected keyword argument 'epoch'"),
        (train, ("d",), {"gpu": 2}, WrongCallError, r"did you mean launch's own gpus=\?"),
        (train, ("d",), {"num_gpus": 2}, TypeError, r"did you mean launch's own gpus=\?"),
        (train, ("d",), {"retry": 2}, TypeError, "launch's own retries=?"),
        (
            train,
            ("d",),
            {"out": "x"},
            TypeError,
            "argument 'out'\n  → what comes back from a function is what it returns$",
        ),
        (train, ("d",), {"cache": True}, TypeError, "argument 'cache'\n  → each call of a function runs"),
    ],
)
def test_what_cannot_be_called_is_said_at_once(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kind: type[Exception], words: str
):
    with pytest.raises(kind, match=words):
        Call(function, args, kwargs, hint_to_launch)


@pytest.mark.parametrize(
    ("function", "name", "waits"),
    [
        (train, "train", False),
        (functools.partial(train, 1), "train", False),
        (lambda data: 0, "<lambda>", False),
        (fetch, "fetch", True),
        (sum, "sum", False),
    ],
)
def test_the_statement_calls_with_values_under_names_of_ours(function: Callable[..., Any], name: str, waits: bool):
    call = Call(function, ([1, 2],)) if function is not fetch else Call(function, (), {"url": "u"})
    assert call.name == name
    seen: list[Any] = []
    names = {**call.values, "__gpu_function__": lambda *args, **kwargs: seen.append((args, kwargs))}
    exec(call.statement.replace("await ", ""), names)
    assert ("await " in call.statement) == waits
    assert seen == ([(([1, 2],), {})] if not waits else [((), {"url": "u"})])


def test_arguments_are_called_by_their_parameters_names():
    labels = Call(train, ("d", 2), {"name": "n"}).labels
    assert list(labels.values()) == ["train", "data", "epochs", "name"]


def test_the_decorator_refuses_what_is_no_option_and_no_function():
    with pytest.raises(OptionError, match="write @gpu"):
        gpu(2)  # type: ignore[call-overload]
    for key, words in [
        ("gpu", r"did you mean gpus=\?$"),
        ("n", "the options are cpus,"),
        ("cache", "each call of a function runs"),
    ]:
        with pytest.raises(OptionError, match=f"^{key}=: there is no such option\n  → {words}"):
            gpu(**{key: 2})
    with pytest.raises(OptionError, match="above a function"):
        gpu(gpus=2)(3)  # type: ignore[type-var]


def test_others_see_a_decorated_coroutine_function_as_one():
    async def later() -> int:
        return 1

    assert inspect.iscoroutinefunction(gpu(later)) is (sys.version_info >= (3, 12))
    assert not inspect.iscoroutinefunction(gpu(train))


def test_a_wrong_call_of_a_decorated_function_ends_at_the_callers_line():
    for call, words in [
        (lambda: gpu(train)("d", gpus=2), r"'gpus'\n  → gpus is an option, no argument: launch\(train, …, gpus=2\),"),
        (lambda: gpu(train).launch("d", num_gpus=2), r"launch\(train, …, gpus=2\)"),
        (lambda: gpu(train)(), "missing a required argument: 'data'$"),
        (lambda: launch(gpu(train), gpus=2), "missing a required argument: 'data'$"),
    ]:
        with pytest.raises(TypeError, match=words) as caught:
            call()
        assert len(caught.traceback) == 3  # this test's two, and the function that was called
