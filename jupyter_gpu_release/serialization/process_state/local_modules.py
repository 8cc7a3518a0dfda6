"""State of the notebook's own modules (set in a module that lies beside the notebook), and a watch on their import.

Each attribute travels as a value of the graph under ``module:attribute``, which is no name of Python's.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib.abc
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from cloudpickle import cloudpickle

from ...adapters.registry import loaded_adapters
from ..identity import EMPTY, contents_of, own_attributes

#: of all attributes together
MOST_BYTES = 1 << 20
_MOST_MODULES, _MOST_ATTRIBUTES = 200, 500
_MARK = ":"
_ABSENT = object()
#: where methods of a kind, and properties, have their function
_FUNCTIONS_IN = ("__func__", "fget", "func")
_DEFAULTS = ("__defaults__", "__kwdefaults__")
#: begins the name of a variable around a function
_AROUND = "variable "
#: defaults that functions use to remember
_REMEMBERING = (list, dict, set, bytearray, collections.deque)


def is_attribute_name(name: str) -> bool:
    """Tell if a name in a graph is an attribute of a module."""
    return _MARK in name


def attribute_name(module: str, attribute: str) -> str:
    """Under which name the attribute travels."""
    return f"{module}{_MARK}{attribute}"


def name_in(owner: Any, attribute: str) -> str:
    """Under which name the attribute of a module, or of a class in one, travels."""
    if isinstance(owner, type):
        return attribute_name(owner.__module__, f"{owner.__qualname__}.{attribute}")
    return attribute_name(owner.__name__, attribute)


def split_attribute_name(name: str) -> tuple[str, str]:
    """Module and attribute (perhaps of a class in it) of such a name."""
    module, _, attribute = name.partition(_MARK)
    return module, attribute


def words_for(name: str) -> str:
    """The words that people use for it: of a class of ours (what was told to IPython) the last part says it all."""
    module, attribute = split_attribute_name(name)
    if attribute and module.partition(".")[0] == __name__.partition(".")[0]:
        return attribute.partition(".")[2]
    return name.replace(_MARK, ".")


def find_holder(name: str) -> tuple[Any, str]:
    """Owner of such an attribute (a module, or a class or function in one that is loaded), and the attribute."""
    module, attribute = split_attribute_name(name)
    *path, last = attribute.split(".")
    holder = functools.reduce(_part, path, sys.modules[module])
    return getattr(holder, "__func__", holder), last


def _part(holder: Any, attribute: str) -> Any:
    if attribute.startswith(_AROUND):
        return _variables_around(getattr(holder, "__func__", holder))[attribute]
    return getattr(holder, attribute)


def _variables_around(function: types.FunctionType) -> dict[str, Any]:
    """Values of the variables of a closure, as far as they are bound."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {_AROUND + name: value for name, cell in cells if (value := contents_of(cell)) is not EMPTY}


def _set(holder: Any, attribute: str, value: Any) -> None:
    if attribute.startswith(_AROUND):
        names = holder.__code__.co_freevars
        holder.__closure__[names.index(attribute.removeprefix(_AROUND))].cell_contents = value
    else:
        setattr(holder, attribute, value)


def set_attribute(name: str, value: Any) -> None:
    """Set it in its module or class, which is loaded, if that has not got it already."""
    holder, attribute = find_holder(name)
    if _all_of(holder).get(attribute, _ABSENT) is not value:  # some refuse to be set (members of an enum)
        _set(holder, attribute, value)


def delete_attribute(name: str) -> None:
    """Delete it from its module or class, if it is there."""
    if split_attribute_name(name)[0] in sys.modules:
        holder, attribute = find_holder(name)
        if attribute in vars(holder):
            delattr(holder, attribute)


def is_deleted(name: str) -> bool:
    """Tell if a module or class that is where it was lacks an attribute that it had."""
    place = _attributes_at(name)
    return place is not None and _last_part(name) not in place


def _last_part(name: str) -> str:
    return split_attribute_name(name)[1].rpartition(".")[2]


def _attributes_at(name: str) -> Mapping[str, Any] | None:
    """All attributes of the module or class that has such a one; None: another one is there now."""
    with contextlib.suppress(AttributeError, KeyError):
        holder, attribute = find_holder(name)
        is_it = isinstance(holder, types.FunctionType) or name_in(holder, attribute) == name
        return _all_of(holder) if is_it else None
    return None


