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
    "what libraries keep for a thread": (
        "import joblib, sympy, scipy.fft\nfrom sympy.core.parameters import global_parameters\nx = sympy.Symbol('x')\n"
        "_ = joblib.parallel_config(backend='threading', n_jobs=2); global_parameters.evaluate = False; _ = scipy.fft.set_workers(2).__enter__()",
        "seen = joblib.Parallel().n_jobs, str(x + x), global_parameters.evaluate, scipy.fft.get_workers()\n"
        "_ = joblib.parallel_config(n_jobs=3); sympy.core.parameters.global_parameters.evaluate = True; _ = sympy.evaluate(True).__enter__(); _ = scipy.fft.set_workers(3).__enter__()",
        "seen, joblib.Parallel().n_jobs, str(x + x), global_parameters.evaluate, global_parameters is sympy.core.parameters.global_parameters",
        "del joblib.parallel._backend.config; global_parameters.evaluate = True; scipy.fft._pocketfft.helper._config.default_workers = 1",
    ),
    "how polars shows tables": (
        "import polars as pl\nt = pl.DataFrame({'a': [1.23456] * 5, 'b': [1] * 5, 'c': [1] * 5})\n_ = pl.Config(tbl_rows=2, float_precision=1)",
        "seen = str(t); _ = pl.Config.set_tbl_cols(2); _ = pl.Config(float_precision=3)",
        "seen, str(t)",
        "pl.Config.restore_defaults()",
    ),
    "the back end of matplotlib": (
        "import matplotlib as mpl\n_back = mpl.get_backend(); mpl.use('svg')",
        "seen = mpl.get_backend(); mpl.use('pdf')",
        "seen, mpl.get_backend()",
        "mpl.use(_back); del _back",
    ),
}
