"""Finds the files of a distribution that is edited in place (``pip install -e``)."""

from __future__ import annotations

import ast
import contextlib
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from blake3 import blake3

from ..settings.built_in import BUILT_IN

#: more files or bytes are not read: their digest is empty, as a wheel of them would be too large for a request
MOST_FILES = 5000
MOST_BYTES: int = BUILT_IN["request_body_bytes"].default - (2 << 20)
_EXTENSIONS = (".so", ".pyd")
#: beside the packages of a project's folder
_NO_PACKAGES = frozenset(
    {"tests", "test", "docs", "doc", "examples", "scripts", "benchmarks", "build", "dist", "setup", "conftest"}
)
_LISTED = re.compile(rb"^([^/,\n]+\.(?:pth|py)),", re.MULTILINE)
#: of setuptools
_MAPPING = re.compile(r"^MAPPING(?:: [^=]+)? = (\{.*\})\s*$", re.MULTILINE)
#: of hatchling, through the package `editables`
_MAPPED = re.compile(r"map_module\((['\"])(.+?)\1, (['\"])(.+?)\3\)")


class EditableFiles:
    """Files of one such distribution, as they are when this is made.

    ``parts``: package or module, by its name → where it lies. ``before``: what was known of it earlier.
    """

    def __init__(self, parts: dict[str, Path], before: EditableFiles | None = None) -> None:
        self._parts = parts
        #: path as it would be installed → file
        self.files: dict[str, str] = {}
        #: where files come and go
        self._folders: list[str] = []
        self._contents: dict[str, tuple[tuple[int, int], str]] = dict(before._contents) if before is not None else {}
        for name, place in sorted(parts.items()):
            if place.is_dir():
                self._walk(str(place), name)
            elif place.is_file():
                self.files[name + place.suffix] = str(place)

    @property
    def imports(self) -> list[str]:
        """Topmost packages and modules."""
        return sorted(self._parts)

    @property
    def is_pure(self) -> bool:
        """Tell if none of them is compiled."""
        return not any(name.endswith(_EXTENSIONS) for name in self.files)

    def stamp(self) -> list[tuple[int, int]]:
        """Time and size of each file and folder now: the same means that nobody edited, added or removed any."""
        return [_facts(path) for path in (*self._folders, *self.files.values())]

    def digest(self) -> str:
        """Digest of names and contents; empty where there is none, or more than is read."""
        facts = {name: _facts(path) for name, path in self.files.items()}
        if not facts or len(facts) > MOST_FILES or sum(size for _, size in facts.values()) > MOST_BYTES:
            return ""
        whole = blake3()
        for name, found in facts.items():
            known = self._contents.get(name)
            if known is None or known[0] != found:
                try:
                    content = blake3(Path(self.files[name]).read_bytes()).hexdigest()
                except OSError:
                    return ""
                known = self._contents[name] = (found, content)
            whole.update(f"{name}:{known[1]};".encode())
        return f"files:{whole.hexdigest(length=16)}"

    def _walk(self, folder: str, inside: str) -> None:
        self._folders.append(folder)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:  # what cannot be read is not imported either
            for each in sorted(entries, key=lambda each: each.name):
                if each.name.startswith(".") or each.name == "__pycache__" or each.name.endswith(".pyc"):
                    continue
                if each.is_dir():
                    self._walk(each.path, f"{inside}/{each.name}")
                elif each.is_file():
                    self.files[f"{inside}/{each.name}"] = each.path


def find_editable(metadata: Path, record: bytes, source: str, before: EditableFiles | None = None) -> EditableFiles:
    """The files behind the metadata folder of an editable distribution: its build backend wrote where they are."""
    parts: dict[str, Path] = {}
    for listed in _LISTED.findall(record):
        path = metadata.parent / listed.decode("utf-8", "replace")
        text = _read_text(path)
        if path.suffix == ".pth":
            for line in text.splitlines():
                if line.strip() and not line.startswith(("import ", "import\t", "#")):
                    parts |= _parts_in(metadata.parent / line.strip(), metadata, source)
        else:
            parts |= _mapped(text)
    return EditableFiles(parts, before)


def _mapped(text: str) -> dict[str, Path]:
    found = {module.replace(".", "/"): _without_init(Path(place)) for _, module, _, place in _MAPPED.findall(text)}
    for written in _MAPPING.findall(text):
        try:
            mapping = ast.literal_eval(written)
        except (ValueError, SyntaxError):
            continue
        found |= {str(module).replace(".", "/"): _placed(Path(str(place))) for module, place in mapping.items()}
    return found


def _without_init(place: Path) -> Path:
    return place.parent if place.name == "__init__.py" else place


def _placed(place: Path) -> Path:
    """Setuptools leaves the suffix of a module away."""
    return place if place.is_dir() or place.suffix == ".py" else place.with_name(place.name + ".py")


def _parts_in(folder: Path, metadata: Path, source: str) -> dict[str, Path]:
    """Packages and modules of a folder that is on the path."""
    told = _read_text(metadata / "top_level.txt").split()
    is_project = _same_folder(folder, source)
    found = {}
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = place.name if place.is_dir() else place.stem
        is_part = (place / "__init__.py").is_file() or place.suffix in (".py", *_EXTENSIONS)
        if not is_part or not name.partition(".")[0].isidentifier():
            continue
        if name in told or not (told or (is_project and name in _NO_PACKAGES)):
            found[name.partition(".")[0]] = place
    return found


def _same_folder(folder: Path, source: str) -> bool:
    return os.path.realpath(folder) == os.path.realpath(unquote(urlsplit(source).path))


def _facts(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
