"""Documents for programs say all their fields, also when there is nothing in them."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.protocol.runs import FileInfo, ValueInfo


@pytest.mark.parametrize("row", [FileInfo("empty"), ValueInfo("nothing", "NoneType")])
def test_a_size_of_zero_is_said(row: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(row))["bytes"] == 0
