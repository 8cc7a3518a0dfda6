"""Pictures of figures that were made elsewhere: matplotlib sets up inline display only where a figure is made."""

from __future__ import annotations

from functools import partial
from typing import Any

_FIGURE = ("matplotlib.figure", "Figure")
_MIMES = ("image/png", "image/svg+xml", "image/jpeg", "application/pdf")
_INLINE = "module://matplotlib_inline.backend_inline"


def show_figures(shell: Any) -> None:
    """Have the first figure that is displayed set up what draws it; imports nothing before."""
    if getattr(shell, "kernel", None) is None:
        return
    for mime in _MIMES:
        formatter = shell.display_formatter.formatters[mime]
        if _FIGURE not in formatter.deferred_printers:
            formatter.for_type_by_name(*_FIGURE, partial(_draw, shell, mime))


def forget_figures(shell: Any) -> None:
    """Take :func:`show_figures` back."""
    for mime in _MIMES:
        printers = shell.display_formatter.formatters[mime].deferred_printers
        if getattr(printers.get(_FIGURE), "func", None) is _draw:
            del printers[_FIGURE]


def _draw(shell: Any, mime: str, figure: Any) -> Any:
    """Runs once: afterwards the formatter has matplotlib's own printer, or none for this format."""
    import matplotlib
    from matplotlib.figure import Figure

    if "inline" not in str(dict.get(matplotlib.rcParams, "backend")):
        return None
    from IPython.core.pylabtools import select_figure_formats
    from matplotlib_inline.backend_inline import InlineBackend, configure_inline_support

    configure_inline_support(shell, _INLINE)
    backend = InlineBackend.instance(parent=shell)
    select_figure_formats(shell, backend.figure_formats, **backend.print_figure_kwargs)
    printer = shell.display_formatter.formatters[mime].type_printers.get(Figure)
    return printer(figure) if printer is not None else None
