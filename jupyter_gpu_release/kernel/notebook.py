"""This kernel's side of everything: settings, defaults, names, and the link to the gateway; one per shell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from IPython.utils.text import DollarFormatter

from ..adapters.stdlib.environment import SignalHandlers
from ..client.config import GpuRelease, NotebookDefaults, load_settings
from ..errors import OptionError
from ..options.definitions import Written, from_mapping, overlay
from ..options.run_options import RunOptions, build_options
from ..presentation.receipt import ShortCells
from .connection import GatewayConnection
from .namespace.detached import DetachedResults
from .namespace.namespace import Namespace
from .namespace.published import PublishedValues
from .namespace.values import UnreadableValues
from .runs.background import BackgroundRuns
from .runs.missed import Registrations
from .setup_cells import SetupCells

if TYPE_CHECKING:
    from ..client.rest import GatewayClient
    from ..submission.setup import Setup
    from .namespace.post_mortem import FailedCell
    from .runs.functions import NotebookExecutor

#: options whose values may hold braces and dollars of their own
_FREE_TEXT = frozenset({"env", "label", "name", "workdir"})


class Notebook:
    """Everything that the magics work with. Nothing is read or connected before it is needed."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.defaults = NotebookDefaults()
        self.connection = GatewayConnection(shell)
        self.published = PublishedValues(self)
        #: the latest of which there are frames
        self.last_failure: FailedCell | None = None
        self.background = BackgroundRuns(self)
        self.short_cells = ShortCells()
        self.signal_handlers = SignalHandlers()
        self.registrations = Registrations()
        self.detached = DetachedResults(shell)
        self.unreadable_values = UnreadableValues(
            shell, lambda name, value: self.names.input_capture.lineage.run_of(name, value)
        )

    @cached_property
    def settings(self) -> GpuRelease:
        """The configuration files' content (read once; ``%config GpuRelease`` shows and changes it)."""
        settings = load_settings(self.shell)
        self.shell.configurables.append(settings)
        return settings

    @cached_property
    def names(self) -> Namespace:
        """The notebook's names."""
        return Namespace(self.shell, self.background.awaited, self._setup)

    @cached_property
    def setup_cells(self) -> SetupCells:
        """The cells under ``%%gpu_setup``; most notebooks have none."""
        return SetupCells(self.shell, self.signal_handlers)

    def _setup(self) -> Setup | None:
        return self.setup_cells.setup() if "setup_cells" in vars(self) else None

    @property
    def file_defaults(self) -> Written:
        """Default options from configuration files."""
        return from_mapping(self.settings.defaults)

    @cached_property
    def launcher(self) -> NotebookExecutor:
        """Sends functions to the cluster."""
        from .runs.functions import NotebookExecutor

        return NotebookExecutor(self)

    def rest_client(self) -> GatewayClient:
        """A client for questions to the gateway that is there; starts nothing."""
        from ..client.rest import GatewayClient

        return GatewayClient.for_target(self.connection.target(self.settings))

    def options(self, written: Written, *, without: Collection[str] = ()) -> RunOptions:
        """The options of one cell or function, over this notebook's defaults (those ``without`` left out)."""
        own = overlay(self.file_defaults, self.defaults.own)
        return build_options(overlay({name: own[name] for name in own if name not in without}, written))

    def close(self) -> None:
        """End the connection (attached runs end with it) and forget the settings."""
        self.background.close()
        self.unreadable_values.end()
        self.detached.end()
        self.connection.close()
        if "settings" in self.__dict__ and self.settings in self.shell.configurables:
            self.shell.configurables.remove(self.settings)


def expand_variables(written: Written, names: Mapping[str, Any]) -> Written:
    """Put notebook variables into option values, as IPython does: ``--gpus {n}`` or ``--gpus $n``."""
    return {name: [_expand(name, value, names) for value in values] for name, values in written.items()}


def _expand(option: str, value: str, names: Mapping[str, Any]) -> str:
    if "{" not in value and "$" not in value:
        return value
    try:
        return str(DollarFormatter().vformat(value, args=[], kwargs=names))
    except NameError as error:
        if option in _FREE_TEXT:
            return value
        raise OptionError(
            f"--{option} {value}: there is no variable {error.name}",
            hint="define it in a cell before, or write the value",
        ) from None
    except Exception:  # noqa: BLE001 - any expression may stand there; what does not work stays as written
        return value
