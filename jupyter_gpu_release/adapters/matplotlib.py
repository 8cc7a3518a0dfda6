"""matplotlib: figures, its settings, and those of the backend that shows figures in notebooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from .adapter import Adapter, LibrarySettings, Reducer, Values
from .ipython import current_shell

_RC_NOT = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "datapath", "savefig.directory"})
#: seaborn gives ``"b"``, ``"g"`` … colours of its own
_CODE = "colour "


#: back ends that need no window
_INLINE_NAME, _INLINE_BACKEND = "inline", "module://matplotlib_inline.backend_inline"
_WITHOUT_WINDOW = (_INLINE_NAME, "agg", "cairo", "pdf", "pgf", "ps", "svg", "template")


def _backend_of(matplotlib: Any) -> str:
    """Empty: none is chosen yet, or by matplotlib itself, where no front end names one (as ipykernel does)."""
    name = dict.get(matplotlib.rcParams, "backend")
    if not isinstance(name, str) or (name == "agg" and "MPLBACKEND" not in os.environ):
        return ""
    return _INLINE_NAME if name == _INLINE_BACKEND else name.lower()


def _rc(matplotlib: Any) -> Values:
    values = {name: value for name, value in dict.items(matplotlib.rcParams) if name not in _RC_NOT}
    colors = sys.modules.get("matplotlib.colors")
    codes = colors.colorConverter.colors if colors is not None else {}
    backend = _backend_of(matplotlib)
    values |= {"backend": backend} if backend in _WITHOUT_WINDOW else {}
    return {**values, **{f"{_CODE}{name}": value for name, value in dict.items(codes) if len(name) == 1}}


def _usual_rc(matplotlib: Any) -> Values:
    colors = sys.modules.get("matplotlib.colors")
    codes = colors.BASE_COLORS if colors is not None else {}
    values = dict(dict.items(matplotlib.rcParamsDefault))  # its own look-up of each name is slow
    return {**values, "backend": _INLINE_NAME, **{f"{_CODE}{name}": value for name, value in codes.items()}}


def _set_rc(matplotlib: Any, name: str, value: Any) -> None:
    if name.startswith(_CODE):
        sys.modules["matplotlib.colors"].colorConverter.colors[name.removeprefix(_CODE)] = value
    elif name == "backend":
        matplotlib.use(_INLINE_BACKEND if value == _INLINE_NAME else value)
    else:
        matplotlib.rcParams[name] = value


def _colormaps(cm: Any) -> Values:
    """Colour maps that are registered beside matplotlib's; of seaborn's, which its import brings, the one in use."""
    registry = cm._colormaps
    seaborns = vars(sys.modules["seaborn.cm"]) if "seaborn.cm" in sys.modules else {}
    used = dict.get(sys.modules["matplotlib"].rcParams, "image.cmap")
    names = [name for name in registry if name not in registry._builtin_cmaps]
    return {name: registry[name] for name in names if name not in seaborns or name == used}


def _set_colormap(cm: Any, name: str, value: Any) -> None:
    cm._colormaps.register(value, name=name, force=True)


def _styles(style: Any) -> Values:
    """Styles that are there beside matplotlib's."""
    usual = getattr(style, "core", style)._base_library  # up to matplotlib 3.10 in a module of its own
    return {name: dict(dict.items(values)) for name, values in style.library.items() if name not in usual}


def _set_style(style: Any, name: str, value: Any) -> None:
    if value is None:
        style.library.pop(name, None)
    else:
        style.library[name] = value


def _interactive(pyplot: Any) -> Values:
    """Of the inline back end: ``plt.ioff()``. Another one means another front end; it is set up by the first figure."""
    is_inline = "inline" in str(dict.get(pyplot.matplotlib.rcParams, "backend"))
    is_set_up = getattr(pyplot, "_backend_mod", None) is not None
    return {"interactive": pyplot.matplotlib.is_interactive()} if is_inline and is_set_up else {}


# ------------------------------------------------------------------------------ figures in notebooks
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
    shell = current_shell()
    backend = module.InlineBackend.instance(parent=shell)
    if backend.shell is None:
        backend.shell = shell
    setattr(backend, name, value)
    if name == "figure_formats" and "matplotlib.figure" in sys.modules and _formats(shell) != value:
        backend._update_figure_formatters()


def reduce_figure(_pickler: Any, figure: Any) -> Any:
    """A figure is a value: it does not open itself again (and show a second time) where it arrives."""
    maker, arguments, state, *rest = figure.__reduce_ex__(4)
    return maker, arguments, {name: part for name, part in state.items() if name != "_restore_to_pylab"}, *rest


class MatplotlibAdapter(Adapter):
    """Figures and settings."""

    carried_calls = (
        "matplotlib.use",
        "mpl.use",
        "switch_backend",
        "colormaps.register",
        "rcParams",
        "set_cmap",
        "style.library",
        "set_matplotlib_close",
        "set_matplotlib_formats",
        "style.use",
        *(f"seaborn.set{what}" for what in ("", "_color_codes", "_context", "_palette", "_style", "_theme")),
    )
    settings = (
        LibrarySettings("matplotlib.cm", _colormaps, lambda _: {}, _set_colormap),
        LibrarySettings("matplotlib", _rc, _usual_rc, _set_rc),
        LibrarySettings("matplotlib.style", _styles, lambda _: {}, _set_style, only_set=True),
        LibrarySettings(
            "matplotlib.pyplot",
            _interactive,
            lambda _: {"interactive": True},
            lambda pyplot, _, value: pyplot.matplotlib.interactive(value),
        ),
        LibrarySettings("matplotlib_inline.config", _inline, lambda _: _INLINE, _set_inline),
    )

    def reducer_for(self, kind: type) -> Reducer | None:
        return reduce_figure if any(base.__name__ == "Figure" for base in kind.__mro__) else None

    def what_stays(self) -> Iterable[str]:
        figures = getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None)
        sentence = "figures that are open here are not open in GPU cells: name them there, without their numbers"
        return [sentence] if getattr(figures, "figs", None) else ()

    def holds_itself(self, kind: type) -> bool:
        return str(kind.__module__).startswith("matplotlib")

    def forget_user(self) -> None:
        for known in (sys.modules["matplotlib"].get_configdir, sys.modules["matplotlib"].get_cachedir):
            if hasattr(known, "cache_clear"):
                known.cache_clear()


ADAPTER = MatplotlibAdapter()
