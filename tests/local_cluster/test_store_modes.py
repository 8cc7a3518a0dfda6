"""The operator's words about Unix users on the store: what they mean, which mistakes are named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.local_cluster.settings import gateway_config
from jupyter_gpu_release.local_cluster.store_modes import GROUP, MODE, USERS, store_settings
from jupyter_gpu_release.protocol.config import StoreMode, UnixUser


def test_the_table_names_accounts_by_name_number_or_as_a_whole(tmp_path: Path) -> None:
    table = tmp_path / "users.yaml"
    table.write_text("ann: anna\nbob: 1002\ncarol: {uid: 1003, gid: 1003, home: /home/carol}\n")
    found = store_settings({MODE: "group", GROUP: "vision", USERS: str(table)})
    assert found["store_mode"] is StoreMode.GROUP
    assert found["unix_users"] == {
        "ann": "anna",
        "bob": "1002",
        "carol": UnixUser("carol", 1003, 1003, home="/home/carol"),
    }
    assert store_settings({})["store_mode"] is StoreMode.SINGLE


def test_limits_are_everybodys_or_one_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    table = tmp_path / "users.yaml"
    table.write_text("""
"*": {limits: {nproc: 4096, nofile: [1024, 65536], core: 0}}
ann: {account: anna, limits: {as: 64GiB, cpu: 2h}}
bob: {limits: {nproc: unlimited, fsize: [1MiB, unlimited]}}
carol: {uid: 1003, gid: 1003, limits: {nproc: 10}}
""")
    found = store_settings({MODE: "owner", USERS: str(table)})
    assert found["unix_users"] == {"ann": "anna", "carol": UnixUser("carol", 1003, 1003)}
    assert found["user_limits"] == {
        "*": {"nproc": (4096, 4096), "nofile": (1024, 65536), "core": (0, 0)},
        "ann": {"as": (64 << 30, 64 << 30), "cpu": (7200, 7200)},
        "bob": {"nproc": (-1, -1), "fsize": (1 << 20, -1)},
        "carol": {"nproc": (10, 10)},
    }


@pytest.mark.parametrize(
    ("mode", "table", "mistake"),
    [
        ("shared", "", "not one of single, group, owner"),
        ("group", "", "which group"),
        ("single", "- ann", "no table of users"),
        ("single", "ann: [1]", "ann.*no account"),
        ("single", "ann: {uid: 5}", "ann.*gid"),
        ("single", "ann: {uid: 5, gid: 5, pw: x}", "ann.*pw"),
        ("single", "ann: {limits: {nproc: 5}}", "limits are for cells that run as their owners"),
        ("owner", "ann: {limits: 5}", "ann: 5 are no limits"),
        ("owner", "ann: {limits: {disk: 5}}", "ann: disk: no such limit"),
        ("owner", "ann: {limits: {nproc: many}}", "ann: nproc: 'many' is no number"),
        ("owner", "ann: {limits: {nproc: -1}}", "ann: nproc: -1 is no number"),
        ("owner", "ann: {limits: {nofile: [10, 20, 30]}}", "ann: nofile: .* no limit"),
        ("owner", "ann: {limits: {nofile: [20, 10]}}", "ann: nofile: the soft limit is above the hard one"),
        ("owner", "ann: {limits: {as: much}}", "ann: as much: not a size"),
    ],
)
def test_a_mistake_is_named(
    tmp_path: Path, mode: str, table: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "users.yaml").write_text(table)
    with pytest.raises(OptionError, match=mistake):
        store_settings({MODE: mode, USERS: str(tmp_path / "users.yaml") if table else ""})


def test_only_root_can_have_cells_run_as_their_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(OptionError, match="where root starts the cluster"):
        store_settings({MODE: "owner"})


@pytest.mark.parametrize(
    ("mode", "named", "spool"),
    [("single", "", "/home/spool"), ("single", "/var/spool/gpu", "/var/spool/gpu"), ("owner", "", "")],
)
def test_results_wait_in_the_home_unless_the_operator_names_a_folder_or_others_write_them(
    mode: str, named: str, spool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv(MODE, mode)
    if named:
        monkeypatch.setenv("JUPYTER_GPU_SPOOL", named)
    found = gateway_config(HomePaths(tmp_path), spool=Path("/home/spool"), store="", runtime="", ray_address="")
    assert found.spool == spool
