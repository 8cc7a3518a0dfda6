"""``jupyter gpu mcp`` where the extra is not installed."""

from __future__ import annotations

import sys

import pytest

from jupyter_gpu_release.cli.main import main


def test_without_the_extra_a_line_says_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "jupyter_gpu_release.assistant.server", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp"]) == 1
    assert capsys.readouterr().err == (
        "`jupyter gpu mcp` needs the package mcp (version 2), which is not installed here\n"
        "  → pip install 'jupyter-gpu-release[mcp]'\n"
    )
