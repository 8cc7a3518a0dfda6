"""Settings of loaded libraries that differ from their defaults; they travel in with a cell, not back."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

Settings = dict[str, dict[str, Any]]

_RC_NOT = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "datapath", "savefig.directory"})
_INLINE = ("figure_formats", "print_figure_kwargs", "rc", "close_figures")


def capture_settings() -> Settings:
    """Everything that :func:`apply_settings` sets elsewhere; empty for libraries at their defaults."""
    found: Settings = {}
    for library, capture, _apply in _LIBRARIES:
        if library in sys.modules:
            with contextlib.suppress(AttributeError, ImportError, KeyError):  # internals of another version
                values = capture(sys.modules[library])
                if values:
                    found[library] = values
    return found


def apply_settings(settings: Settings) -> None:
    """Set what came for libraries that are loaded here (matplotlib is imported for it)."""
    for library, _capture, apply in _LIBRARIES:
        values = settings.get(library)
        if values is None:
            continue
        if library == "matplotlib" and library not in sys.modules:
            with contextlib.suppress(ImportError):
                __import__(library)
        if library in sys.modules:
            with contextlib.suppress(Exception):  # a setting that this version does not know
                apply(sys.modules[library], values)


def _numpy_out(numpy: Any) -> dict[str, Any]:
    options: dict[str, Any] = numpy.get_printoptions()
    return {name: options[name] for name, usual in _NUMPY_USUAL.items() if options.get(name) != usual}


_NUMPY_USUAL = {
    "edgeitems": 3, "threshold": 1000, "precision": 8, "suppress": False, "linewidth": 75, "nanstr": "nan",
    "infstr": "inf", "sign": "-", "floatmode": "maxprec",
}  # fmt: skip


def _numpy_in(numpy: Any, values: dict[str, Any]) -> None:
    numpy.set_printoptions(**values)


def _pandas_out(pandas: Any) -> dict[str, Any]:
    config = pandas._config.config
    found = {}
    for key, option in config._registered_options.items():
        value: Any = config._global_config
        for part in key.split("."):
            value = value[part]
        if value != option.defval and isinstance(value, (int, float, str, bool, type(None))):
            found[key] = value
    return found


def _pandas_in(pandas: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        with contextlib.suppress(Exception):
            pandas.set_option(key, value)


def _torch_out(torch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if torch.get_default_dtype() is not torch.float32:
        found["dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
    if torch.get_float32_matmul_precision() != "highest":
        found["matmul"] = torch.get_float32_matmul_precision()
    if torch.are_deterministic_algorithms_enabled():
        found["deterministic"] = True
    cudnn = torch.backends.cudnn
    flags = {name: getattr(cudnn, name) for name, usual in _CUDNN_USUAL.items() if getattr(cudnn, name) != usual}
    return {**found, **({"cudnn": flags} if flags else {})}


_CUDNN_USUAL = {"benchmark": False, "deterministic": False, "enabled": True}


def _torch_in(torch: Any, values: dict[str, Any]) -> None:
    if "dtype" in values:
        torch.set_default_dtype(getattr(torch, values["dtype"]))
    if "matmul" in values:
        torch.set_float32_matmul_precision(values["matmul"])
    if "deterministic" in values:
        torch.use_deterministic_algorithms(True)
    for name, value in values.get("cudnn", {}).items():
        setattr(torch.backends.cudnn, name, value)


def _sklearn_out(sklearn: Any) -> dict[str, Any]:
    usual = sys.modules["sklearn._config"]._global_config
    now: dict[str, Any] = sklearn.get_config()
    return {name: value for name, value in now.items() if value != usual.get(name)}


def _sklearn_in(sklearn: Any, values: dict[str, Any]) -> None:
    sklearn.set_config(**values)


def _matplotlib_out(matplotlib: Any) -> dict[str, Any]:
    usual = matplotlib.rcParamsDefault
    found = {}
    for name, value in dict.items(matplotlib.rcParams):
        if name not in _RC_NOT and value != dict.get(usual, name):
            found[name] = value
    return found


def _matplotlib_in(matplotlib: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        with contextlib.suppress(Exception):
            matplotlib.rcParams[name] = value


def _inline_out(module: Any) -> dict[str, Any]:
    if not module.InlineBackend.initialized():
        return {}
    backend = module.InlineBackend.instance()
    usual = module.InlineBackend.class_trait_defaults()
    found = {}
    for name in _INLINE:
        value = getattr(backend, name)
        if value != usual.get(name):
            found[name] = value
    return found


def _inline_in(module: Any, values: dict[str, Any]) -> None:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    backend = module.InlineBackend.instance(parent=shell)
    for name, value in values.items():
        setattr(backend, name, value)


_LIBRARIES = (
    ("numpy", _numpy_out, _numpy_in),
    ("pandas", _pandas_out, _pandas_in),
    ("torch", _torch_out, _torch_in),
    ("sklearn", _sklearn_out, _sklearn_in),
    ("matplotlib", _matplotlib_out, _matplotlib_in),
    ("matplotlib_inline.config", _inline_out, _inline_in),
)
