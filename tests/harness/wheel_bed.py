"""Wheels that tests build themselves, and an index of them on loopback."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    files: Mapping[str, str] | None = None,
    *,
    requires: Sequence[str] = (),
    scripts: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel into ``folder``; without ``files`` it is one package that knows its version."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    contents = dict(files or {f"{stem}/__init__.py": f"__version__ = {version!r}\n"})
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\nName: nothing\n"
    is_pure = "true" if tag.endswith("any") else "false"
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n"
    if scripts:
        lines = "".join(f"{script} = {target}\n" for script, target in scripts.items())
        contents[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in contents.items():
            archive.writestr(inside, text)
    return path


#: code of a package for its own build: it needs no other package
_BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    info, name = "{stem}-{version}.dist-info", "{stem}-{version}-py3-none-any.whl"
    contents = {{
        "{stem}.py": "built = True\\n",
        info + "/METADATA": "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n",
        info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    contents[info + "/RECORD"] = "".join(path + ",,\\n" for path in [*contents, info + "/RECORD"])
    with zipfile.ZipFile(folder + "/" + name, "w") as archive:
        for inside, text in contents.items():
            archive.writestr(inside, text)
    return name
"""


def make_sdist(folder: Path, name: str, version: str) -> Path:
    """Write a package's source into ``folder``: one module, made by the package's own build code."""
    stem = name.replace("-", "_")
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    contents = {
        "pyproject.toml": f'{system}[project]\nname = "{name}"\nversion = "{version}"\n',
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "backend.py": _BACKEND.format(stem=stem, name=name, version=version),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for inside, text in contents.items():
            entry = tarfile.TarInfo(f"{stem}-{version}/{inside}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def install(wheel: Path, site: Path) -> Path:
    """Unpack a wheel as an installer would, in place of another version; returns its metadata folder."""
    for older in site.glob(f"{wheel.name.split('-')[0]}-*.dist-info"):
        shutil.rmtree(older)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return next(site.glob(f"{wheel.name.split('-')[0]}-*.dist-info"))


class WheelIndex:
    """Serves wheels by the simple repository protocol. ``asked``: paths, and who asked with which authorization.

    ``digests``: those that it announces, where they are not the wheels' own.
    """

    def __init__(self, wheels: Path, digests: Mapping[str, str] | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        handler = functools.partial(_Handler, wheels, self.asked, digests or {})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def url(self, user: str = "") -> str:
        """Address of the index."""
        return f"http://{user + '@' if user else ''}127.0.0.1:{self.port}/simple/"

    def __enter__(self) -> WheelIndex:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, wheels: Path, asked: list[tuple[str, str]], digests: Mapping[str, str], *rest: object) -> None:
        self._wheels, self._asked, self._digests = wheels, asked, digests
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._asked.append((self.path, self.headers.get("Authorization", "")))
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "files" and (self._wheels / name).is_file():
            self._send((self._wheels / name).read_bytes(), "application/octet-stream")
            return
        stem = name.replace("-", "_")
        found = sorted(self._wheels.glob(f"{stem}-*.whl")) if kind == "simple" and name else []
        if not found:
            self.send_error(404)
            return
        links = [_link(wheel, self._digests.get(name)) for wheel in found]
        self._send("".join(links).encode(), "text/html")

    do_HEAD = do_GET

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _link(wheel: Path, announced: str | None) -> str:
    digest = announced or hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f'<a href="/files/{wheel.name}#sha256={digest}">{wheel.name}</a>\n'


@contextlib.contextmanager
def silent_index() -> Iterator[str]:
    """An address that takes connections and never answers."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple/"
