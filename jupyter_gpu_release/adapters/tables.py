"""Polars and PyArrow: tables and columns, which pickle takes along."""

from __future__ import annotations

from .adapter import Adapter


class TablesAdapter(Adapter):
    """Tables are values."""

    gives_values = True


ADAPTER = TablesAdapter()