def _all_of(holder: Any) -> Mapping[str, Any]:
    """All attributes of a module or class; of a function also its defaults, and the variables around it."""
    if not isinstance(holder, types.FunctionType):
        return getattr(holder, "__dict__", {})
    return {name: getattr(holder, name) for name in _DEFAULTS} | vars(holder) | _variables_around(holder)


def extensions_of_libraries() -> dict[str, Any]:
    """Attributes that others have put into libraries by a call, as the libraries' adapters find them."""
    return {name_in(*place): value for each in loaded_adapters() for *place, value in each.extensions()}


def loaded_below(tops: Iterable[str]) -> list[str]:
    """These modules and the ones in them, as far as this process has them."""
    wanted = set(tops)
    found = [name for name in list(sys.modules) if name.partition(".")[0] in wanted]
    return [name for name in found[:_MOST_MODULES] if type(sys.modules[name]) is types.ModuleType]


def state_of(modules: Iterable[str], also: Iterable[str] = ()) -> dict[str, Any]:
    """Everything in them, and in the classes defined there, that is not simply defined there, or was not (``also``)."""
    found: dict[str, Any] = {}
    of_classes: dict[str, Any] = {}  # last: the others have the room first
    names = list(modules)
    own = {_top(name) for name in names} | sys.stdlib_module_names
    for name in names:
        module = sys.modules[name]
        for attribute, value in list(vars(module).items())[:_MOST_ATTRIBUTES]:
            if attribute.startswith("__"):
                continue
            if not _is_definition(name, attribute, value):
                found[attribute_name(name, attribute)] = value
            elif isinstance(value, type):
                of_classes |= _state_of_class(value, own)
            else:
                found |= _remembered_by(value, attribute_name(name, attribute))
    found |= of_classes
    for name in also:
        place, last = _attributes_at(name) or {}, _last_part(name)
        if name not in found and last in place:
            found[name] = place[last]
    return found


def _remembered_by(function: Any, name: str, seen: tuple[Any, ...] = ()) -> dict[str, Any]:
    """All that a function, or the function of a method, keeps in its defaults, attributes and variables around it."""
    for part in _FUNCTIONS_IN:
        if (inner := getattr(function, part, None)) is not None:
            return _remembered_by(inner, name if part == "__func__" else f"{name}.{part}", seen)
    if not isinstance(function, types.FunctionType) or function in seen:
        return {}
    defaults = {"__defaults__": function.__defaults__ or (), "__kwdefaults__": function.__kwdefaults__ or {}}
    for slot, parts in [*defaults.items()]:
        values = parts.values() if isinstance(parts, dict) else parts
        if not any(isinstance(value, _REMEMBERING) for value in values):
            del defaults[slot]
    own = {name: value for name, value in vars(function).items() if not name.startswith("__")}
    around = _variables_around(function)
    inside = {each: around.pop(each) for each, value in [*around.items()] if _is_of_module(value)}
    found = {f"{name}.{attribute}": value for attribute, value in (defaults | own | around).items()}
    for attribute, value in inside.items():
        found |= _remembered_by(value, f"{name}.{attribute}", (*seen, function))
    return found


def _is_of_module(value: Any) -> bool:
    """Tell if importing the module makes it: a function that another one wraps, the class around a method."""
    return isinstance(value, types.FunctionType | type) and value.__module__ != "__main__"


def _state_of_class(cls: type, own: Collection[str]) -> dict[str, Any]:
    """``own``: packages of metaclasses that are no library's; another one keeps what it knows of the class there."""
    found: dict[str, Any] = {}
    library = top if (top := _top(type(cls).__module__)) not in own else None
    for attribute, value in list(own_attributes(cls).items())[:_MOST_ATTRIBUTES]:
        if attribute.startswith("_") and (attribute.endswith("_") or library):  # Python's, dataclasses' or enum's
            found |= _remembered_by(value, name_in(cls, attribute))
        elif isinstance(value, type) and _is_definition(cls.__module__, f"{cls.__qualname__}.{attribute}", value):
            found |= _state_of_class(value, own)
        elif is_cached_method(value) or not (
            _is_made_with_class(cls, attribute, value) or _top(type(value).__module__) == library
        ):
            found[name_in(cls, attribute)] = value
        else:
            found |= _remembered_by(value, name_in(cls, attribute))
    return found


