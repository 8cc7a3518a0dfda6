# ruff: noqa: E501 - a cell is one string
"""Cells over views that are not plain strides: what the memory's other names show afterwards."""

from __future__ import annotations

IMPORTS = "import numpy as np, torch\n"

_COMPLEX = "z = torch.tensor([1 + 2j, 3 + 4j]); "
_FIELDS = "s = np.zeros(3, [('a', 'f8'), ('b', 'i4')]); "
_MASKED = "m = np.ma.masked_array([1., 2., 3.], [False, True, False]); "
_BYTES = "b = bytearray(range(8)); v = memoryview(b); "

#: name → (cell before, GPU cell, what is asked then)
ROWS: dict[str, tuple[str, str, str]] = {
    "of arrays that travelled": (
        "a = np.arange(200.); v = a[1:]; s = np.arange(4); f = np.asfortranarray(np.ones((3, 4))); r = np.arange(3); r.flags.writeable = False; d = np.array(['2020-01-01'], 'M8[D]'); l = [a]",
        "x = [(e[1:].base is e, e.flags.owndata, e.flags.f_contiguous, e.flags.writeable) for e in (a, s, f, r, d)], v.base is a, l[0] is a; b = np.ones((3, 4)); w = b[1:]; g = f.T.copy('F'); e = np.zeros(0)",
        "x, [(e[1:].base is e, e.flags.owndata, e.flags.f_contiguous) for e in (a, b, f, g, d, e)], w.base is b, b",
    ),
    "of an array that gets another shape": (
        "m = np.arange(6); v = m[::2]; w = m[1:4]; n = m; box = [v]",
        "m.shape = (2, 3); v[0] = 7; s = w.sum(); r = m[0]; t = m.T",
        "n is m, m, box[0] is v, [np.shares_memory(m, e) for e in (v, w, r, t)], m.__setitem__((0, 1), 9), v, w, s, r, t",
    ),
    "that gets another shape": (
        "m = np.arange(6); v = m[:]; o = np.array([[1], None], dtype=object); f = np.asfortranarray(np.arange(6).reshape(2, 3)); g = f.T",
        "v.shape = (2, 3); v[0, 0] = 5; o.shape = (2, 1); g.shape = -1",
        "m, v, np.shares_memory(m, v), o, f, g, np.shares_memory(f, g)",
    ),
    "broadcast": (
        "a = np.arange(3.); b = np.broadcast_to(a, (2, 3)); c = np.broadcast_to(1.5, (2, 2))",
        "x = b.sum(), b.flags.writeable, b.strides, b.base is None, c.strides; a[0] = 5; d = np.broadcast_to(a, (2, 3))",
        "x, [(e.flags.writeable, e.strides, e.base is None) for e in (b, c, d)], b, d, np.shares_memory(a, b), np.shares_memory(a, d)",
    ),
    "nested fields": (
        "s = np.zeros(2, [('p', [('x', 'f4'), ('y', 'f4')]), ('n', 'i4')]); x = s['p']['x']; m = s[['n']]; r = s.view(np.recarray)",
        "x[1] = 3; r.n[0] = 4",
        "s, x, m, r.p.y, np.shares_memory(x, s)",
    ),
    "diagonals, windows and expanded rows of a tensor": (
        "a = torch.arange(9.).reshape(3, 3); e = a[0].expand(2, 3); d = a.diagonal(); u = torch.arange(4.).unfold(0, 2, 1); s = a[:, ::2]",
        "d += 10; s[0, 1] = -1; y = u.sum()",
        "a, e, d, u, s, y",
    ),
    "a hard mask": (
        "m = np.ma.masked_array([1., 2, 3], [0, 1, 0], hard_mask=True); d = m.data; k = m.mask; f = m[1:]",
        "m[1] = 9; d[0] = 7; f[1] = 5; m.fill_value = 4",
        "m, d, k, f, m.hardmask, m.fill_value",
    ),
    "methods that are bound to an array": (
        "A = np.arange(4.).reshape(2, 2); times = A.dot; e = np.array([]); add = [e.sum, [].append, {}.get]",
        "A[0, 0] = 7; y = times(np.ones(2)); other = A.mean; z = add[0]()",
        "times(np.ones(2)), y, times.__self__ is A, other.__self__ is A, z, add[2]('x', 5)",
    ),
    "conjugate, changed": (_COMPLEX + "c = z.conj()", "c += 1j", "z, c, c.is_conj()"),
    "conjugate, both": (_COMPLEX + "c = z.conj()", "c += 1; z *= 2j", "z, c"),
    "conjugate, its memory changed": (_COMPLEX + "c = z.conj()", "z += 1j", "z, c"),
    "conjugate, looked at": (_COMPLEX + "c = z.conj()", "n = c.sum().item()", "n, z.add_(1j), c"),
    "conjugate in a list": (_COMPLEX + "box = [z.conj(), z]", "box[0] += 1j", "z, box"),
    "conjugate, transposed": (_COMPLEX + "h = z.reshape(1, 2).mH", "h += 2j", "z, h"),
    "negative": (_COMPLEX + "n = z.conj().imag", "n += 1", "z, n, n.is_neg()"),
    "negative, its memory changed": (_COMPLEX + "n = z.conj().imag", "z += 1j", "z, n"),
    "made in the cell": (_COMPLEX, "c = z.conj(); n = c.imag", "z.add_(1j), c, n"),
    "real part": (_COMPLEX + "r = z.real", "r += 1", "z, r"),
    "imaginary part and all": (_COMPLEX + "i = z.imag", "i += 1; z += 1", "z, i"),
    "real part of an array": ("z = np.array([1 + 2j, 3 + 4j]); r = z.real", "r += 1", "z, r"),
    "both parts of an array": ("z = np.array([1 + 2j, 3]); r, i = z.real, z.imag", "i += 1; r[0] = 7", "z, r, i"),
    "parts made in the cell": ("z = np.array([1 + 2j, 3])", "r, i = z.real, z.imag", "r.__iadd__(1), i, z"),
    "overlapping windows": (
        "x = np.arange(6.); w = np.lib.stride_tricks.as_strided(x, (4, 3), (8, 8))",
        "w[0, 2] = 9",
        "x, w",
    ),
    "overlapping windows of a tensor": (
        "x = torch.arange(6.); w = x.as_strided((4, 3), (1, 1))",
        "w[0, 2] = 9",
        "x, w",
    ),
    "overlapping windows, both": ("x = torch.arange(6.); w = x.unfold(0, 3, 1)", "x += 1; w[1, 1] = 7", "x, w"),
    "overlapping halves": ("x = np.arange(6.); a, b = x[:4], x[2:]", "a += 1; b *= 2", "x, a, b"),
    "overlapping halves of a tensor": ("x = torch.arange(6.); a, b = x[:4], x[2:]", "a += 1; b *= 2", "x, a, b"),
    "one of overlapping halves": ("x = np.arange(6.); a, b = x[:4], x[2:]", "a += 1", "x, a, b"),
    "backwards": ("x = np.arange(6.); r = x[::-1]", "r[0] = 9; r += 1", "x, r"),
    "of another type": ("x = np.arange(3.); u = x.view('u1')", "u[7] = 64", "x, u"),
    "of another type, of a tensor": ("x = torch.arange(3.); u = x.view(torch.int32)", "u[0] = 7", "x, u"),
    "field": (_FIELDS + "a = s['a']", "a += 1", "s, a"),
    "field and all": (_FIELDS + "a = s['a']", "s['b'] = 2; a[0] = 5", "s, a"),
    "two fields": (_FIELDS + "a = s[['a', 'b']]", "a['b'] = 3", "s, a"),
    "field, its memory changed": (_FIELDS + "a = s['a']", "s['a'][1] = 4", "s, a"),
    "record": (_FIELDS + "r = s.view(np.recarray)", "r.a += 1", "s, r"),
    "values of a masked array": (_MASKED + "d = m.data", "d[0] = 9", "m, d"),
    "mask of a masked array": (_MASKED + "k = m.mask", "m[0] = np.ma.masked", "m, k, m.data"),
    "masked array, changed": (_MASKED + "d = m.data", "m += 1", "m, d"),
    "view of a masked array": (_MASKED + "n = m[:2]", "n[0] = 9", "m, n"),
    "masked array over an array": ("x = np.arange(3.); m = np.ma.masked_array(x, [0, 0, 1])", "m[0] = 9", "x, m"),
    "cast of bytes": (_BYTES + "c = v.cast('i')", "c[0] = 7", "b, list(v), list(c)"),
    "cast, its bytes changed": (_BYTES + "c = v.cast('i')", "b[0] = 7", "b, list(v), list(c)"),
    "part of bytes": (_BYTES + "p = v[2:5]", "p[0] = 7; b[3] = 9", "b, list(v), list(p)"),
    "a record": (_FIELDS + "r = s[1]", "r['a'] = 4; s['b'] = 2", "s, r, r.__setitem__('b', 7), s"),
    "a record, made": (_FIELDS, "r = s[1]; r['a'] = 4", "s, r, r.__setitem__('b', 7), s"),
    "a record of a part": (_FIELDS + "p = s[1:]; r = p[0]; box = [r]", "box[0]['a'] = 4", "s, p, r, box[0] is r"),
    "a record of a record": ("s = np.zeros(2, [('p', [('x', 'i4')])]); r = s[1]['p']", "r['x'] = 5", "s, r"),
    "a field of a record": (
        "s = np.zeros(2, [('p', 'i4', 3)]); a = s[1]['p']",
        "a[1] = 5",
        "s, a, a.__setitem__(0, 7), s",
    ),
    "a record alone": ("r = np.void((1, 2.), [('a', 'i4'), ('b', 'f8')]); box = [r]", "r['a'] = 5", "r, box[0] is r"),
    "a record, its array changed": (
        "s = np.zeros(3, [('a', 'f8')]).view(np.recarray); r = s[1]",
        "s.a = 3",
        "s, r, r.a",
    ),
    "view of an array's memory": ("x = np.arange(4.); v = memoryview(x)", "v[0] = 9.0", "x, list(v)"),
    "a tensor over a part of an array that is a part itself": (
        "x = np.arange(6.)[1:]; t = torch.from_numpy(x[1:])",
        "x += 1; t[0] = 9",
        "x, t",
    ),
}
