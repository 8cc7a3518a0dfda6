"""Classes registered with abstract ones (``Shape.register(int)``), and with libraries; no attribute says so."""

from __future__ import annotations

import abc
import collections.abc
import functools
import numbers
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from ..adapters.registry import loaded_adapters

#: where a class of the notebook keeps the library's abstract classes with which it is registered, as it travels
WITH = "__registered_with__"
#: where it keeps what libraries know of it, by the library
KNOWN = "__known_to__"
#: where cloudpickle keeps what is registered with a class
OWN = "_abc_impl"
_REGISTERED, _REGISTERED_WITH = "registered ", "registered with "


def registrations(cls: type) -> dict[str, Any]:
    """Classes registered with one of the notebook, and all with which it is, by names that no attribute has."""
    own = {f"{_REGISTERED}{_name(other)}": other for other in _registered(cls)}
    own |= {f"{_REGISTERED_WITH}{_name(other)}": other for other in registered_with(cls)}
    return own | {f"{_REGISTERED_WITH}{library}": known for library, known in known_to(cls).items()}


def known_to(cls: type) -> dict[str, Any]:
    """Records that libraries keep of a class, by the library."""
    found = {adapter.name: adapter.registration_of(cls) for adapter in loaded_adapters()}
    return {library: known for library, known in found.items() if known is not None}


def tell_libraries(cls: type, known: dict[str, Any]) -> None:
    """Have them keep that of a class."""
    for adapter in loaded_adapters() if known else ():
        if adapter.name in known:
            adapter.register_class(cls, known[adapter.name])


def is_registration(name: str) -> bool:
    """Tell if a name is one of :func:`registrations`."""
    return name.startswith(_REGISTERED)


def registered_with(cls: type) -> list[type]:
    """The abstract classes of the standard library that somebody has registered the class with."""
    return _by_class(abc.get_cache_token()).get(cls, [])


def register_all(cls: Any, others: Iterable[Any], owners: Iterable[Any]) -> None:
    """Register ``others`` with ``cls``, and ``cls`` with ``owners``."""
    for other in others:
        cls.register(other)
    for owner in owners:
        owner.register(cls)


def _registered(cls: type) -> Iterator[type]:
    if isinstance(cls, abc.ABCMeta):
        for reference in abc._get_dump(cls)[0]:  # type: ignore[attr-defined]
            if (other := reference()) is not None:
                yield other


@functools.lru_cache(maxsize=1)
def _by_class(_token: object) -> weakref.WeakKeyDictionary[type, list[type]]:
    """``_token`` is another one after each registration."""
    found: weakref.WeakKeyDictionary[type, list[type]] = weakref.WeakKeyDictionary()
    for owner in _standard():
        for other in _registered(owner):
            found.setdefault(other, []).append(owner)
    return found


def _standard() -> Iterator[type]:
    for module in (collections.abc, numbers):
        for name in module.__all__:
            if isinstance(owner := getattr(module, name), abc.ABCMeta):
                yield owner


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__} {id(cls)}"
