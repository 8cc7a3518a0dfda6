"""Packages that somebody writes down for a cell: names and versions, and nothing that could hold a password."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.options.requested_packages import read_requests
from jupyter_gpu_release.options.run_options import build_options


def test_packages_that_are_asked_for() -> None:
    assert read_requests(" einops==0.8.1  timm ") == ["einops==0.8.1", "timm"]
    assert read_requests("") == []
    assert build_options({"pip": ["einops==0.8.1 timm"]}).pip == "einops==0.8.1 timm"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pkg@https://ann:secret@host/x.whl", "a URL or a path"),
        ("https://ann:secret@host/x.whl", "a URL or a path"),
        ("git+https://secret@host/x", "a URL or a path"),
        ("pkg @ git+ssh://secret@host/x", "a URL or a path"),
        ("./folder/secret", "a URL or a path"),
        ("==1", "==1"),
        ("a<<2", "a<<2"),
    ],
)
def test_anything_else_is_refused_without_repeating_secrets(text: str, shown: str) -> None:
    """Wherever options are written: a notebook's defaults are shown as they are."""
    with pytest.raises(OptionError) as refused:
        build_options({"pip": [f"einops {text}"]})
    assert refused.value.message == f"--pip {shown}: not a package's name and versions"
    assert "secret" not in str(refused.value)
