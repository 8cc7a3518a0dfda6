"""Advice on the notebook in front, from the content that the page sends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from server_bed import API, ServerBed

from jupyter_gpu_release.server_extension.api.openapi import FILE


def _code(source: str, **metadata: Any) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": metadata, "source": source}


def _notebook(*cells: Any, **metadata: Any) -> dict[str, Any]:
    return {"notebook": {"cells": list(cells), "metadata": metadata}, "path": "mine.ipynb"}


def _timed(minute: int) -> dict[str, Any]:
    times = {"iopub.status.busy": f"2026-01-01T00:{minute}:00Z", "iopub.status.idle": f"2026-01-01T00:{minute + 1}:00Z"}
    return {"execution": times}


@pytest.mark.thorough
def test_it_says_which_cells_are_worth_a_gpu_cell_and_what_travels(server: ServerBed, tmp_path: Path) -> None:
    text = {"cell_type": "markdown", "metadata": {}, "source": "# Title"}
    make = _code("import keras\nm = keras.Sequential()\nX = [1]", **_timed(10))
    fit = _code(f"h = m.fit(X)\nopen({str(tmp_path / 'ran')!r}, 'w')", **_timed(20))
    answer = server.post("advice", _notebook(text, make, fit, _code("print(h)", **_timed(50))))
    assert answer.status_code == 200, answer.text
    document = answer.json()
    schema = json.loads(FILE.read_text())
    described = schema["paths"][f"{API}/advice"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(document, described | {"components": schema["components"]})
    [cell] = document["cells"]
    assert (cell["at"], cell["number"], cell["advice"], cell["line"]) == (2, 2, "gpu", "%%gpu_train")
    assert (cell["sent"], cell["back"], cell["took_s"]) == (["X", "m"], ["h", "m"], 60.0)
    assert (document["plain_s"], document["with_gpu_cells_s"]) == (31 * 60, 60)
    assert "1 of 3 cells is worth a GPU cell." in document["conclusion"]
    assert not (tmp_path / "ran").exists()


def test_what_cannot_be_read_is_said_and_harms_nobody(server: ServerBed) -> None:
    before = len(server.log())
    nested = _code("-" * 200_000 + "1")
    [cell] = server.post("advice", _notebook(nested, _code("x = 1"))).json()["cells"]
    assert (cell["advice"], cell["verdict"]) == ("unread", "not read")
    for wrong in (
        {},
        {"notebook": {"cells": 3}},
        _notebook("x", {"cell_type": "code", "source": 7}),
        _notebook(_code("x"), language_info={"name": "R"}),
    ):
        refused = server.post("advice", wrong)
        assert refused.status_code in (200, 400), refused.text
    assert "in r" in refused.json()["message"]
    assert server.post("advice", _notebook(_code("#" * (2 << 20)))).status_code == 400
    deep = b'{"notebook": {"cells": ' + b"[" * 50_000
    assert server.http.post(f"{API}/advice", content=deep).status_code == 400
    assert server.get("health")["ok"] is True
    assert "Traceback" not in server.log()[before:]
