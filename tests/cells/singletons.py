# ruff: noqa: E501 - a cell is one string
"""Things that are known by what they are, not by what is in them: NaN, marks, the libraries' own generators."""

from __future__ import annotations

IMPORTS = "import collections, dataclasses, functools, math, random\nimport numpy as np, pandas as pd, torch\n"
_NANS = "nan = float('nan'); other = float('nan'); "
_DRAW = "random.seed(1); np.random.seed(1); torch.manual_seed(1); "
_SEED = "(random.seed(2), np.random.seed(2), torch.manual_seed(2).device)"

#: name → (cell before, GPU cell, what is asked then)
ROWS: dict[str, tuple[str, ...]] = {
    "marks of Python's own modules": (
        "import dataclasses, inspect, argparse, enum, functools, queue, unittest.mock\nm = [dataclasses.MISSING, inspect.Parameter.empty, argparse.SUPPRESS, ..., NotImplemented, unittest.mock.DEFAULT, dataclasses.KW_ONLY]",
        "n = [inspect._empty, dataclasses.MISSING]; ok = m[0] is dataclasses.MISSING, m[1] is inspect._empty, m[3] is Ellipsis, m[5] is unittest.mock.DEFAULT",
        "n[0] is inspect._empty, n[1] is dataclasses.MISSING, ok, m[6] is dataclasses.KW_ONLY",
    ),
    "the contexts from which decimal makes others": (
        "import decimal\ndecimal.DefaultContext.prec = 7; template = decimal.BasicContext",
        "made = decimal.Context().prec; template.prec = 5; same = template is decimal.BasicContext",
        "made, same, decimal.BasicContext.prec, template is decimal.BasicContext",
        "decimal.DefaultContext.prec = 28; decimal.BasicContext.prec = 9",
    ),
    "what numpy writes to": (
        "import numpy as np\nlog = []\nclass Log:\n    def write(self, text): log.append(text)\nhere = Log(); was = np.seterrcall(here), np.seterr(divide='log')",
        "x = np.ones(1) / 0; same = np.geterrcall() is here",
        "log, same, np.geterrcall() is here",
        "_ = np.seterrcall(None), np.seterr(divide='warn')",
    ),
    "the context of decimal": (
        "import decimal\ncontext = decimal.getcontext(); context.prec = 5; other = context.copy()",
        "context.prec = 3; same = context is decimal.getcontext(); third = str(decimal.Decimal(1) / 3); other.prec = 9",
        "third, same, context is decimal.getcontext(), str(decimal.Decimal(2) / 3), other.prec, context.flags[decimal.Inexact]",
        "context.prec = 28; context.clear_flags()",
    ),
    "NaN in a list": (
        "values = [1.0, np.nan, math.nan]",
        "found = np.nan in values, math.nan in values, values.count(np.nan), float('nan') in values; values.remove(np.nan)",
        "found, values, math.nan in values, np.nan in values",
    ),
    "NaN as a key": (
        "counts = {np.nan: 2, 1.0: 5}; labels = collections.Counter(pd.Series(['a', np.nan, np.nan], dtype=object))",
        "counts[np.nan] += 1; seen = labels[np.nan]; labels[np.nan] += 1",
        "counts[np.nan], seen, labels[np.nan], len(counts)",
    ),
    "NaN of one's own": (
        _NANS + "mine = [nan]; seen = {nan, other}",
        "found = nan in mine, nan in seen, len(seen), nan is other; mine.append(other); kept = {nan: 1}",
        "found, nan in mine, other in mine, seen == {nan, other}, kept.get(nan), kept.get(other)",
    ),
    "NaN made in the cell": (
        "",
        "made = float('nan'); box = ['x', made, np.nan]",
        "made in box, np.nan in box, box[1] is made",
    ),
    "NaN in many names": (
        "; ".join(f"n{i} = {i}.5" for i in range(120)) + "; table = {np.nan: 'missing'}",
        "x = table[np.nan]; more = [np.nan, n7]",
        "x, np.nan in more, table[np.nan], n119",
    ),
    "missing values of pandas": (
        "values = [pd.NA, pd.NaT, None, ...]",
        "found = [each is given for each, given in zip(values, (pd.NA, pd.NaT, None, ...))]; made = [pd.NA, pd.NaT]",
        "found, made[0] is pd.NA, made[1] is pd.NaT, values[0] is pd.NA",
    ),
    "marks of modules": (
        "import inspect, http, unittest.mock\nmarks = [dataclasses.MISSING, inspect.Parameter.empty, np._NoValue, http.HTTPStatus.OK, unittest.mock.DEFAULT]\n"
        "mine = object(); also = [mine, functools._NOT_FOUND]",
        "found = [each is given for each, given in zip(marks, (dataclasses.MISSING, inspect.Parameter.empty, np._NoValue, http.HTTPStatus.OK, unittest.mock.DEFAULT))]\n"
        "found += [also[0] is mine, also[1] is functools._NOT_FOUND]; made = [functools._NOT_FOUND, mine, dataclasses.KW_ONLY]",
        "found, made[0] is functools._NOT_FOUND, made[1] is mine, made[2] is dataclasses.KW_ONLY",
    ),
    "what holds a global generator": (
        "from scipy.stats import norm\n" + _DRAW,
        "a = norm.rvs(size=2).tolist(), np.random.rand()",
        f"a, {_SEED}, norm.rvs(size=2).tolist(), np.random.rand()",
    ),
    "what comes to hold one in the cell": (
        _DRAW,
        "from scipy.stats import norm\na = norm.rvs(size=2).tolist()",
        f"a, {_SEED}, norm.rvs(size=2).tolist(), np.random.rand()",
    ),
    "global generators by name": (
        _DRAW
        + "g = np.random.mtrand._rand; r = random._inst; t = torch.default_generator; bits = np.random.Generator(g._bit_generator)",
        "a = g.rand(), r.random(), torch.rand(1, generator=t).item(), bits.random(); also = [g, r, t]",
        f"a, g is np.random.mtrand._rand, also[1] is random._inst, also[2] is torch.default_generator, {_SEED}, g.rand(), r.random(), torch.rand(1, generator=t).item(), bits.random()",
        "del g, r, t, bits, also",  # as below
    ),
    "whose their methods are": (
        "import random\nfrom random import choice, random as draw\nfrom numpy.random import rand\nimport numpy as np",
        "owners = [choice.__self__, draw.__self__, rand.__self__]; also = random.shuffle, np.random.randint",
        "choice.__self__ is random._inst is owners[0] is owners[1] is also[0].__self__, rand.__self__ is np.random.mtrand._rand is owners[2], "
        "random.choice.__self__ is random._inst, also[1].__self__ is np.random.rand.__self__ is owners[2], "
        "also[0] is random.shuffle, also[1] is np.random.randint",
    ),
    "their methods": (
        _DRAW + "from random import choice, random as draw\nfrom numpy.random import rand, randint",
        "a = choice(range(99)), draw(), rand(), randint(99)",
        f"a, {_SEED}, choice(range(99)), draw(), rand(), randint(99)",
        "del choice, draw",  # libraries draw from it when they are first imported, which ranks have been before
    ),
}
