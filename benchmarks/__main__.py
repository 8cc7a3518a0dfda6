"""``python -m benchmarks NAME [--json] [--quick]``: a table, and with ``--json`` one JSON object as the last line.

``--quick`` shows that it works: the fewest repetitions, without what needs clusters or competitors of its own, and
nothing is kept.
``--part`` takes one part of a benchmark that has several (``PARTS`` in its module), and nothing is kept either.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

from .bed import shared_bed
from .metrics import check
from .report import CannotMeasureError, Report, show

NAMES = (
    "start",
    "release",
    "stream",
    "transfer",
    "broker",
    "simulate",
    "clusters",
    "server",
    "sidebar",
    "preemption",
    "team",
    "sweep",
    "environments",
    "gang",  # last: it leaves a node of the shared cluster dead
)
RESULTS = Path(__file__).parent / "results"
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=(*NAMES, "all"))
    parser.add_argument("--json", action="store_true", help="print the JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="few repetitions (to see that it works)")
    parser.add_argument("--part", default="", help="this part of the benchmark alone")
    arguments = parser.parse_args()
    for signum in _ENDING:
        signal.signal(signum, _end)
    names = NAMES if arguments.name == "all" else (arguments.name,)
    cannot = []
    with shared_bed() if arguments.quick and len(names) > 1 else contextlib.nullcontext():
        for name in names:
            began_s = time.monotonic()
            try:
                _one(name, quick=arguments.quick, part=arguments.part, as_json=arguments.json)
            except CannotMeasureError as error:
                cannot.append(f"benchmark {name} did not run: {error}")
                print(cannot[-1], file=sys.stderr, flush=True)
            if len(names) > 1:
                print(f"({name}: {time.monotonic() - began_s:.0f} s)", file=sys.stderr, flush=True)
    is_checked = not arguments.quick or os.environ.get("CI") == "true"  # CI has what it takes
    return int(bool(cannot) and is_checked)


def _one(name: str, *, quick: bool, part: str, as_json: bool) -> None:
    place = f".{name}.run" if (Path(__file__).parent / name).is_dir() else f".{name}"
    module = importlib.import_module(place, __package__)
    report: Report = _part(module, part, quick=quick) if part else module.run(quick=quick)
    if not part:
        check(report, quick=quick)
    show(report)
    document = json.dumps(report.document())
    if not quick and not part:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(document + "\n")
    if as_json:
        print(document, flush=True)


def _part(module: ModuleType, part: str, *, quick: bool) -> Report:
    parts = getattr(module, "PARTS", ())
    if part not in parts:
        raise CannotMeasureError(f"it has no part {part} ({', '.join(parts) or 'it is one'})")
    report: Report = module.run(quick=quick, parts=(part,))
    return report


def _end(signum: int, _: object) -> None:
    """Leave; what was started is ended on the way out, which no second signal may break off (``timeout`` sends two)."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
