"""Addresses that pages had before: ``moved.json`` says where each page, and each of its headings, is now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).parents[1] / "moved.json"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Moved</title>
<script>
const places = {places};
location.replace(places[location.hash.slice(1)] ?? places[""]);
</script>
<noscript><meta http-equiv="refresh" content="0; url={front}"></noscript>
</head>
<body><p>This page is now <a href="{front}">here</a>.</p></body>
</html>
"""


def redirects() -> dict[str, str]:
    """The HTML of each old page, by its name."""
    table: dict[str, dict[str, str]] = json.loads(_TABLE.read_text())
    return {page: _redirect(places) for page, places in table.items()}


def _redirect(places: dict[str, str]) -> str:
    found = {heading: place.replace(".md", ".html") for heading, place in places.items()}
    return _PAGE.format(places=json.dumps(found), front=found[""])


def _write(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for page, html in redirects().items():
            Path(app.outdir, f"{page}.html").write_text(html)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
