"""Local modules to ship, packages to require, and modules that only cells on the cluster have imported.

What those cells set in them goes along with further cells, and comes into the module when this process imports it.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import importlib
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from ..serialization.process_state.local_modules import (
    ImportWatch,
    delete_attribute,
    loaded_below,
    set_attribute,
    split_attribute_name,
)
from ..settings.built_in import BUILT_IN

_MOST_BYTES: int = BUILT_IN["shipped_modules_bytes"].default
_MOST_FILES: int = BUILT_IN["shipped_modules"].default
#: in a note on modules
_MOST_NAMED = 4
_DATA_SUFFIXES = frozenset({".json", ".yaml", ".yml", ".toml", ".txt", ".cfg", ".ini", ".sql", ".pyi"})
_MOST_DATA_BYTES = 256 << 10
#: modules to be imported ahead
_MOST_PREPARED = 200
_NOT_SHIPPED = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
#: folders of installed packages, also where they are not this interpreter's (``PYTHONPATH``, ``pip install --target``)
_SITE = frozenset({"site-packages", "dist-packages"})
_OURS = frozenset({"jupyter_gpu_release", "cloudpickle", "__main__", "__mp_main__", "ipykernel_launcher"})


def _is_found_by_notebook(name: str) -> bool:
    """Tell if a finder that the notebook has written finds it."""
    finders = [
        each for each in list(sys.meta_path) if "__main__" in (getattr(each, "__module__", ""), type(each).__module__)
    ]
    with contextlib.suppress(Exception):  # the user's own code
        return any(finder.find_spec(name, None) for finder in finders)
    return False


def is_put_by_hand(name: str) -> bool:
    """Tell if a statement put a module under this name (``sys.modules['wandb'] = …``), or one below it, or a finder.

    Then no package has it: a module that was imported has its own name, or a finder finds it.
    """
    if _is_found_by_notebook(name):
        return True
    module = sys.modules.get(name)
    if module is None:  # a part is never loaded before the package that it is in
        return f" {name}." in " ".join(["", *sys.modules])
    if getattr(getattr(module, "__spec__", None), "name", "") == name:
        return False
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules.get(parent), "__path__", ()) if parent else None
    return not any(finder.find_spec(name, path) for finder in list(sys.meta_path))


class LoadedHere(NamedTuple):
    """Local modules: ``tops``, and those in them that this process has loaded, ``edited`` ones apart."""

    tops: list[str]
    loaded: list[str]
    edited: list[str]


class LocalModules:
    """Finds modules beside the notebook (or on folders that it added to ``sys.path``) and reads their source.

    Files are read again when they changed; what they import from the same folders goes along.
    """

    def __init__(self) -> None:
        self._sources: dict[Path, tuple[tuple[int, int], bytes]] = {}
        self._imports: dict[Path, tuple[tuple[int, int], frozenset[str]]] = {}
        #: which file a module was when it was first seen
        self._loaded: dict[str, tuple[ModuleSpec, tuple[int, int]]] = {}
        self._installed = _installed_folders()
        self._below_installed = tuple(folder + os.sep for folder in self._installed)
        #: entries of ``sys.path`` that are known to be the interpreter's own
        self._of_interpreter: set[str] = set()
        #: so many of the added entries, the last ones, come after the installed packages
        self.behind = 0

    def added_paths(self) -> list[str]:
        """Entries of ``sys.path`` that are not the interpreter's own, in their order; the current folder is ""."""
        found: dict[str, None] = {}
        here, before = _current_folder(), None
        for entry in sys.path if here else ():
            folder = entry if entry in self._of_interpreter else os.path.abspath(entry)
            if folder == here:
                found[""] = None
            elif entry in self._of_interpreter or self._is_installed(folder):
                self._of_interpreter |= {entry} if os.path.isabs(entry) else set()
                before = len(found) if before is None and _is_site(folder) else before
            elif os.path.isdir(folder):
                found[folder] = None
        self.behind = 0 if before is None else len(found) - before
        return list(found)

    def ship(self, names: Iterable[str], added: Iterable[str]) -> tuple[dict[str, bytes], set[str], list[str]]:
        """Sources of those modules of ``names`` that are local: relative path → bytes; their top-level names; notes."""
        roots = _local_roots(added)
        waiting = {name.partition(".")[0] for name in names}
        files: dict[str, bytes] = {}
        local: set[str] = set()
        seen: set[str] = set()
        while waiting:
            top = waiting.pop()
            seen.add(top)
            found = self._find(top, roots)
            if found is None:
                continue
            local.add(top)
            root, paths = found
            for path in paths:
                files[str(path.relative_to(root))] = self._read(path)
                waiting |= self._imported_by(path) - seen
        size = sum(map(len, files.values()))
        if size > _MOST_BYTES:
            named = ", ".join(sorted(local)[:_MOST_NAMED]) + (" …" if len(local) > _MOST_NAMED else "")
            note = f"local modules are too large to ship ({named}: {size >> 20} MiB); nodes must see their folders"
            return {}, local, [note]
        return files, local, []

    def local(self, names: Iterable[str], added: Iterable[str]) -> LoadedHere:
        """Modules of ``names`` and of what they import that are local, and what of them is loaded here."""
        _, local, _ = self.ship(names, added)
        here: dict[bool, list[str]] = {False: [], True: []}
        for name in loaded_below(local) if local else ():
            here[self._is_edited(sys.modules[name])].append(name)
        return LoadedHere(sorted(local), here[False], here[True])

    def version(self, top: str) -> object:
        """Version of the files of a local module, to compare with; None: it is none."""
        found = self._find(top, _local_roots(self.added_paths()))
        return None if found is None else [(str(path), _stamp(path)) for path in found[1]]

    def _is_edited(self, module: types.ModuleType) -> bool:
        """Tell if its file is another one than this process has loaded, as far as can be told."""
        source, spec = getattr(module, "__file__", None), module.__spec__
        if not source or spec is None or not os.path.isfile(source):
            return False
        is_compiled = _is_compiled_from(Path(source), spec.cached) if spec.cached else None
        if is_compiled is not None:
            return not is_compiled
        known = self._loaded.get(module.__name__)
        if known is None or known[0] is not spec:  # a reload makes a new one
            known = self._loaded[module.__name__] = (spec, _stamp(Path(source)))
        return known[1] != _stamp(Path(source))

    def required(self, names: Iterable[str], local: set[str], added: Iterable[str] = ()) -> list[str]:
        """Top-level names that the cluster must have installed, but for those in folders of packages among ``added``:
        nodes that see these import from them.
        """
        tops = {top for name in names if not is_put_by_hand(top := name.partition(".")[0])}
        tops -= local | _OURS | sys.stdlib_module_names | set(sys.builtin_module_names)
        sites = [folder for folder in added if _is_site(folder)]
        return sorted(top for top in tops if not sites or PathFinder.find_spec(top, sites) is None)

    def foreign(self, names: Iterable[str], local: Collection[str]) -> list[str]:
        """Those of these modules, full names, that are neither the notebook's own nor Python's.

        In the order in which they were imported here: one may set up what the next one reads.
        """
        own = {*local, *_OURS, *sys.stdlib_module_names}
        found = sorted(name for name in names if name.partition(".")[0] not in own)
        place = {name: number for number, name in enumerate(list(sys.modules))}
        return sorted(found, key=lambda name: place.get(name, len(place)))[:_MOST_PREPARED]

    # ---------------------------------------------------------------------------------- inside
    def _is_installed(self, folder: str) -> bool:
        return folder in self._installed or folder.startswith(self._below_installed)

    def _find(self, top: str, roots: list[Path]) -> tuple[Path, list[Path]] | None:
        if top in sys.stdlib_module_names or top in _OURS or not top.isidentifier():
            return None
        loaded = getattr(sys.modules.get(top), "__file__", None)
        if loaded and (self._is_installed(os.path.abspath(loaded)) or _is_site(loaded)):
            return None
        for root in roots:
            single = root / f"{top}.py"
            if single.is_file():
                return None if self._is_behind(root, top) else (root, [single])
            package = root / top
            if package.is_dir() and self._is_local_package(top, package):
                paths = list(_package_files(package))
                if any(path.suffix == ".py" for path in paths):
                    return None if self._is_behind(root, top) else (root, paths)
        return None

    def _is_behind(self, root: Path, top: str) -> bool:
        """Tell if an installed package of this name comes before the folder."""
        behind = self.added_paths()[-self.behind :] if self.behind else []
        return str(root) in behind and PathFinder.find_spec(top, self._installed) is not None

    def _is_local_package(self, top: str, package: Path) -> bool:
        """A folder without ``__init__.py`` is a package only where no installed one has that name."""
        if self._is_installed(str(package)):
            return False
        if (package / "__init__.py").is_file():
            return True
        spec = PathFinder.find_spec(top, self._installed)
        return spec is None or spec.origin is None

    def _read(self, path: Path) -> bytes:
        stamp = _stamp(path)
        known = self._sources.get(path)
        if known is None or known[0] != stamp:
            known = self._sources[path] = (stamp, path.read_bytes())
        return known[1]

    def _imported_by(self, path: Path) -> frozenset[str]:
        """Top-level names that a source file imports anywhere (relative imports stay in its package)."""
        if path.suffix != ".py":
            return frozenset()
        stamp = _stamp(path)
        known = self._imports.get(path)
        if known is None or known[0] != stamp:
            known = self._imports[path] = (stamp, _imports_of(self._read(path)))
        return known[1]


