# ruff: noqa: E501 - a cell is one string
"""Iterators with which others go on."""

from __future__ import annotations

IMPORTS = "import io, itertools\n"
ROWS = {
    "dict iterator": ("d = {'a': 1, 'b': 2, 'c': 3}; it = iter(d); next(it)", "x = next(it)", "x, next(it), list(it)"),
    "set iterator": ("s = {1, 2, 3}; it = iter(s); next(it)", "x = next(it)", "x, list(it)", "del it"),
    "dict items iterator": (
        "d = {'a': 1, 'b': 2, 'c': 3}; it = iter(d.items()); al = [it]",
        "x = next(it)",
        "x, next(al[0]), al[0] is it",
    ),
    "cycle repeat count": (
        "c = itertools.cycle('ab'); r = itertools.repeat(5, 3); n = itertools.count(2, 3); al = [c, r, n]",
        "x = next(c), next(r), next(n)",
        "x, next(al[0]), next(al[1]), next(al[2]), al[0] is c",
    ),
    "islice takewhile": (
        "src = iter(range(10)); i = itertools.islice(src, 1, 6, 2); t = itertools.takewhile(lambda x: x < 8, src)",
        "x = next(i)",
        "x, next(src), list(i), list(t)",
    ),
    "accumulate": (
        "a = itertools.accumulate([1, 2, 3, 4]); next(a); al = [a]",
        "x = next(a)",
        "x, next(al[0]), al[0] is a",
    ),
    "product perm": (
        "p = itertools.product('ab', repeat=2); q = itertools.permutations([1, 2, 3], 2); next(p); al = [p, q]",
        "x = next(p), next(q)",
        "x, next(al[0]), next(al[1])",
    ),
    "zip longest star": (
        "z = itertools.zip_longest([1], [2, 3], fillvalue=0); s = itertools.starmap(pow, [(2, 3), (3, 2)]); c = itertools.compress('abc', [1, 0, 1])",
        "x = next(z), next(s), next(c)",
        "x, list(z), list(s), list(c)",
    ),
    "map over object": ("acc = []; m = map(acc.append, [1, 2, 3]); next(m)", "next(m)", "acc, list(m), acc"),
    "reversed list": ("l = [1, 2, 3]; r = reversed(l); next(r)", "x = next(r); l.append(9)", "x, list(r), l"),
    "enumerate start": ("e = enumerate('abc', 5); next(e); al = [e]", "x = next(e)", "x, next(al[0])"),
    "callable iter": ("n = [0]\ndef f(): n[0] += 1; return n[0]\ni = iter(f, 9)", "x = next(i)", "x, next(i), n"),
    "siblings of tee, one": (
        "src=iter([1,2,3,4,5]); a, b = itertools.tee(src); next(a)",
        "x = next(a)",
        "x, next(b), next(a), next(b), next(src)",
    ),
    "siblings of tee, box": (
        "a, b, c = itertools.tee(iter(range(9)), 3); next(a); box=[b]; keep=[a]",
        "x = next(a), next(a)",
        "x, next(box[0]), next(c), next(keep[0]), box[0] is b, keep[0] is a",
    ),
    "siblings of tee, func": (
        "a, b = itertools.tee('abc')\ndef f(): return next(b)",
        "x = f()",
        "x, next(a), f(), [*a]",
    ),
    "siblings of tee, far": (
        "a, b = itertools.tee(iter(range(200))); _ = [next(a) for _ in range(100)]",
        "x = next(a)",
        "x, next(b), next(a), next(b)",
    ),
    "siblings of tee, map": (
        "a, b = itertools.tee(iter(range(9))); m = map(str, b)",
        "x = next(a), next(a)",
        "x, next(m), next(a)",
    ),
    "pairwise by hand": ("a, b = itertools.tee([1,2,3,4]); next(b, None); z = zip(a, b)", "x = next(z)", "x, [*z]"),
}
