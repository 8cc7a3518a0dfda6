"""Settings of loaded libraries: those of the notebook travel in with a cell, those that the cell changes come home.

One table, :data:`LIBRARIES`, to which packages add (:data:`PLUG_INS`).
Of a library that is not loaded where its settings arrive they wait for its import.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import psutil

from ... import streams
from . import environment, log_settings
from .local_modules import ImportWatch

#: library → setting → value, as it travels
Settings = dict[str, dict[str, Any]]
Values = dict[str, Any]

#: a larger value stays where it is
LIMIT_BYTES = 1 << 16
_ABSENT = object()


@dataclass(frozen=True)
class Library:
    """A library's settings. Each function gets the loaded ``module``; ``write`` may raise anything."""

    module: str
    #: all settings as they are
    read: Callable[[Any], Values]
    #: what they are unless somebody sets them; of settings that are not named nothing is usual
    usual: Callable[[Any], Mapping[str, Any]]
    #: sets one of them
    write: Callable[[Any, str, Any], None]
    #: only what is set is read: a setting that is not there any more is None
    only_set: bool = False
    #: False: they go to a cell another way
    goes_along: bool = True


# -------------------------------------------------------------------------------- what the table's entries do
def _numpy(numpy: Any) -> Values:
    options = numpy.get_printoptions()
    errors = {f"{_ERROR}{kind}": reaction for kind, reaction in numpy.geterr().items()}
    return {**{name: options[name] for name in _NUMPY_USUAL if name in options}, **errors}


#: ``seterr``
_ERROR = "error."


_NUMPY_USUAL = {
    "edgeitems": 3,
    "threshold": 1000,
    "precision": 8,
    "suppress": False,
    "linewidth": 75,
    "nanstr": "nan",
    "infstr": "inf",
    "sign": "-",
    "floatmode": "maxprec",
    "formatter": None,
    "error.divide": "warn",
    "error.over": "warn",
    "error.under": "ignore",
    "error.invalid": "warn",
}


def _set_numpy(numpy: Any, name: str, value: Any) -> None:
    kind = name.removeprefix(_ERROR)
    numpy.set_printoptions(**{name: value}) if kind == name else numpy.seterr(**{kind: value})


def _pandas(pandas: Any) -> Values:
    config = pandas._config.config
    return {
        key: functools.reduce(dict.__getitem__, key.split("."), config._global_config)
        for key in config._registered_options
    }


def _pandas_usual(pandas: Any) -> Values:
    return {key: option.defval for key, option in pandas._config.config._registered_options.items()}


def _set_pandas(pandas: Any, name: str, value: Any) -> None:
    pandas.set_option(name, value)


def _torch(torch: Any) -> Values:
    cudnn = torch.backends.cudnn
    printed = vars(sys.modules["torch._tensor_str"].PRINT_OPTS)
    return {
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "threads": torch.get_num_threads(),
        **{name: getattr(cudnn, name.partition(".")[2]) for name in _CUDNN},
        **{f"print.{name}": value for name, value in printed.items()},
    }


_CUDNN = {"cudnn.benchmark": False, "cudnn.deterministic": False, "cudnn.enabled": True}
_TORCH_USUAL = {
    "dtype": "float32",
    "matmul": "highest",
    "deterministic": False,
    "grad": True,
    "anomaly": False,
    **_CUDNN,
    "print.precision": 4,
    "print.threshold": 1000,
    "print.edgeitems": 3,
    "print.linewidth": 80,
    "print.sci_mode": None,
}


@functools.cache
def _cores() -> int | None:
    count: int | None = psutil.cpu_count(logical=False)
    return count


def _torch_usual(torch: Any) -> Values:
    """The usual number, which depends on the machine: as many threads as it has cores."""
    now = torch.get_num_threads()
    told = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
    cores = {len(os.sched_getaffinity(0)), _cores(), *(int(text) for text in told if text.isdigit())}
    return {**_TORCH_USUAL, "threads": now if now in cores else None}


def _set_torch(torch: Any, name: str, value: Any) -> None:
    kind, _, rest = name.partition(".")
    if kind == "dtype":
        torch.set_default_dtype(getattr(torch, value))
    elif kind == "matmul":
        torch.set_float32_matmul_precision(value)
    elif kind == "deterministic":
        torch.use_deterministic_algorithms(value)
    elif kind == "grad":
        torch.set_grad_enabled(value)
    elif kind == "threads":
        torch.set_num_threads(value)
    elif kind == "anomaly":
        torch.autograd.set_detect_anomaly(value)
    else:
        setattr(torch.backends.cudnn if kind == "cudnn" else sys.modules["torch._tensor_str"].PRINT_OPTS, rest, value)


_HOOKS = "registered"


