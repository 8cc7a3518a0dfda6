"""The notebook's setup (``%%gpu_setup``) in a rank: before its GPUs are granted, as far as it does not need them."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import traceback
from typing import TYPE_CHECKING

from ...analysis import sources
from ...errors import RunFailedError
from ...protocol.cell import CellPayload, CellSource, SetupCell
from ...serialization import codec
from ...serialization.identity import Origins
from ...serialization.rebuild import NamespaceInfo
from ...unpickling import Trust
from ..values.settings import read_settings_ahead

if TYPE_CHECKING:
    from .shell import RankShell

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class RankSetup:
    """Runs the cells in their order, each once. ``origins``: what came for them, as it was then."""

    def __init__(self, shell: RankShell, payload: CellPayload) -> None:
        self._shell = shell
        self._inputs = payload.setup_inputs
        self._waiting = [cell for cell in payload.setup if not _is_done(cell)]
        self.origins = Origins()
        self._has_inputs = not payload.setup_inputs.stream

    def run_before_grant(self) -> None:
        """Run what needs no GPU: up to a cell that may look for one, or whose libraries could."""
        if not self._waiting:
            return
        had = os.environ.get(_VISIBLE)
        os.environ[_VISIBLE] = ""  # no GPU is this rank's yet
        try:
            while self._waiting and not _needs_gpu(self._waiting[0]):
                self._run(self._waiting.pop(0))
        finally:
            if had is None:
                os.environ.pop(_VISIBLE, None)
            else:
                os.environ[_VISIBLE] = had
        read_settings_ahead()

    def run_the_rest(self) -> None:
        """Run what had to wait for the GPUs."""
        is_due = bool(self._waiting)
        while self._waiting:
            self._run(self._waiting.pop(0))
        if is_due:
            read_settings_ahead()

    def _run(self, cell: SetupCell) -> None:
        if not self._has_inputs:
            self._load_inputs()
        text = "\n" * cell.line_offset + cell.source
        sources.register_sources(self._shell.compile, [CellSource(cell.filename, cell.count, text)])
        # the notebook has shown what it prints
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            outlet, self._shell.display_pub.outlet = self._shell.display_pub.outlet, None
            try:
                with self._shell.builtin_trap:
                    code = compile(text, cell.filename, "exec", self._shell.compile.flags, dont_inherit=True)
                    exec(code, self._shell.user_ns)
            except Exception as error:
                raise _failure(cell, error) from error
            finally:
                self._shell.display_pub.outlet = outlet

    def _load_inputs(self) -> None:
        self._has_inputs = True
        names = self._shell.user_ns
        realm = NamespaceInfo(names, at_home=False, origins=self.origins)
        loaded = codec.load(self._inputs.stream, self._inputs.buffers, realm, trust=Trust.RANK)
        names.update(loaded.values)
        for name, module in loaded.modules.items():
            names[name] = importlib.import_module(module)


def _is_done(cell: SetupCell) -> bool:
    """Tell if it is an import for its effect, of what this process has imported."""
    return not cell.count and all(module in sys.modules for module in cell.modules)


def _needs_gpu(cell: SetupCell) -> bool:
    """Tell if it may ask for a device. A library that does so when it is imported has not been imported ahead."""
    tops = {module.partition(".")[0] for module in cell.modules}
    return cell.is_late or any(top not in sys.modules and top not in sys.stdlib_module_names for top in tops)


def _failure(cell: SetupCell, error: Exception) -> RunFailedError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == cell.filename]
    where = f", line {frames[-1].lineno}" if frames else ""
    text = f"%%gpu_setup (In [{cell.count}]{where}) failed in the rank: {type(error).__name__}: {error}"
    return RunFailedError(text, hint="mend it and run it again, or forget it with %gpu_setup --clear")
