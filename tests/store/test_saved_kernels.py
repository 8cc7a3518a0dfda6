"""Variables of kernels that were ended: kept for a while, and nothing else goes with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpu_release.store.saved_kernels import KEPT_S, saved_kernel_path, sweep_saved_kernels

_NOW_S = 2e9


def _write(store: Path, name: str, age_s: float) -> Path:
    path = saved_kernel_path(store, name)
    path.write_bytes(b"12345")
    os.utime(path, (_NOW_S - age_s, _NOW_S - age_s))
    return path


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    new, old, other = (
        _write(tmp_path, "new", KEPT_S - 1),
        _write(tmp_path, "old", KEPT_S + 1),
        tmp_path / "saved" / "mine",
    )
    torn = old.rename(old.with_name("torn.pkl.77.part"))
    _write(tmp_path, "old", KEPT_S + 1)
    other.write_bytes(b"")
    os.utime(other, (0, 0))
    assert sweep_saved_kernels(tmp_path, _NOW_S, dry_run=True) == 10
    assert torn.exists()
    assert sweep_saved_kernels(tmp_path, _NOW_S) == 10
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["mine", "new.pkl"]
    assert new.read_bytes() == b"12345"


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = _write(tmp_path / "elsewhere", "old", KEPT_S + 1)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "saved").symlink_to(elsewhere.parent)
    assert sweep_saved_kernels(tmp_path / "store", _NOW_S) == 0
    assert elsewhere.exists()


@pytest.mark.parametrize("mode", [0o700, 0o2770])
def test_in_a_store_that_a_group_shares_each_member_may_save(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    folder = saved_kernel_path(tmp_path, "k").parent
    assert folder.stat().st_mode & 0o7777 == mode


def test_there_may_be_none(tmp_path: Path) -> None:
    assert sweep_saved_kernels(tmp_path, _NOW_S) == 0
