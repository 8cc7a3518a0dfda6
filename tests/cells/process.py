# ruff: noqa: E501 - a cell is one string
"""Settings that the notebook has told its process and libraries."""

from __future__ import annotations

IMPORTS = "import collections, copy, dataclasses, datetime, decimal, enum, fractions, functools, heapq, io, itertools, json, math, operator, os, pathlib, random, re, string, struct, sys, types, typing, weakref, array\n"
ROWS = {
    "the size of threads' stacks": (
        "import threading\n_ = threading.stack_size(1 << 20)",
        "seen = threading.stack_size(2 << 20)",
        "seen, threading.stack_size(0)",
    ),
    "a handler that is taken away": (
        "import logging\nlog = logging.getLogger('h32.taken'); own = logging.StreamHandler(io.StringIO()); log.addHandler(own)",
        "log.removeHandler(own)",
        "len(log.handlers)",
        "log.handlers.clear(); del own",
    ),
    "recursion limit": (
        "sys.setrecursionlimit(3456)",
        "x = sys.getrecursionlimit(); sys.setrecursionlimit(2345)",
        "x, sys.getrecursionlimit()",
        "sys.setrecursionlimit(3000)",
    ),
    "options of pandas": (
        "import pandas as pd\npd.set_option('display.precision', 2)",
        "x = pd.get_option('display.precision'); pd.set_option('display.max_rows', 7)",
        "x, pd.get_option('display.max_rows')",
        "pd.reset_option('display.precision'); pd.reset_option('display.max_rows')",
    ),
}
