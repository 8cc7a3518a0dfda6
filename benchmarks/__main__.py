"""``python -m benchmarks NAME [--json] [--quick]``: a table, and with ``--json`` one JSON object as the last line."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from pathlib import Path

from .report import Report, show

NAMES = ("start", "release", "stream", "transfer", "gang", "server", "sidebar")
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=(*NAMES, "all"))
    parser.add_argument("--json", action="store_true", help="print the JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="few repetitions (to see that it works)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    names = NAMES if arguments.name == "all" else (arguments.name,)
    for name in names:
        report: Report = importlib.import_module(f".{name}", __package__).run(quick=arguments.quick)
        show(report)
        RESULTS.mkdir(exist_ok=True)
        document = json.dumps(report.document())
        (RESULTS / f"{name}.json").write_text(document + "\n")
        if arguments.json:
            print(document, flush=True)
    return 0


def _end(signum: int, _: object) -> None:
    """Leave as Ctrl-C does: what was started is ended on the way out."""
    sys.exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