def _hooks(module: Any) -> Values:
    """The number of hooks that were registered: a module's hooks are told apart by the number that each got."""
    return {_HOOKS: module.RemovableHandle.next_id}


def _set_hooks(module: Any, _name: str, value: Any) -> None:
    module.RemovableHandle.next_id = max(module.RemovableHandle.next_id, value)


def _set_sklearn(sklearn: Any, name: str, value: Any) -> None:
    sklearn.set_config(**{name: value})


_RC_NOT = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "datapath", "savefig.directory"})
#: seaborn gives ``"b"``, ``"g"`` … colours of its own
_CODE = "colour "


def _matplotlib(matplotlib: Any) -> Values:
    values = {name: value for name, value in dict.items(matplotlib.rcParams) if name not in _RC_NOT}
    colors = sys.modules.get("matplotlib.colors")
    codes = colors.colorConverter.colors if colors is not None else {}
    return {**values, **{f"{_CODE}{name}": value for name, value in dict.items(codes) if len(name) == 1}}


def _matplotlib_usual(matplotlib: Any) -> Values:
    colors = sys.modules.get("matplotlib.colors")
    codes = colors.BASE_COLORS if colors is not None else {}
    values = dict(dict.items(matplotlib.rcParamsDefault))  # its own look-up of each name is slow
    return {**values, **{f"{_CODE}{name}": value for name, value in codes.items()}}


def _set_matplotlib(matplotlib: Any, name: str, value: Any) -> None:
    if name.startswith(_CODE):
        converter, code = sys.modules["matplotlib.colors"].colorConverter, name.removeprefix(_CODE)
        converter.colors[code] = value
        converter.cache.clear()
    else:
        matplotlib.rcParams[name] = value


_INLINE = {"figure_formats": {"png"}, "print_figure_kwargs": {"bbox_inches": "tight"}, "rc": {}, "close_figures": True}
_MIMES = {"image/svg+xml": "svg", "image/jpeg": "jpeg", "application/pdf": "pdf"}


def _inline(module: Any) -> Values:
    if not module.InlineBackend.initialized():
        return {}
    backend = module.InlineBackend.instance()
    values = {name: getattr(backend, name) for name in _INLINE}
    return {**values, "figure_formats": _formats(backend.shell) or set(values["figure_formats"])}


def _formats(shell: Any) -> set[str]:
    """Formats in which figures are shown: ``set_matplotlib_formats`` changes them without a word to the backend."""
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if shell is None or figure is None:
        return set()
    printers = shell.display_formatter.formatters
    found = {name for mime, name in _MIMES.items() if figure in printers[mime].type_printers}
    png = printers["image/png"].type_printers.get(figure)
    return found if png is None else found | {"retina" if "retina" in repr(png) else "png"}


def _set_inline(module: Any, name: str, value: Any) -> None:
    shell = _shell()
    backend = module.InlineBackend.instance(parent=shell)
    if backend.shell is None:
        backend.shell = shell
    setattr(backend, name, value)
    if name == "figure_formats" and "matplotlib.figure" in sys.modules and _formats(shell) != value:
        backend._update_figure_formatters()


#: what IPython itself shows, by the object that holds it
_SHOWN = {"ast_node_interactivity": "last_expr", "float_precision": "", "max_seq_length": 1000, "pprint": True}
#: folders of ``%cd``, for ``%cd -`` and ``%dhist``
_VISITED = "_dh"


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _shows(shell: Any, name: str) -> Any:
    return shell if name == "ast_node_interactivity" else shell.display_formatter.formatters["text/plain"]


def _ipython(_module: Any) -> Values:
    shell = _shell()
    if shell is None:
        return {}
    shown = {name: getattr(_shows(shell, name), name) for name in _SHOWN}
    return {**shown, "xmode": shell.InteractiveTB.mode, _VISITED: list(shell.user_ns.get(_VISITED, ()))}


def _set_ipython(_module: Any, name: str, value: Any) -> None:
    shell = _shell()
    if name == _VISITED:
        shell.user_ns.setdefault(name, [])[:] = value
    elif name == "xmode":
        shell.InteractiveTB.set_mode(mode=value)
    else:
        setattr(_shows(shell, name), name, value)


def _futures(futures: Any) -> Values:
    """State of the features of ``__future__``: those that earlier cells have imported are active in later ones."""
    shell = _shell()
    if shell is None:
        return {}
    return {
        name: bool(shell.compile.flags & getattr(futures, name).compiler_flag) for name in futures.all_feature_names
    }


def _set_future(futures: Any, name: str, value: Any) -> None:
    shell, flag = _shell(), getattr(futures, name).compiler_flag
    shell.compile.flags = shell.compile.flags | flag if value else shell.compile.flags & ~flag


