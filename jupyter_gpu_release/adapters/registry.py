"""The adapters of the libraries that are loaded, ours and those of other packages."""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import weakref
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from .adapter import Adapter

#: a warning of Python's would be lost: those are held back while values are written
_log = logging.getLogger(__name__)
#: packages add an adapter by an entry point of this group: ``library = "module:ADAPTER"``
ENTRY_POINTS = "jupyter_gpu_release.adapters"
#: modules of Python that have settings
_PYTHONS = (
    "_thread",
    "builtins",
    "calendar",
    "csv",
    "decimal",
    "gc",
    "locale",
    "logging",
    "os",
    "posix",
    "site",
    "socket",
    "threading",
    "sys",
    "time",
    "warnings",
)
#: library (a top-level package) → module here that has its ``ADAPTER``. Those further up are asked first
_OURS = {
    "numpy": "numpy.adapter",
    "torch": "torch.adapter",
    "jaxlib": "jax",
    "jax": "jax",
    "cupy": "cupy",
    "matplotlib": "matplotlib",
    "matplotlib_inline": "matplotlib",
    "pandas": "pandas",
    "accelerate": "accelerate",
    "xgboost": "xgboost",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "tqdm": "tqdm",
    "sklearn": "sklearn",
    "mlflow": "mlflow",
    "IPython": "ipython",
    "__future__": "ipython",
    "ipykernel": "ipython",
    "ipywidgets": "ipywidgets",
    "traitlets": "traitlets",
    "pydantic": "pydantic",
    "PIL": "pil",
    "polars": "tables",
    "pyarrow": "tables",
    "random": "stdlib.random_numbers",
    **dict.fromkeys(_PYTHONS, "stdlib.adapter"),
}

Answer = TypeVar("Answer")


@functools.cache
def _sources() -> dict[str, Callable[[], Adapter]]:
    """Library → what loads its adapter. Reading the entry points takes some milliseconds, once."""
    found: dict[str, Callable[[], Adapter]] = {
        point.name: functools.partial(_load_foreign, point) for point in entry_points(group=ENTRY_POINTS)
    }
    ours = {library: functools.partial(_load_ours, module) for library, module in _OURS.items()}
    return {**{name: load for name, load in found.items() if name not in ours}, **ours}


def _load_ours(module: str) -> Adapter:
    adapter: Adapter = importlib.import_module(f".{module}", __package__).ADAPTER
    return adapter


def _load_foreign(point: EntryPoint) -> Adapter:
    try:
        adapter: Adapter = point.load()
    except Exception as error:  # noqa: BLE001 - foreign code
        why = f"{type(error).__name__}: {error}"
        _log.warning("the adapter of %s (%s) cannot be loaded: %s", point.name, point.value, why)
        return Adapter()
    return adapter


@functools.cache
def adapter_of(library: str) -> Adapter | None:
    """The adapter of a library (a top-level package), loaded or not; None: nobody has one."""
    load = _sources().get(library)
    return None if load is None else load()


def loaded_adapters() -> list[Adapter]:
    """The adapters of all libraries that this process has loaded, each once."""
    found = {id(each): each for name in _sources() if name in sys.modules and (each := adapter_of(name)) is not None}
    return list(found.values())


_BY_KIND: weakref.WeakKeyDictionary[type, tuple[Adapter, ...]] = weakref.WeakKeyDictionary()


def adapters_of(kind: type) -> tuple[Adapter, ...]:
    """The adapters of the libraries that a class and its bases are of, in the order in which they are asked."""
    try:
        return _BY_KIND[kind]
    except KeyError:
        origins = {str(getattr(base, "__module__", "")).partition(".")[0] for base in kind.__mro__}
        names = [name for name in _sources() if name in origins and name in sys.modules]
        adapters = {id(each): each for each in map(adapter_of, names) if each is not None}
        found = _BY_KIND[kind] = tuple(adapters.values())
        return found


def is_of_library(kind: type) -> bool:
    """Tell if another adapter than that of Python itself knows a class."""
    return len(adapters_of(kind)) > 1


def first_answer(answers: Iterable[Answer | None]) -> Answer | None:
    """The first of the adapters' answers that is one."""
    return next((answer for answer in answers if answer is not None), None)


def size_of(thing: Any) -> int | None:
    """The size of an object in bytes, if its library knows it without the object being written."""
    return first_answer(adapter.nbytes_of(thing) for adapter in adapters_of(type(thing)))


def group_facts(ranks: int) -> dict[str, Any]:
    """Facts of :meth:`Adapter.group_facts`, and whose groups they are. Raises ImmovableError."""
    told = [(adapter.name, adapter.group_facts(ranks)) for adapter in loaded_adapters()]
    return next(({"library": name, **facts} for name, facts in told if facts), {})


def restore_group(made: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    """Have the library make its groups again, loaded or not; see :meth:`Adapter.restore_group`."""
    adapter = adapter_of(made.get("library", "torch"))  # what is older says nothing: it is torch's
    return {} if adapter is None else adapter.restore_group(made, rank, ranks)
