"""Whose account a user of the gateway has."""

from __future__ import annotations

import asyncio
import os
import pwd
from functools import partial
from pathlib import Path

import pytest
from unix_users import ANN, BOB, SERVICE, needs_root, public_folder

from jupyter_gpu_release.errors import ClusterError, StoreError
from jupyter_gpu_release.gateway.auth.unix_users import UnixUsers
from jupyter_gpu_release.gateway.db.database import open_ledger
from jupyter_gpu_release.gateway.db.store_identity import meant_store
from jupyter_gpu_release.gateway.runs.manifests import Manifests
from jupyter_gpu_release.host.threads import StoreThreads
from jupyter_gpu_release.protocol.config import GatewayConfig, StoreMode, UnixUser
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.store.identity import expect_store, read_identity
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.private_stores import acting
from jupyter_gpu_release.store.run_folders import read_manifest, write_manifest

_CAROL = UnixUser("carol", 1003, 1003)


def _find(user: str, mode: StoreMode = StoreMode.OWNER, times: int = 1, **table: str | UnixUser) -> UnixUser | None:
    config = GatewayConfig("", "", "", "", "", store_mode=mode, unix_users=table)

    async def ask() -> UnixUser | None:
        users = UnixUsers(config, StoreThreads())
        for _ in range(times - 1):
            await users.find(user)
        return await users.find(user)

    return asyncio.run(ask())


def test_a_user_has_the_account_of_the_name_or_the_one_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def getpwnam(name: str) -> pwd.struct_passwd:
        asked.append(name)
        return pwd.struct_passwd((name, "x", 2001, 2002, "", f"/home/{name}", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid, 7])
    ann = UnixUser("ann", 2001, 2002, [2002, 7], "/home/ann", "/bin/sh")
    assert _find("ann", times=3) == ann
    assert asked == ["ann"]
    found = _find("ann", ann="anna")
    assert found is not None
    assert found.name == "anna"
    assert _find("carol", carol=_CAROL) == _CAROL


def test_a_number_is_an_account_in_the_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may be called as another one's account is numbered: that gives nobody its files."""
    theirs = pwd.struct_passwd(("ann", "x", 2001, 2002, "", "/home/ann", "/bin/sh"))
    asked: list[str] = []

    def getpwnam(name: str) -> pwd.struct_passwd:
        asked.append(name)
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: theirs)
    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid])
    with pytest.raises(ClusterError, match="2001 is no Unix user"):
        _find("2001")
    assert _find("2001", StoreMode.GROUP) is None
    assert asked == ["2001", "2001"]
    for mode in (StoreMode.OWNER, StoreMode.GROUP):
        assert _find("bob", mode, bob="2001") == UnixUser("ann", 2001, 2002, [2002], "/home/ann", "/bin/sh")


def test_a_user_has_the_limits_of_all_but_for_own_ones() -> None:
    config = GatewayConfig(
        "",
        "",
        "",
        "",
        "",
        store_mode=StoreMode.OWNER,
        unix_users={"carol": _CAROL, "dave": UnixUser("dave", 1004, 1004)},
        user_limits={"*": {"nproc": (100, 100), "core": (0, 0)}, "carol": {"nproc": (5, 6)}},
    )

    async def ask() -> list[dict[str, tuple[int, int]]]:
        users = UnixUsers(config, StoreThreads())
        found = [await users.find("carol"), await users.find("dave")]
        return [user.limits for user in found if user is not None]

    assert asyncio.run(ask()) == [{"nproc": (5, 6), "core": (0, 0)}, {"nproc": (100, 100), "core": (0, 0)}]


@pytest.mark.parametrize(
    ("user", "why"), [("nobody-is-called-so", "is no Unix user"), ("root", "account of the system")]
)
def test_who_has_no_account_of_a_person_runs_no_cell_as_an_owner(user: str, why: str) -> None:
    with pytest.raises(ClusterError, match=why) as raised:
        _find(user)
    assert "JUPYTER_GPU_UNIX_USERS" in raised.value.hint
    assert _find(user, StoreMode.GROUP) is None


def test_an_account_of_the_system_may_be_named_but_never_root() -> None:
    found = _find("service", service="daemon")
    assert found is not None
    assert 0 < found.uid < 1000
    with pytest.raises(ClusterError, match="account of the system"):
        _find("service", service="root")


@needs_root
@pytest.mark.parametrize("root_of", [0, SERVICE], ids=["root's own", "of a server that gives root no rights"])
def test_each_user_gets_a_store_in_which_nothing_is_roots(root_of: int) -> None:
    """Manifests too: the gateway writes them as the user. A link that she lays leads it nowhere."""
    with public_folder() as folder:
        store, secret = folder / "store", folder / "secret"
        store.mkdir(mode=0o711)
        os.chown(store, root_of, root_of)
        secret.write_text("root's")
        config = GatewayConfig(
            str(folder),
            str(store),
            "",
            "",
            "",
            store_mode=StoreMode.OWNER,
            unix_users={"ann": UnixUser("ann", ANN, ANN), "bob": UnixUser("bob", BOB, BOB)},
        )
        engine = open_ledger(folder / "ledger.sqlite")

        async def use() -> None:
            threads = StoreThreads(acting=acting)
            ident = await meant_store(engine, config, threads)
            engine.dispose()
            users = UnixUsers(config, threads)
            manifests = Manifests(store, threads, users.store_of)
            for user, uid in (("ann", ANN), ("bob", BOB)):
                own = await users.make_store(user, ident)
                assert own == store / "users" / str(uid)
                assert own.stat().st_mode & 0o777 == 0o700
                run = new_run_id()
                await manifests.create_folder(user, run)
                paths = RunPaths(Path(manifests.folder(user, run)))
                await threads.begin(partial(write_manifest, paths, {"run": run}, durable=False), at=own)
                assert read_identity(own) == ident
                paths.manifest.unlink()
                paths.manifest.symlink_to(secret)
                secret.chmod(0o600)
                with pytest.raises(StoreError, match="Permission denied"):
                    await threads.begin(read_manifest, paths, at=own)
                assert {path.lstat().st_uid for path in (own, *own.rglob("*")) if not path.is_symlink()} == {uid}

        asyncio.run(use())
        assert {path.stat().st_uid for path in (store, store / "users", store / "runs")} == {root_of}
        expect_store(store, "")