def _warning_filters(_module: Any) -> Values:
    return {repr(entry): entry for entry in reversed(warnings.filters)}


def _add_filter(_module: Any, _name: str, value: Any) -> None:
    """The latest comes first."""
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters[:] = [value, *(entry for entry in filters if entry != value)]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _python(_module: Any) -> Values:
    return {"recursion limit": sys.getrecursionlimit(), "digits": sys.get_int_max_str_digits()}


def _set_python(_module: Any, name: str, value: Any) -> None:
    sys.setrecursionlimit(value) if name == "recursion limit" else sys.set_int_max_str_digits(value)


def _decimal(decimal: Any) -> Values:
    context = decimal.getcontext()
    traps = sorted(signal.__name__ for signal, is_on in context.traps.items() if is_on)
    return {**{name: getattr(context, name) for name in _DECIMAL if name != "traps"}, "traps": traps}


_DECIMAL = {
    "prec": 28,
    "rounding": "ROUND_HALF_EVEN",
    "Emin": -999999,
    "Emax": 999999,
    "capitals": 1,
    "clamp": 0,
    "traps": ["DivisionByZero", "InvalidOperation", "Overflow"],
}


def _set_decimal(decimal: Any, name: str, value: Any) -> None:
    context = decimal.getcontext()
    if name == "traps":
        for signal in context.traps:
            context.traps[signal] = signal.__name__ in value
    else:
        setattr(context, name, value)


_JAX = {
    "jax_enable_x64": False,
    "jax_debug_nans": False,
    "jax_debug_infs": False,
    "jax_disable_jit": False,
    "jax_default_matmul_precision": None,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_default_prng_impl": "threefry2x32",
}


def _jax(jax: Any) -> Values:
    return {name: jax.config.values[name] for name in _JAX if name in jax.config.values}


def _set_jax(jax: Any, name: str, value: Any) -> None:
    jax.config.update(name, value)


_KERAS = {"floatx": "float32", "dtype_policy": "float32", "epsilon": 1e-7, "image_data_format": "channels_last"}


def _keras(keras: Any) -> Values:
    config = keras.config
    return {name: config.dtype_policy().name if name == "dtype_policy" else getattr(config, name)() for name in _KERAS}


def _set_keras(keras: Any, name: str, value: Any) -> None:
    getattr(keras.config, f"set_{name}")(value)


#: how often Keras has given each name (``dense``, ``dense_1``), by thread
_NAMES = "object_name_uids"


def _keras_names(module: Any) -> Values:
    return {_NAMES: dict(module.get_global_attribute(_NAMES) or {})}


def _set_keras_names(module: Any, name: str, value: Any) -> None:
    module.set_global_attribute(name, collections.defaultdict(int, value))


#: where mlflow keeps what ``set_tracking_uri`` and ``set_experiment`` chose (the latter would ask the server again)
_MLFLOW = {
    "tracking_uri": ("mlflow.tracking._tracking_service.utils", "_tracking_uri"),
    "experiment": ("mlflow.tracking.fluent", "_active_experiment_id"),
}


def _mlflow(_module: Any) -> Values:
    places = {name: sys.modules.get(module) for name, (module, _) in _MLFLOW.items()}
    return {name: getattr(place, _MLFLOW[name][1], None) for name, place in places.items() if place is not None}


def _set_mlflow(_module: Any, name: str, value: Any) -> None:
    module, attribute = _MLFLOW[name]
    setattr(sys.modules[module], attribute, value)


LIBRARIES = (
    Library("sys", _python, lambda _: {"recursion limit": 1000, "digits": 4300}, _set_python),
    Library("os", environment.read, environment.initial, environment.write, only_set=True, goes_along=False),
    Library("logging", log_settings.read, lambda _: {}, log_settings.write, only_set=True),
    Library("decimal", _decimal, lambda _: _DECIMAL, _set_decimal),
    Library("warnings", _warning_filters, lambda _: {}, _add_filter),
    Library("IPython", _ipython, lambda _: {**_SHOWN, "xmode": "Context", _VISITED: []}, _set_ipython),
    Library("__future__", _futures, lambda futures: dict.fromkeys(futures.all_feature_names, False), _set_future),
    Library("numpy", _numpy, lambda _: _NUMPY_USUAL, _set_numpy),
    Library("pandas", _pandas, _pandas_usual, _set_pandas),
    Library("torch", _torch, _torch_usual, _set_torch),
    Library("torch.utils.hooks", _hooks, lambda _: {_HOOKS: 0}, _set_hooks),
    Library(
        "sklearn", lambda m: dict(m.get_config()), lambda _: sys.modules["sklearn._config"]._global_config, _set_sklearn
    ),
    Library("matplotlib", _matplotlib, _matplotlib_usual, _set_matplotlib),
    Library("matplotlib_inline.config", _inline, lambda _: _INLINE, _set_inline),
    Library("jax", _jax, lambda _: _JAX, _set_jax),
    Library("keras", _keras, lambda _: _KERAS, _set_keras),
    Library("keras.src.backend.common.global_state", _keras_names, lambda _: {_NAMES: {}}, _set_keras_names),
    Library("mlflow", _mlflow, lambda _: dict.fromkeys(_MLFLOW), _set_mlflow),
)
_BY_MODULE = {library.module: library for library in LIBRARIES}
#: packages add a library by an entry point of this group, which names a :class:`Library`
PLUG_INS = "jupyter_gpu_release.settings"
#: of no account for what a cell computes
_ONLY_SHOWN = frozenset(
    {"warnings", "IPython", "sys", "mlflow", "logging", "torch.utils.hooks", "keras.src.backend.common.global_state"}
)


