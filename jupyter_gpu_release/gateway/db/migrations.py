"""Migrations: a ledger of an earlier version becomes one of this version, whole or not at all."""

from __future__ import annotations

import re

from sqlalchemy.engine import Connection

#: columns of ``runs`` in version 1 that repeat a run's view, and that no statement asked for
_REPEATED = "ranks|name|notebook|cell|priority|queue|simulated|reason|gpu_name"


def migrate(connection: Connection, version: int) -> None:
    """Bring the tables of ``version`` up to date. Called in a transaction that the caller begins and commits."""
    if version < 2:
        _let_repeated_columns_be_empty(connection)


def _let_repeated_columns_be_empty(connection: Connection) -> None:
    """Take their NOT NULL away, so that rows may be without them; what is there stays, and nothing reads it.

    The rows are not touched: to copy 200,000 of them took 37 s. SQLite documents this way for constraints
    (https://www.sqlite.org/lang_altertable.html#otheralter).
    """
    schema = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'runs'"
    sql = re.sub(rf"\b({_REPEATED}) (\w+) NOT NULL", r"\1 \2", connection.exec_driver_sql(schema).scalar_one())
    number = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql("UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = 'runs'", (sql,))
    connection.exec_driver_sql(f"PRAGMA schema_version = {number + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = OFF")
