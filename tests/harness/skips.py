"""In CI, where all is installed that a test may need, a skipped test is a failed one.

Whatever skips it (``importorskip``, ``skipif``, a fixture); but for the reasons that are named here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import TypeVar

import pytest
from optional_libraries import LARGE, is_light

#: what neither CI's machine nor its packages have
ALSO_IN_CI = (
    "needs an NVIDIA GPU",
    "this machine has a driver",
    "with one core there is nothing to share out",
    "no loop devices here",  # containers have none
    "no network namespaces here",  # nor may all of them make these
    "other users cannot run this Python",  # the same, where it lies in a folder of root's
    "could not import 'tensorflow'",  # 1.5 GB: its notebooks run where it is installed
    "a fault of Python before 3.13",
    "jupyter_kernel_test/",  # cases of ipykernel's own: completion, history, inspection
)
#: what a light environment lacks by intention
_LARGE = tuple(f"could not import '{name}'" for name in LARGE) if is_light() else ()
_RIGHT = re.compile("|".join(map(re.escape, (*ALSO_IN_CI, *_LARGE))))
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


class SkipsFail:
    """A plugin for CI."""

    @classmethod
    def register(cls, config: pytest.Config) -> None:
        """Where this is CI."""
        if os.environ.get("CI") == "true":
            config.pluginmanager.register(cls())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Of each phase of a test."""
        return _judged((yield))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Of a module that skips itself."""
        return _judged((yield))


def _judged(report: Report) -> Report:
    if report.skipped and not hasattr(report, "wasxfail") and not _RIGHT.search(str(report.longrepr)):
        report.outcome = "failed"
        report.longrepr = (
            f"{report.longrepr}\nIn CI this fails: install what is missing, or name the reason in "
            f"tests/harness/skips.py"
        )
    return report
