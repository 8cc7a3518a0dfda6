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
    "a named handler is the logger's": (
        "import logging\nlog = logging.getLogger('h32.named'); log.propagate = False; out = logging.StreamHandler(sys.stdout); log.addHandler(out)",
        "log2 = logging.getLogger('h32.new'); new = logging.StreamHandler(sys.stdout); log2.addHandler(new); new.setLevel('ERROR')\n"
        "seen = out in log.handlers; out.setFormatter(logging.Formatter('NEW %(message)s')); err = logging.StreamHandler(sys.stderr); log.addHandler(err)",
        "seen, out in log.handlers, err in log.handlers, new in log2.handlers, new.level, out.formatter._fmt",
        "log.handlers.clear(); log2.handlers.clear(); del out, err, new, log, log2",
    ),
    "a named handler is taken away and back": (
        "import logging\nlog = logging.getLogger('h32.away'); log.propagate = False; out = logging.StreamHandler(sys.stdout); log.addHandler(out)",
        "was = out in log.handlers; log.removeHandler(out); left = out in log.handlers; log3 = logging.getLogger('h32.away.to'); log3.addHandler(out)",
        "was, left, out in log.handlers, out in log3.handlers, sum(type(each) is logging.StreamHandler for each in [*log.handlers, *log3.handlers])",
        "log.handlers.clear(); log3.handlers.clear(); del out, log, log3",
    ),
    "the root's handler by name": (
        "import logging\nlogging.basicConfig(level=logging.INFO, format='A %(message)s', stream=sys.stdout, force=True); own = logging.root.handlers[0]",
        "own.setFormatter(logging.Formatter('B %(message)s'))",
        "own in logging.root.handlers, logging.root.handlers[0].formatter._fmt",
        "logging.root.removeHandler(own); logging.root.setLevel(30); del own",
    ),
    "sys.path": (
        "",
        "sys.path.append('/h32/extra'); sys.path.insert(0, '/h32/first'); sys.path.insert(1, '/h32/second')",
        "sys.path[:2], sys.path[-1]",
        "sys.path[:] = [each for each in sys.path if not each.startswith('/h32')]",
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
