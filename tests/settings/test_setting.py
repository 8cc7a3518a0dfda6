"""The table of settings: what is read, what is refused and how, and that nothing stands beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.settings.flags import COMMANDS
from jupyter_gpu_release.settings.setting import Setting, Unit
from jupyter_gpu_release.settings.table import CLUSTER, RETENTION, SECTIONS

REPOSITORY = Path(__file__).parents[2]
#: what processes of ours tell each other, and cells
_OWN = {f"JUPYTER_GPU_{name}" for name in ("CLUSTER", "HUB_SERVICE", "IDS", "KERNEL", "NODE", "RUN")}


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (CLUSTER["node_grace_s"], "2m", 120.0),
        (CLUSTER["reconnect_grace_s"], "45", 45.0),
        (CLUSTER["max_keep_s"], "0", 0),
        (CLUSTER["persist_memory_bytes"], "8GiB", 8 << 30),
        (CLUSTER["persist_bytes_per_s"], "200MB", 200_000_000),
        (CLUSTER["user_requests_per_s"], "12.5", 12.5),
        (CLUSTER["preload"], " torch, numpy.linalg ,", ["torch", "numpy.linalg"]),
        (CLUSTER["spool"], "/var/tmp/x", "/var/tmp/x"),
        (RETENTION["keep"], "20", 20),
        (COMMANDS["start"].flags["port"], "0", 0),
    ],
)
def test_what_is_written_is_read_with_its_unit(setting: Setting, text: str, value: object) -> None:
    assert setting.read(text, "X=") == value


@pytest.mark.parametrize(
    ("setting", "text", "form", "hint"),
    [
        (CLUSTER["node_grace_s"], "soon", "a duration", "60s"),
        (CLUSTER["gc_interval_s"], "9s", "a duration of at least 10 s", "1h"),
        (CLUSTER["persist_memory_bytes"], "lots", "a size", "8GiB"),
        (CLUSTER["user_requests_per_s"], "0.5", "a number of at least 1", "200"),
        (CLUSTER["user_requests_per_s"], "nan", "a number of at least 1", "200"),
        (CLUSTER["preload"], "torch,not a module", "the name of a module", "torch,numpy,pandas"),
        (CLUSTER["spool"], "var/tmp", "an absolute path", "/var/tmp/spool"),
        (RETENTION["keep"], "-1", "a number of runs", "20, or 0 for no limit"),
        (COMMANDS["start"].flags["port"], "65536", "a port from 0 to 65535", "8765 (1 to 65535, or 0 for a free one)"),
        (COMMANDS["token create"].flags["role"], "root", "one of user, admin", "user"),
    ],
)
def test_what_cannot_be_is_refused_with_thing_reason_and_hint(
    setting: Setting, text: str, form: str, hint: str
) -> None:
    with pytest.raises(OptionError, match=f"^X=.*: not {re.escape(form)}") as refused:
        setting.read(text, "X=")
    assert refused.value.hint == f"write X={hint}"


def test_without_a_variable_the_default_holds() -> None:
    assert CLUSTER["node_grace_s"].given({}) == 60.0
    assert CLUSTER["node_grace_s"].given({"JUPYTER_GPU_NODE_GRACE": " "}) == 60.0
    assert CLUSTER["node_grace_s"].given({"JUPYTER_GPU_NODE_GRACE": "5s"}) == 5.0


def _settings() -> list[tuple[str, Setting]]:
    return [(f"{section.title}: {name}", setting) for section in SECTIONS for name, setting in section.settings.items()]


def test_each_setting_says_what_it_is_and_how_to_write_it() -> None:
    for name, setting in _settings():
        assert len(setting.help) > 10, name
        read = setting.variable and setting.unit in (Unit.SECONDS, Unit.BYTES, Unit.COUNT, Unit.NUMBER)
        assert setting.example or not read or name == "JupyterHub: lifetime", name
        lacks = setting.default in ("", [], (), {}) and not setting.otherwise
        assert not lacks or name.startswith("jupyter gpu"), f"{name}: no word for its default"


def test_no_variable_is_read_that_is_not_in_the_table() -> None:
    known = {setting.variable for _, setting in _settings()} | _OWN
    code = "\n".join(path.read_text() for path in (REPOSITORY / "jupyter_gpu_release").rglob("*.py"))
    assert set(re.findall(r'"(JUPYTER_GPU_[A-Z_]*[A-Z])"', code)) <= known
