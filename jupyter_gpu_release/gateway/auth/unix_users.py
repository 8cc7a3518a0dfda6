"""The Unix user that a user of the gateway is: by the operator's table, else the account of the same name.

Names are looked up in threads (a directory server may hang) and remembered for some minutes. Accounts of the system,
root above all, are nobody's unless the table names them. Only the table may name accounts by number: a user who is
called ``1001`` has not the account with that number.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

import msgspec

from ...errors import ClusterError
from ...host.accounts import account, first_uid, named_account
from ...host.threads import StoreThreads
from ...protocol.config import GatewayConfig, StoreMode, UnixUser
from ...store.private_stores import acting_for, make_own_folder, own_folder, own_folders
from ...store.run_folders import make_store

_KEPT_S = 300.0
_LOOKUPS_AT_ONCE = 4
_HINT = "the operator gives it one: an account of that name on the gateway's host, or a line in JUPYTER_GPU_UNIX_USERS"


class UnixUsers:
    """Asked on the gateway's event loop."""

    def __init__(self, config: GatewayConfig, threads: StoreThreads) -> None:
        self._mode = config.store_mode
        self._table = config.unix_users
        self._limits = config.user_limits
        self._threads = threads
        #: a store that hangs takes the others
        self._lookups = StoreThreads(_LOOKUPS_AT_ONCE)
        self._root = Path(config.store)
        self._made: set[int] = set()
        self._found: dict[str, tuple[UnixUser, float]] = {}

    @property
    def are_owners(self) -> bool:
        """Tell if cells run as these users, each with a store of their own."""
        return self._mode == StoreMode.OWNER

    def store_of(self, user: str) -> Path:
        """The store in which the user's runs are; may take a while where :meth:`find` has not asked before.

        Raises :class:`ClusterError` for a user without an account.
        """
        if not self.are_owners:
            return self._root
        found, _until_s = self._found.get(user, (None, 0.0))
        return own_folder(self._root, (found or self._look_up(user)).uid)

    def list_stores(self) -> list[Path]:
        """The stores of all users who have one."""
        return [folder for _uid, folder in own_folders(self._root)]

    async def make_store(self, user: str, ident: str) -> Path:
        """Like :meth:`store_of`, and the store is there, with the whole's identity; raises :class:`GpuReleaseError`."""
        found = await self.find(user)
        if not self.are_owners or found is None:
            return self._root
        if found.uid not in self._made:
            await self._threads.run(self._make, found, ident)
            self._made.add(found.uid)
        return own_folder(self._root, found.uid)

    def _make(self, user: UnixUser, ident: str) -> None:
        store = make_own_folder(self._root, user.uid, user.gid)
        with acting_for(store):
            make_store(store, ident)

    async def find(self, user: str) -> UnixUser | None:
        """The user's account; None where it does not matter that there is none (``group``).

        Raises :class:`ClusterError` for a user without an account.
        """
        found, until_s = self._found.get(user, (None, 0.0))
        if found is None or time.monotonic() > until_s:
            try:
                found = await self._lookups.run(self._look_up, user)
            except ClusterError:
                if self._mode == StoreMode.OWNER:
                    self._found.pop(user, None)
                    raise
                return None
            self._found[user] = found, time.monotonic() + _KEPT_S
        return found

    def _look_up(self, user: str) -> UnixUser:
        found = self._account_of(user)
        limits = self._limits.get("*", {}) | self._limits.get(user, {})
        return msgspec.structs.replace(found, limits=limits) if limits else found

    def _account_of(self, user: str) -> UnixUser:
        named = self._table.get(user)
        if isinstance(named, UnixUser) and named.uid:
            return named
        if named is None:
            found = named_account(user)
        elif isinstance(named, UnixUser):
            found = named
        else:
            found = account(named)
        if found is None:
            raise ClusterError(f"{user} is no Unix user on {socket.gethostname()}", hint=_HINT)
        if (user not in self._table and found.uid < first_uid()) or not found.uid:
            raise ClusterError(f"{user} is an account of the system (uid {found.uid}): no cell runs as it", hint=_HINT)
        return found
