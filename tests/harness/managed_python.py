"""A Python as uv fetches it: an archive of the one that runs the tests, and a loopback server that has it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import socketserver
import sys
import sysconfig
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path, PurePath

VERSION = "{}.{}".format(*sys.version_info)
#: of the standard library, what a test does without
_LEFT_OUT = frozenset(
    {"test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "tkinter", "__pycache__"}
)


def pack_python(path: Path) -> bytes:
    """Archive with the layout of python-build-standalone; returns its content."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(os.path.realpath(sys._base_executable), f"python/bin/python{VERSION}")  # type: ignore[attr-defined]
        archive.add(sysconfig.get_path("stdlib"), f"python/lib/python{VERSION}", filter=_without_the_rest)
    return path.read_bytes()


def _without_the_rest(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = PurePath(entry.name).parts
    is_left_out = any(part in _LEFT_OUT or part.startswith("config-") for part in parts)
    return None if is_left_out else entry


class Mirror:
    """Serves one archive. ``variables``: for uv to take Pythons from there alone."""

    def __init__(self, url: str, folder: Path, archive: bytes) -> None:
        entry = {
            "name": "cpython",
            "arch": {"family": platform.machine(), "variant": None},
            "os": "linux",
            "libc": "gnu",
            **dict(zip(("major", "minor", "patch"), sys.version_info, strict=False)),
            "prerelease": "",
            "url": f"{url}/python.tar.gz",
            "sha256": hashlib.sha256(archive).hexdigest(),
            "variant": None,
            "build": "20260101",
        }
        key = f"cpython-{platform.python_version()}-linux-{platform.machine()}-gnu"
        listed = folder / "downloads.json"
        listed.write_text(json.dumps({key: entry}))
        self.variables = {"PATH": "/nowhere", "HOME": str(folder), "UV_PYTHON_DOWNLOADS_JSON_URL": str(listed)}
        #: set when a client has got what it gets
        self.has_sent = threading.Event()


@contextlib.contextmanager
def python_mirror(folder: Path, archive: bytes, *, is_whole: bool = True) -> Iterator[Mirror]:
    """``is_whole``: else half of the archive comes, and then nothing."""
    over = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(archive)}\r\nConnection: close\r\n\r\n"
            self.wfile.write(head.encode() + archive[: len(archive) if is_whole else len(archive) // 2])
            mirror.has_sent.set()
            if not is_whole:
                over.wait()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        mirror = Mirror(f"http://127.0.0.1:{server.server_address[1]}", folder, archive)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield mirror
        finally:
            over.set()
            server.shutdown()