@functools.cache
def add_plug_ins() -> None:
    """Add what installed packages bring; takes some milliseconds, once."""
    for point in entry_points(group=PLUG_INS):
        try:
            library: Library = point.load()
            _BY_MODULE.setdefault(library.module, library)
        except Exception as error:  # noqa: BLE001 - foreign code
            warnings.warn(f"settings of {point.name} do not travel: {type(error).__name__}: {error}", stacklevel=2)


# ------------------------------------------------------------------------------------------- there and back
def capture_settings(*, that_count: bool = False) -> Settings:
    """Settings that are not the usual ones (``that_count``: only where they can change results)."""
    found: Settings = {}
    asked = [
        library.module
        for library in _libraries()
        if (library.module not in _ONLY_SHOWN if that_count else library.goes_along)
    ]
    for library, values in _loaded(asked):
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

    def read_again(self, *modules: str) -> None:
        """Their settings are to be as they are now."""
        self._values |= {library.module: values for library, values in _loaded(modules)}

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

    def _before(self, library: Library) -> Mapping[str, Any]:
        known = self._values.get(library.module)
        if known or (known is not None and library.only_set):
            return known
        waited = {name: _unpack(value) for name, value in self.waiting.get(library.module, {}).items()}
        return {**_usual(library), **waited}


class ArrivedSettings:
    """Sets what arrives: at once, or as soon as its library is imported."""

    def __init__(self) -> None:
        self.waiting: Settings = {}
        #: package → levels of its loggers, which it sets itself when it is imported
        self._again: Settings = {}
        self._imports = ImportWatch(self.waits_for, self._on_imports, at_once=True)

    def set_arrived(self, settings: Settings) -> None:
        """Set ``settings``; what this version of a library does not know is left out."""
        for module, values in settings.items():
            if module in _BY_MODULE:
                self.waiting.setdefault(module, {}).update(values)
        self._settle()

    def all_settings(self) -> Settings:
        """Those of this process and those that wait."""
        self._settle()
        return {**self.waiting, **capture_settings()}

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
        return bool(self.waiting or self._again)

    def waits_for(self, module: str) -> bool:
        """Tell if something is to be set when this one is imported."""
        return module in self.waiting or module in self._again

    def _on_imports(self, modules: Iterable[str]) -> None:
        for module in modules:
            self.on_import(module)

    def on_import(self, module: str) -> None:
        """Called when a library for which settings wait has been imported."""
        _write(module, self.waiting.pop(module, {}))
        _write("logging", self._again.pop(module, {}))
        self._watch()


def _libraries() -> list[Library]:
    add_plug_ins()
    return list(_BY_MODULE.values())


def _loaded(modules: Collection[str] = sys.modules.keys()) -> Iterator[tuple[Library, Values]]:
    """The libraries that are loaded (of these ``modules``), and their settings."""
    for library in _libraries():
        if library.module in modules and library.module in sys.modules:
            try:
                values = library.read(sys.modules[library.module])
            except Exception:  # noqa: BLE001 - internals of another version, or a library half imported
                continue
            yield library, values


def _usual(library: Library) -> Mapping[str, Any]:
    try:
        return library.usual(sys.modules[library.module])
    except Exception:  # noqa: BLE001 - internals of another version
        return {}


def _differing(library: Library, values: Values, before: Mapping[str, Any]) -> Values:
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


def _unpack(value: Any) -> Any:
    return pickle.loads(value.data) if isinstance(value, PackedSetting) else value


def _write(module: str, values: Values) -> None:
    for name, value in values.items():
        with contextlib.suppress(Exception):  # a setting that this version does not know, a class that is not here
            _BY_MODULE[module].write(sys.modules[module], name, _unpack(value))
