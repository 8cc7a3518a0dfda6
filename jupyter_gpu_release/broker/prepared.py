"""The ledger's busiest writes, compiled once: SQLAlchemy's way to a known statement costs more than SQLite's work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.sql.dml import Insert, Update

_DIALECT = sqlite.dialect(paramstyle="qmark")


class Prepared:
    """One statement. Its columns are of types that SQLite takes as they are (text, numbers, bytes)."""

    def __init__(self, statement: Insert | Update) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        self._text = str(compiled)
        self._names = list(compiled.positiontup or ())

    def execute(self, connection: Connection, values: Mapping[str, Any]) -> None:
        """Execute it with a value for each of its parameters; errors are SQLAlchemy's."""
        connection.exec_driver_sql(self._text, tuple([values[name] for name in self._names]))
