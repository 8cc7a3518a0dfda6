# ruff: noqa: E501 - a cell is one string
"""Names of the notebook that a library finds by itself: by their text, or all of ``__main__``."""

from __future__ import annotations

IMPORTS = "import doctest, logging, logging.config, pickle, timeit, typing, unittest\n"
_DOC = 'limit = 5\ndef add(x): return x + limit\ndef f(x):\n    """\n    >>> f(2)\n    7\n    >>> add(f(0))\n    10\n    """\n    return add(x)\n'
_TESTS = "class Tests(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, 1)\n    def test_b(self): self.assertTrue(found)\nfound = [1]\n"
_HINTS = "class B: pass\nclass A:\n    x: 'B'\n    y: 'list[B]'\n    z: list['B']\ndef f(a: 'A') -> 'typing.Optional[B]': pass\nmany = typing.List['B']\n"
ROWS = {
    "doctest": (_DOC, "r = doctest.testmod()", "r"),
    "unittest": (
        _TESTS,
        "import io\nresult = unittest.main(argv=[''], exit=False, testRunner=unittest.TextTestRunner(io.StringIO())).result\nn = result.testsRun, len(result.errors)\ndel result",
        "n",
    ),
    "tests by their path": (
        _TESTS,
        "n = unittest.defaultTestLoader.loadTestsFromName('__main__.Tests').countTestCases()",
        "n",
    ),
    "timeit": ("def f(): return x\nx = 3", "t = timeit.timeit('f()', 'from __main__ import f, x', number=2) > 0", "t"),
    "a class of a logging file": (
        "lines = []\nclass Keep(logging.Handler):\n    def emit(self, record): lines.append(record.getMessage())",
        "logging.config.dictConfig({'version': 1, 'disable_existing_loggers': False, 'handlers': {'k': {'()': '__main__.Keep'}}, 'loggers': {'by.text': {'handlers': ['k']}}})\n"
        "logging.getLogger('by.text').warning('hi')",
        "lines",
        "logging.getLogger('by.text').handlers.clear()",
    ),
    "what a pickle names": (
        "import math\nk = 2\ndef h(x): return math.floor(x) * k\nclass P:\n    def __init__(self): self.a = 1.5\n    def v(self): return h(self.a)\ndata = pickle.dumps(P())",
        "p = pickle.loads(data); v = p.v()",
        "v, type(p) is P",
    ),
    "what a pickle in a function names": (
        "class P: n = 3\ndata = pickle.dumps(P())\ndef read(): return pickle.loads(data)",
        "n = read().n",
        "n",
    ),
    "hints of a class": (_HINTS, "h = typing.get_type_hints(A)", "h, h['x'] is B"),
    "hints of a function": (_HINTS, "h = typing.get_type_hints(f)", "h, h['a'] is A"),
    "hints of what a cell makes": (
        _HINTS,
        "class C:\n    v: 'tuple[A, B]'\ndef g(c: 'C') -> many: pass\nh = typing.get_type_hints(C), typing.get_type_hints(g)",
        "h",
    ),
    "parameters of types": (
        "Ts = typing.TypeVarTuple('Ts'); P = typing.ParamSpec('P')\ndef deco(g: typing.Callable[P, int]) -> typing.Callable[P, int]: return g",
        "d = {Ts: 1, P: 2}; h = deco(len)",
        "d[Ts], d[P], h is len, deco.__annotations__['g'].__args__[0] is P",
    ),
}