def _is_compiled_from(source: Path, compiled: str) -> bool | None:
    """Tell if ``compiled`` was made from the file as it is now; None: there is no telling."""
    try:
        found = source.stat()
        with open(compiled, "rb") as file:
            header = file.read(16)
    except OSError:
        return None
    flags, changed_s, size = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    return None if flags else (changed_s, size) == (int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF)


def _current_folder() -> str:
    """Empty when it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _local_roots(added: Iterable[str]) -> list[Path]:
    """Folders whose modules are the notebook's own, the current one in its place on the path, or else first."""
    folders, here = list(added), _current_folder()
    found = [folder or here for folder in (folders if "" in folders else ["", *folders])]
    return [Path(folder) for folder in found if folder and not _is_site(folder)]


def _is_site(path: str) -> bool:
    return not _SITE.isdisjoint(Path(path).parts)


def _installed_folders() -> list[str]:
    paths = sysconfig.get_paths()
    keys = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    folders = [*(paths[key] for key in keys), *site.getsitepackages(), site.getusersitepackages()]
    return sorted({os.path.abspath(folder) for folder in folders})


def _package_files(package: Path) -> Iterable[Path]:
    count = 0
    for folder, folders, names in os.walk(package):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_SHIPPED]
        for name in names:
            path = Path(folder, name)
            is_data = path.suffix in _DATA_SUFFIXES and path.stat().st_size <= _MOST_DATA_BYTES
            if path.suffix == ".py" or is_data:
                count += 1
                if count > _MOST_FILES:
                    return
                yield path


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _imports_of(source: bytes) -> frozenset[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return frozenset(names)


_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_EXTENDED_ARG = dis.EXTENDED_ARG


def loaded_submodules(modules: dict[str, str], chains: Iterable[str], codes: Iterable[types.CodeType]) -> list[str]:
    """Submodules, loaded here, that the cell's attribute chains or its functions may mean.

    ``modules``: name in the notebook → name of the module it holds.
    """
    if not modules:
        return []
    found: dict[str, None] = {}
    for chain in chains:
        root, _, rest = chain.partition(".")
        if root in modules:
            _descend(modules[root], rest.split("."), found)
    tokens = {token for code in codes for token in _names_in(code)}
    for module in set(modules.values()) if tokens else ():
        _among(module, tokens, found)
    return list(found)


def _descend(module: str, parts: list[str], found: dict[str, None]) -> None:
    for part in parts:
        module = f"{module}.{part}"
        if not isinstance(sys.modules.get(module), types.ModuleType):
            return
        found[module] = None


def _among(module: str, tokens: set[str], found: dict[str, None]) -> None:
    for token in tokens:
        name = f"{module}.{token}"
        if name not in found and isinstance(sys.modules.get(name), types.ModuleType):
            found[name] = None
            _among(name, tokens, found)


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def imported_in(codes: Iterable[types.CodeType]) -> set[str]:
    """Modules that these functions import when they run."""
    found: set[str] = set()
    for code in codes:
        raw, extended = code.co_code, 0
        for at in range(0, len(raw), 2):
            argument = raw[at + 1] | extended << 8
            extended = argument if raw[at] == _EXTENDED_ARG else 0
            if raw[at] == _IMPORT_NAME:
                found.add(code.co_names[argument])
        found |= imported_in(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return found


class AwayModules:
    """``version``: what files a top-level module consists of now. One that was edited is as its file says."""

    def __init__(self, version: Callable[[str], object]) -> None:
        self._version = version
        #: in the order of their imports
        self._versions: dict[str, object] = {}
        self._state: dict[str, Any] = {}
        self._deleted: set[str] = set()
        self._watch = ImportWatch(self._versions.__contains__, self._come_home)

    def note_modules(self, imported: Iterable[str], state: Mapping[str, Any], deleted: Iterable[str]) -> None:
        """A cell has imported these, and set that in them or in earlier ones."""
        self._state |= state
        self._deleted |= set(deleted)
        self._deleted -= state.keys()
        for name in self._deleted:
            self._state.pop(name, None)
        if not (self._state or self._deleted):
            self._watch.stop_watching()
            self._versions.clear()
            return
        version = self._looked_up()
        for module in imported:
            if module not in sys.modules:
                self._versions[module] = version(module)
        self._watch.start_watching()

    def among(self, tops: Collection[str]) -> tuple[list[str], dict[str, Any], list[str]]:
        """Modules of these packages to import there first, what was set in them, and what was deleted there."""
        if not self._versions and not self._state and not self._deleted:
            return [], {}, []
        self._forget()
        modules = [module for module in self._versions if _top(module) in tops]
        state = {name: value for name, value in self._state.items() if split_attribute_name(name)[0] in modules}
        return modules, state, sorted(name for name in self._deleted if split_attribute_name(name)[0] in modules)

    def _looked_up(self) -> Callable[[str], object]:
        """The version of a module now; the files of each package are looked at once."""
        of_top = functools.cache(self._version)
        return lambda module: of_top(_top(module))

    def _forget(self) -> None:
        """Forget what has been imported here meanwhile, or was edited."""
        now = self._looked_up()
        gone = [module for module, version in self._versions.items() if module in sys.modules or version != now(module)]
        for module in gone:
            del self._versions[module]
        self._state = {
            name: value for name, value in self._state.items() if split_attribute_name(name)[0] in self._versions
        }
        self._deleted = {name for name in self._deleted if split_attribute_name(name)[0] in self._versions}

    def _come_home(self, imported: list[str]) -> None:
        """Import all of them, since importing one may change another, then set what the cells have set."""
        self._watch.stop_watching()
        now = self._looked_up()
        known = {module: version for module, version in self._versions.items() if version == now(module)}
        state, deleted = self._state, self._deleted
        self._state, self._deleted = {}, set()
        self._versions.clear()
        for module in known.keys() - set(imported):
            with contextlib.suppress(Exception):  # the user's own code; whoever needs it sees the error
                importlib.import_module(module)
        for name, value in state.items():
            module, _ = split_attribute_name(name)
            if module in known and module in sys.modules:
                set_attribute(name, value)
        for name in deleted:
            if split_attribute_name(name)[0] in known:
                delete_attribute(name)


def _top(module: str) -> str:
    return module.partition(".")[0]
