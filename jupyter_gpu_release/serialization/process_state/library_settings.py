"""Settings of loaded libraries: those of the notebook travel in with a cell, those that the cell changes come home.

Of a library that is not loaded where its settings arrive they wait for its import.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ... import streams
from ...adapters.adapter import LibrarySettings, NotLoadedError, Values
from ...adapters.registry import adapter_of, loaded_adapters
from ...adapters.stdlib import environment, log_settings
from ...unpickling import Trust, Unpickler
from .local_modules import ImportWatch

#: library → setting → value, as it travels
Settings = dict[str, dict[str, Any]]

#: a larger value stays where it is
LIMIT_BYTES = 1 << 16
_ABSENT = object()


# ------------------------------------------------------------------------------------------- there and back
def capture_settings(*, that_count: bool = False) -> Settings:
    """Settings that are not the usual ones (``that_count``: only where they can change results)."""
    found: Settings = {}
    for library, values in _loaded(lambda library: library.that_count if that_count else library.goes_along):
        changed = _differing(library, values, _usual(library))
        changed = {name: value for name, value in changed.items() if environment.may_change_results(name)}
        packed = {name: packed for name, value in changed.items() if (packed := _packed_once(value)) is not None}
        found |= {library.module: packed} if packed else {}
    return found


class SettingsBefore:
    """Made before a cell, knows after it what the cell changed. ``waiting``: what waited for an import then."""

    def __init__(self, waiting: Settings) -> None:
        self._values = {library.module: values for library, values in _loaded()}
        self.waiting = waiting

    def read_again(self, which: Callable[[LibrarySettings], bool]) -> None:
        """These settings are to be as they are now."""
        self._values |= {library.module: values for library, values in _loaded(which)}

    def changes(self) -> tuple[Settings, list[str]]:
        """Settings that travel home, and the names of those that cannot."""
        found: Settings = {}
        left: list[str] = []
        for library, values in _loaded():
            changed = _differing(library, values, self._before(library))
            packed = {name: _pack(value) for name, value in changed.items()}
            left += [f"{library.module} {name}" for name, value in packed.items() if value is None]
            if kept := {name: value for name, value in packed.items() if value is not None}:
                found[library.module] = kept
        return found, left

    def _before(self, library: LibrarySettings) -> Mapping[str, Any]:
        known = self._values.get(library.module)
        if known or (known is not None and library.only_set):
            return {**known, **_unpacked(self.waiting.get(library.module, {}))}
        return {**_usual(library), **_unpacked(self.waiting.get(library.module, {}))}


class ArrivedSettings:
    """Sets what arrives: at once, or as soon as its library is imported."""

    def __init__(self) -> None:
        self.waiting: Settings = {}
        #: package → levels of its loggers, which it sets itself when it is imported
        self._again: Settings = {}
        #: module → settings of other libraries that are made of its classes
        self._made_of: dict[str, Settings] = {}
        self._imports = ImportWatch(self.waits_for, self._on_imports, at_once=True)

    def set_arrived(self, settings: Settings) -> None:
        """Set ``settings``; what this version of a library does not know is left out."""
        for module, values in settings.items():
            if adapter_of(_top(module)) is not None:
                self.waiting.setdefault(module, {}).update(values)
        self._settle()

    def all_settings(self) -> Settings:
        """Those of this process and those that wait."""
        self._settle()
        found = capture_settings()
        for library, values in self.late.items():
            found[library] = values | found.get(library, {})
        return {**self.waiting, **found}

    @property
    def late(self) -> Settings:
        """Settings of loaded libraries that wait for a class of another."""
        late: Settings = {}
        for settings in self._made_of.values():
            for library, values in settings.items():
                late.setdefault(library, {}).update(values)
        return late

    def _settle(self) -> None:
        for name, value in self.waiting.get("logging", {}).items():
            package = log_settings.package_of(name)
            if package and package not in sys.modules:
                self._again.setdefault(package, {})[name] = value
        for module in [module for module in self.waiting if module in sys.modules]:
            self.on_import(module)
        self._watch()

    def _watch(self) -> None:
        if self._is_waiting:
            self._imports.start_watching()
        else:
            self._imports.stop_watching()

    @property
    def _is_waiting(self) -> bool:
        return bool(self.waiting or self._again or self._made_of)

    def waits_for(self, module: str) -> bool:
        """Tell if something is to be set when this one is imported."""
        return module in self.waiting or module in self._again or module in self._made_of

    def _on_imports(self, modules: Iterable[str]) -> None:
        for module in modules:
            self.on_import(module)

    def on_import(self, module: str) -> None:
        """Called when a library for which settings wait has been imported."""
        own, again = self.waiting.pop(module, {}), self._again.pop(module, {})
        for library, values in [(module, own), ("logging", again), *self._made_of.pop(module, {}).items()]:
            for lacking, late in _write(library, values).items():
                self._made_of.setdefault(lacking, {}).setdefault(library, {}).update(late)
        self._watch()


def _top(module: str) -> str:
    return module.partition(".")[0]


def _loaded(
    is_asked: Callable[[LibrarySettings], bool] = lambda _library: True,
) -> Iterator[tuple[LibrarySettings, Values]]:
    """The libraries that are loaded, and their settings."""
    for library in [each for adapter in loaded_adapters() for each in adapter.settings]:
        if library.module in sys.modules and is_asked(library):
            try:
                values = library.read(sys.modules[library.module])
            except Exception:  # noqa: BLE001 - internals of another version, or a library half imported
                continue
            yield library, values


def _usual(library: LibrarySettings) -> Mapping[str, Any]:
    try:
        return library.usual(sys.modules[library.module])
    except Exception:  # noqa: BLE001 - internals of another version
        return {}


def _differing(library: LibrarySettings, values: Values, before: Mapping[str, Any]) -> Values:
    if library.only_set:
        values = {**dict.fromkeys(before), **values}
    return {name: value for name, value in values.items() if _differs(value, before.get(name, _ABSENT))}


def _differs(one: Any, other: Any) -> bool:
    if one is other:
        return False
    try:
        return bool(one != other)
    except Exception:  # noqa: BLE001 - values of any type
        return True


_PLAIN = (int, float, str, bool, type(None))


@streams.named
@dataclass(frozen=True)
class PackedSetting:
    """A setting that is no plain value, as a pickle."""

    data: bytes


def _pack(value: Any) -> Any:
    """The value as it travels; None: it cannot."""
    if type(value) in _PLAIN and value is not None:
        return value
    try:
        data = pickle.dumps(value, protocol=5)
        if b"__main__" in data:  # a function of the notebook
            data = _by_value(value)
    except Exception:  # noqa: BLE001 - values of any type
        data = _by_value(value)
    return PackedSetting(data) if data and len(data) <= LIMIT_BYTES else None


def _packed_once(value: Any) -> Any:
    """The same; of a filter of warnings, which stays the same object from cell to cell, it is kept."""
    if type(value) is not tuple:
        return _pack(value)
    known = _packed.get(id(value))
    if known is not None and known[0] is value:
        return known[1]
    packed = _pack(value)
    if len(_packed) < _MOST_PACKED and all(map(_is_fixed, value)):
        _packed[id(value)] = value, packed
    return packed


def _is_fixed(part: Any) -> bool:
    kind = type(part)
    if kind is type:
        return bool(part.__module__ != "__main__")
    return kind in (*_PLAIN, re.Pattern) or (kind is tuple and not part)


_MOST_PACKED = 100
#: id of a tuple → the tuple itself, so that nothing else gets its id, and how it travels
_packed: dict[int, tuple[Any, Any]] = {}


def _by_value(value: Any) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value, protocol=5))
    except Exception:  # noqa: BLE001 - values of any type
        return b""


class _SettingUnpickler(Unpickler):
    """Imports nothing that takes long: what is not loaded can be of no account yet (a filter of its warnings, say)."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        top = module_name.partition(".")[0]
        if module_name not in sys.modules and top not in sys.stdlib_module_names and top not in _OURS:
            raise NotLoadedError(module_name)
        return super().find_class(module_name, global_name)


#: what this package needs itself
_OURS = frozenset({"cloudpickle", "jupyter_gpu_release"})


def _unpack(value: Any) -> Any:
    return _SettingUnpickler(io.BytesIO(value.data), Trust.OWN).load() if isinstance(value, PackedSetting) else value


def _unpacked(values: Values) -> Values:
    found: Values = {}
    for name, value in values.items():
        with contextlib.suppress(Exception):  # as for those that are written
            found[name] = _unpack(value)
    return found


def _write(module: str, values: Values) -> dict[str, Values]:
    """Set what can be set; returns what waits for the import of a module, by that."""
    late: dict[str, Values] = {}
    adapter = adapter_of(_top(module))
    for library in [each for each in adapter.settings if each.module == module] if adapter is not None else ():
        for name, value in values.items():
            try:
                library.write(sys.modules[module], name, _unpack(value))
            except NotLoadedError as error:
                late.setdefault(error.module, {})[name] = value
            except Exception:  # noqa: BLE001 - a setting that this version does not know, a class that is not here
                continue
    return late
