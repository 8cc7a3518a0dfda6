"""Variables of the frames of an error, when not all of them may travel."""

from __future__ import annotations

from typing import Any

from jupyter_gpu_release.node.values.error_frames import collect_frames
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

_CELL = """
def inner():
    large = bytes(100_000)
    raise ValueError("in the middle")

def outer():
    large = bytes(100_000)
    inner()

outer()
"""


def test_what_is_nearest_to_the_error_travels_first() -> None:
    namespace: dict[str, Any] = {}
    try:
        exec(_CELL, namespace)
    except ValueError as error:
        found = collect_frames(error, namespace, NamespaceInfo(namespace, at_home=True), limit_bytes=150_000)
    assert found is not None
    assert [frame.name for frame in found.errors[0].frames] == ["<module>", "outer", "inner"]
    assert list(found.texts) == ["1 large"]
    assert "too large to be sent" in found.texts["1 large"]
