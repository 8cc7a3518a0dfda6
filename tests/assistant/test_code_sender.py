"""Refusals before anything is sent: options, names of inputs, code that is no Python."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_gpu_release.assistant.code_sender import CodeSender
from jupyter_gpu_release.errors import GpuReleaseError, NoSuchRunError, OptionError, StillTrainingError
from jupyter_gpu_release.protocol.rest import RunRow
from jupyter_gpu_release.protocol.runs import RunView, ValueInfo

RUN = "20261129-101112-9f3a12bc"


class _Gateway(io.StringIO):
    """Knows one run."""

    def __init__(self, row: RunRow) -> None:
        super().__init__()
        self._row = row

    def run(self, run: str) -> RunRow:
        assert run == RUN
        return self._row

    def view(self, run: str) -> RunView:
        return RunView(run=run, user="ann", state=self._row.state, gpus=1)


def _sender(state: str = "succeeded") -> CodeSender:
    row = RunRow(run=RUN, user="ann", state=state, gpus=1, results=[ValueInfo("net", "Linear", 10)])
    open_gateway: Callable[[], Any] = lambda: _Gateway(row)  # noqa: E731
    return CodeSender(open_gateway)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ({"keep": "5m"}, "keeps no GPU"),
        ({"export": "AWS_SECRET_ACCESS_KEY"}, "stay there"),
        ({"async": True}, "always returns"),
        ({"gpu": 2}, "did you mean gpus"),
        ({"timeout": "soon"}, ""),
    ],
)
def test_what_is_not_for_an_assistant_says_what_is(written: dict[str, Any], hint: str) -> None:
    with pytest.raises(OptionError) as refused:
        _sender().options(1, written)
    assert hint in refused.value.hint
    assert refused.value.hint


def test_options_are_those_of_cells() -> None:
    options = _sender().options("h100:2", {"timeout": "10m", "env": {"A": "1"}, "detach": True, "out": ["net"]})
    assert (options.ask.gpus, options.ask.gpu_type, options.timeout_s) == (2, "h100", 600)
    assert (options.env, options.detach, options.out) == ({"A": "1"}, True, ("net",))


def test_a_configured_keep_holds_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = _sender()
    sender.settings.defaults = {"keep": "auto"}
    with pytest.raises(OptionError, match="configuration file"):
        sender.options(1, {})


@pytest.mark.parametrize(
    ("state", "inputs", "error", "text"),
    [
        ("running", {"net": RUN}, StillTrainingError, "has no results yet"),
        ("succeeded", {"model": RUN}, NoSuchRunError, "made no `model`; it made net"),
        ("succeeded", {"not a name": f"{RUN}:net"}, OptionError, "is no name"),
        ("succeeded", {"x = 1; y": f"{RUN}:net"}, OptionError, "is no name"),
    ],
)
def test_inputs_that_are_not_there(state: str, inputs: dict[str, str], error: type[GpuReleaseError], text: str) -> None:
    sender = _sender(state)
    with pytest.raises(error, match=text) as refused:
        sender.submit("print(1)", sender.options(1, {}), inputs)
    assert refused.value.hint


def test_what_is_no_python_is_said_with_its_line() -> None:
    sender = _sender()
    with pytest.raises(OptionError, match="line 2: ") as refused:
        sender.submit("x = 1\n!nvidia-smi", sender.options(1, {}), {})
    assert "without magics" in refused.value.hint


def test_the_line_of_inputs_is_made_of_names_and_texts_alone() -> None:
    from jupyter_gpu_release.assistant.code_sender import _loading

    sender = _sender()
    inputs = {"model": f"{RUN}:net"}
    line = _loading([sender._used("model", inputs["model"])], inputs)
    assert line == f"import jupyter_gpu_release as gpu_release; model = gpu_release.load('{RUN}')['net']\n"
