# ruff: noqa: E501 - a cell is one string
"""Frames that a cell changes in place, and what shares their memory, be they made by a plain cell or by a GPU cell."""

from __future__ import annotations

IMPORTS = "import numpy as np, pandas as pd, scipy.sparse, types\n"
FRAME = "df = pd.DataFrame({'a': [1., None, 3.], 'b': [1., 2., 3.], 'k': ['x', 'y', 'z'], 'i': [1, 2, 3]})\n"
_ALL = "df.fillna(-1).to_dict('list'), list(df.index)"
ROWS = {
    "names of an index that several share": (
        "idx = pd.Index([1, 2]); all_of = [pd.DataFrame({'x': [1, 2]}, index=idx) for _ in range(3)]; f = all_of[0]\n"
        "s = pd.Series([1, 2]); t = s.copy(deep=False)\n"
        "many = pd.MultiIndex.from_tuples([(1, 2), (3, 4)]); kept = pd.Series([1, 2], index=many)",
        "f.index.name = 'n'; f.columns.name = 'c'; s.index.name = 'k'; kept.index.names = [*'ab']; f.loc[1, 'x'] = 7",
        "[(each.index.name, each.columns.name, each.index is idx) for each in all_of], idx.name, s.index.name, "
        "t.index.name, many.names, all_of[0].x.tolist(), f is all_of[0]",
    ),
    "the frequency of an index that several share": (
        "days = pd.DatetimeIndex(['2024-01-01', '2024-01-02', '2024-01-03']); a = pd.DataFrame({'x': [1, 2, 3]}, index=days)\n"
        "b = pd.Series([1., 2, 3], index=days); hours = pd.timedelta_range('1h', periods=3); c = pd.Series([1, 2, 3], index=hours)\n"
        "kept = pd.date_range('2024', periods=3, freq='MS'); d = pd.Series([1, 2, 3], index=kept)",
        "a.index.freq = 'D'; b.iloc[0] = 5; c.index.freq = None; d.index.name = 'm'; d.iloc[1] = 7",
        "a.index.freq, b.index.freq, days.freq, b.index is days, hours.freq, c.index.freq, kept.freq, d.index.freq, d, d.shift(1, freq='MS')",
    ),
    "a column filled": (FRAME, "df['a'] = df['a'].fillna(5.)", _ALL),
    "an only column": (
        "df = pd.DataFrame({'a': [1., None, 3.], 'k': ['x', 'y', 'z']})",
        "df['a'] = df['a'].fillna(5.)",
        "df.a.tolist()",
    ),
    "a column of whole numbers": (FRAME, "df['i'] = df['i'] * 2", _ALL),
    "a column of texts": (FRAME, "df['k'] = df['k'].str.upper()", _ALL),
    "another type": (FRAME, "df['i'] = df['i'].astype(float)", _ALL),
    "a new column": (FRAME, "df['n'] = df.b * 2", _ALL),
    "columns taken out": (FRAME, "p = df.pop('b'); del df['a']", "df.to_dict('list'), p.tolist()"),
    "a cell of it": (FRAME, "df.iloc[0, 1] = 7.; df.loc[1, 'a'] = 5.", _ALL),
    "a row added": (FRAME, "df.loc[3] = [1., 2., 'q', 4]", _ALL),
    "sorted": (FRAME, "df.sort_values('b', ascending=False, inplace=True)", _ALL),
    "another index": (FRAME, "df.index = [5, 6, 7]", _ALL),
    "numbers held": (FRAME + "v = df['b'].to_numpy()", "df['b'] = df['b'] * 2", "df.b.tolist(), v.tolist()"),
    "a column held": (FRAME + "s = df['b']", "df.iloc[0, 1] = 9.", "df.b.tolist(), s.tolist()"),
    "columns held": (
        FRAME + "e = df[['b', 'i']]",
        "df['b'] = df['b'] * 2\ndf['i'] = 0",
        "df.b.tolist(), df.i.tolist(), e.to_dict('list')",
    ),
    "a shallow copy": (FRAME + "e = df.copy(deep=False)", "df['b'] = df['b'] * 2", "df.b.tolist(), e.b.tolist()"),
    "the frame held": (FRAME + "h = {'f': df}", "h['f']['b'] = 0.", "df.b.tolist(), h['f'] is df"),
    "over an array": (
        "a = np.arange(6.).reshape(3, 2); df = pd.DataFrame(a, copy=False)",
        "df[0] = 0.",
        "df.to_dict('list'), a.tolist()",
    ),
    "a series": ("s = pd.Series([1., 2.]); v = s.values", "s.iloc[0] = 5.", "s.tolist(), v.tolist()"),
    "categories": (
        "df = pd.DataFrame({'c': pd.Categorical(['a', 'b', 'a'])})",
        "df.loc[0, 'c'] = 'b'",
        "df.c.tolist()",
    ),
    "days": (
        "df = pd.DataFrame({'d': pd.date_range('2020-01-01', periods=3, tz='UTC')})",
        "df['d'] = df.d + pd.Timedelta('1D')",
        "df.d.astype(str).tolist()",
    ),
    "nullable": (
        "df = pd.DataFrame({'n': pd.array([1, None, 3], dtype='Int64')})",
        "df['n'] = df.n.fillna(2)",
        "df.n.tolist()",
    ),
    "attributes": (
        FRAME + "df.name = 'train'; df.old = 1; s = df['b']; s.unit = 'm'",
        "df.part = df.name + s.unit; del df.old; df.name = 'test'",
        "df.name, df.part, hasattr(df, 'old'), s.unit, df.copy().attrs",
    ),
    "attributes of a new frame": (
        "n = 1",
        "df = pd.DataFrame({'a': [1]}); df.name = 'made'; df.attrs['x'] = 2",
        "df.name, df.attrs",
    ),
    "a masked array": (
        "m = np.ma.array([1., 2., 3.], mask=[0, 1, 0]); k = m.mask",
        "m.mask = [1, 0, 0]",
        "m.tolist(), k.tolist()",
    ),
    "a sparse matrix": ("m = scipy.sparse.csr_matrix(np.eye(3))", "m.data = m.data * 2", "m.toarray().tolist()"),
    "a view in an object": (
        "z = np.zeros(3); o = types.SimpleNamespace(a=z[:2])",
        "o.a += 1; o.a = None",
        "o.a, z.tolist()",
    ),
    "categories in another order": (
        "f = pd.DataFrame({'c': pd.Categorical(['a', 'b', 'a'])}); held = f.c.array",
        "f['c'] = f['c'].cat.reorder_categories(['b', 'a'])",
        "f.c.tolist(), f.c.cat.categories.tolist(), held.tolist(), held.categories.tolist()",
    ),
    "arrays of pandas' own that others hold, too": (
        "all_of = [pd.Series(v, dtype=d) for v, d in (([1, None], 'Int64'), (['a', None], 'string'), (['a', 'b'], 'category'), ([True, None], 'boolean'))]\n"
        "all_of += [pd.Series(pd.date_range('2020', periods=2, tz='UTC')), pd.Series(pd.arrays.IntervalArray.from_breaks([0, 1, 2]))]\n"
        "held = [s.array for s in all_of]; other = pd.Series([1, 2], dtype='Int64'); of_other = other.array; frame = pd.DataFrame({'a': pd.array([1, 2])}); col = frame['a'].array",
        "for s in all_of:\n    s.iloc[0] = s.iloc[1]\nof_other[1] = 7; frame.loc[1, 'a'] = 5",
        "[(s.astype(str).tolist(), pd.Series(a).astype(str).tolist()) for s, a in zip(all_of, held)], other.tolist(), other.array is of_other, col.tolist()",
    ),
}