def _top(module: str) -> str:
    return module.partition(".")[0]


def is_cached_method(value: Any) -> bool:
    """Tell if it is a method under ``functools.cache``: it stays the same and is filled."""
    return type(getattr(value, "__func__", value)) is functools._lru_cache_wrapper


def _is_definition(module: str, qualname: str, value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return True
    if not isinstance(value, types.FunctionType | type):
        return False
    return getattr(value, "__module__", None) == module and value.__qualname__ == qualname


def function_of(value: Any) -> Any:
    """The function in a method of some kind, or in a property; else the value itself."""
    return next((part for own in _FUNCTIONS_IN if (part := getattr(value, own, None)) is not None), value)


def _is_made_with_class(cls: type, attribute: str, value: Any) -> bool:
    """Tell if it is a method or another descriptor of the class, or a class that a metaclass has made for it."""
    if isinstance(value, type):
        return value.__module__ != "__main__" and not cloudpickle._should_pickle_by_reference(value)
    if not hasattr(type(value), "__get__"):
        return isinstance(value, types.ModuleType)
    function = function_of(value)
    if isinstance(function, types.FunctionType):  # of a namedtuple it is another module's
        return function.__module__ != "__main__" and function.__qualname__ == f"{cls.__qualname__}.{attribute}"
    return True


def set_attributes_of(
    state: Mapping[str, Any], *, known: Iterable[int], is_same: Callable[[Any, Any], bool]
) -> dict[str, Exception]:
    """Set what arrived in modules that have just been imported; what is there already stays itself.

    A list, dict or set is filled, so that whoever imported it has it, too; but what another name holds as well (its id
    is ``known``) is put there itself. Returns what could not be set: another version of a library may refuse it.
    """
    shared = set(known)
    failed: dict[str, Exception] = {}
    for name, value in state.items():
        try:
            _set_attribute(name, value, is_shared=id(value) in shared, is_same=is_same)
        except Exception as error:  # noqa: BLE001 - a library's own code
            failed[name] = error
    return failed


def _set_attribute(name: str, value: Any, *, is_shared: bool, is_same: Callable[[Any, Any], bool]) -> None:
    place, attribute = find_holder(name)
    old = _all_of(place).get(attribute, _ABSENT)
    if is_shared or not (is_same(old, value) or _fill(old, value)):
        _set(place, attribute, value)


def _fill(old: Any, new: Any) -> bool:
    if type(old) is not type(new) or type(old) not in (list, dict, set):
        return False
    old.clear()
    old.extend(new) if isinstance(old, list) else old.update(new)
    return True


class ImportWatch(importlib.abc.MetaPathFinder):
    """Says when modules have been imported for the first time in this process.

    ``wanted``: which modules, by name. ``done`` gets their names once the outermost of such imports has ended, or
    (``at_once``) of each as soon as it is loaded. ``reloads`` gets the name of any module that is loaded again.
    """

    def __init__(
        self,
        wanted: Callable[[str], bool],
        done: Callable[[list[str]], None],
        *,
        at_once: bool = False,
        reloads: Callable[[str], object] = str,
    ) -> None:
        self._wanted = wanted
        self._done = done
        self._at_once = at_once
        self._reloads = reloads
        self._depth = 0
        self._imported: list[str] = []

    def start_watching(self) -> None:
        """Look at imports from here on."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop_watching(self) -> None:
        """No more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by Python for each module that it is about to load."""
        if target is not None:
            self._reloads(fullname)
        if not self._wanted(fullname):
            return None
        finders = [*sys.meta_path]  # another thread may change it
        for finder in finders[finders.index(self) + 1 :] if self in finders else finders:  # those before it were asked
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                spec.loader = _Watched(spec.loader, self)
                return spec
        return None

    def execute(self, module: types.ModuleType, loader: Any) -> None:
        """Load a module that is wanted."""
        self._depth += 1
        try:
            loader.exec_module(module)
            self._imported.append(module.__name__)
        finally:
            self._depth -= 1
            if self._imported and (self._at_once or not self._depth):
                imported, self._imported = self._imported, []
                self._done(imported)


class _Watched(importlib.abc.Loader):
    """Stands before the real loader until it is asked."""

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self._loader = loader
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        made: types.ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._watch.execute(module, self._loader)
