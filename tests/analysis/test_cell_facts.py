# ruff: noqa: E501 - a cell is one string
"""What a cell reads, binds, deletes and imports."""

from __future__ import annotations

import builtins

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from round_trip import make_shell

from jupyter_gpu_release.analysis.cell_facts import CellFacts, parse_cell, transform_of_bodies
from jupyter_gpu_release.analysis.dataflow import analyse, may_install

transform = TransformerManager().transform_cell


def facts_of(body: str) -> CellFacts:
    return analyse(parse_cell(body, transform), transform)


def names(found: set[str]) -> set[str]:
    return found - set(vars(builtins)) - {"get_ipython"}


@pytest.mark.parametrize(
    ("body", "reads", "hints"),
    [
        ("y = x", "x", ""),
        ("x = 1\ny = x", "", ""),
        ("x += 1", "x", ""),
        ("x: int = y", "y", ""),
        ("x: kind", "kind", ""),
        ("a.b = c[d]", "a c d", ""),
        ("a.b: kind", "a kind", ""),
        ("for i in rows: total += i", "rows total", ""),
        ("for i in rows:\n    t = i\nprint(t)", "rows", "t"),
        ("while go: x = 1\nx", "go", "x"),
        ("if c: x = 1\nelse: x = 2\nx", "c", ""),
        ("if c: x = 1\nx", "c", "x"),
        ("if c: x = 1\nelse: raise E\nx", "c E", ""),
        ("with open(p) as f: s = f.read()\ns", "p", ""),
        ("try:\n    x = f()\nexcept E as e:\n    print(e)\nx", "f E", "x"),
        ("try:\n    x = f()\nexcept E:\n    raise\nx", "f E", ""),
        ("try:\n    pass\nfinally:\n    y = q", "q", ""),
        ("del a[0], b", "a b", ""),
        ("x = 1\ndel x\nx", "", "x"),
        ("[a * k for a in rows if a > low]", "rows k low", ""),
        ("[[c for c in r if c in keep] for r in rows]", "rows keep", ""),
        ("{k: v for k, v in d.items()}", "d", ""),
        ("any((hit := r) for r in rows)\nhit", "rows", "hit"),
        ("(n := f(a)) + n", "f a", ""),
        ("f = lambda a, b=base, *c, **d: a + b + k\n", "base k", ""),
        (
            "match v:\n    case {'a': t, **rest}: print(t, rest)\n    case Pt(x=c.LOW) if ok: pass\n    case [h, *more]: more",
            "v Pt c ok",
            "",
        ),
        ("async with s() as t:\n    async for i in t: await go(i)", "s go", ""),
        ("print(f'{a!r:>{width}}')", "a width", ""),
        ("@deco(arg)\ndef f(x: T = d) -> R: return x + late", "deco arg T d R late", ""),
        ("x = y = z\nx, *y = w", "z w", ""),
        ("global g\ng = 1", "", ""),
    ],
)
def test_reads(body: str, reads: str, hints: str) -> None:
    facts = facts_of(body)
    assert names(facts.reads) == set(reads.split())
    assert names(facts.hints) == set(hints.split())


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        ("def f(): return model", ""),
        ("def f(): return model\nf()", "model"),
        ("def f(): return model\nmodel = 1\nf()", ""),
        ("def f(): return g()\ndef g(): return deep\nf()", "deep"),
        ("def f():\n    def g(): return a + b\n    a = 1\n    return g\nf()", "b"),
        ("def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += k\n    return g\nf()", "k"),
        ("def step():\n    global counter\n    counter += 1\nstep()", "counter"),
        ("class A(Base):\n    k = q\n    z = k\n    def m(self): return helper(k)\nA()", "Base q helper k"),
        ("class A:\n    def m(self): return helper()\n", ""),
        ("class A:\n    def m(self): return helper()\nA().m()", "helper"),
        ("def f(): return A()\nclass A:\n    def m(self, d=dflt): return helper()\nf()", "dflt helper"),
        ("def f(): return model\nmap(f, rows)", "rows model"),
        ("def f(): return model\nexec(code)", "code"),
    ],
)
def test_what_functions_read_counts_when_they_are_used(body: str, reads: str) -> None:
    assert names(facts_of(body).reads) == set(reads.split())


def test_opaque_cells_take_all_their_functions_need() -> None:
    facts = facts_of("def f(): return model\nexec(code)")
    assert facts.opaque
    assert "model" in facts.hints


def test_bound_and_deleted() -> None:
    facts = facts_of(
        "import a.b as c, d.e\nx, (y, *z) = 1, (2,)\ndef f():\n    global g\n    g = 1\nf()\ndel x, old\nfor i in (): pass"
    )
    assert facts.bound >= {"c", "d", "x", "y", "z", "f", "g", "i"}
    assert facts.deleted == {"x", "old"}
    assert facts_of("try:\n    f()\nexcept E as e:\n    pass").deleted == {"e"}


@pytest.mark.parametrize(
    ("body", "hints", "bound"),
    [
        ("%timeit -n 3 -r 1 f(x)", "f x", ""),
        ("%%timeit x = f(y)\nw = x + z", "f y", "w"),
        ("%time y = f(x)", "f x", "y"),
        ("%%time\ny = f(x)", "", "y"),
        ("%%capture out --no-stderr\ny = x", "", "out y"),
        ("files = !ls {folder} $name", "folder name", "files"),
        ("!echo {a + b}", "a b", ""),
        ("%cd {where}", "where", ""),
        ("df.query('a > @limit and b < @top')", "limit top", ""),
        ("eval('p + q')", "p q", ""),
    ],
)
def test_text_of_magics_commands_and_queries(body: str, hints: str, bound: str) -> None:
    facts = facts_of(body)
    assert names(facts.hints) == set(hints.split())
    assert facts.bound >= set(bound.split())


def test_the_body_of_a_cell_magic_is_read_like_a_cell() -> None:
    facts = facts_of("%%time\nz = w\n%timeit v")
    assert names(facts.reads) == {"w"}
    assert names(facts.hints) == {"v"}
    assert names(facts_of("%%bash\necho $x").reads) == set()


def test_imports() -> None:
    facts = facts_of(
        "from __future__ import annotations\nimport torch.nn as nn\nfrom a.b import c\nfrom . import here\nif 0:\n    import cond\n"
        "try:\n    import opt\nexcept ImportError:\n    pass\ntry:\n    import needed\nexcept ValueError:\n    pass\n"
        "def f():\n    import inside\nf()\nwith x:\n    import under_with"
    )
    assert facts.imports == {"torch", "a", "needed", "under_with"}
    assert facts.modules >= {"torch.nn", "a.b", "a.b.c", "cond", "opt", "inside"}


@pytest.mark.parametrize(
    "line", ["%pip install zork", "!pip install zork", "!uv pip install zork", "%conda install zork"]
)
def test_a_cell_that_installs_requires_nothing(line: str) -> None:
    facts = facts_of(f"{line}\nimport zork")
    assert facts.installs
    assert facts.imports == set()


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("x = 1\n%pip install zork", True),
        ("!pip3 uninstall -y zork", True),
        ("%%bash\nuv pip install zork", True),
        ('subprocess.run([sys.executable, "-m", "pip", "install", "zork"])', True),
        ("install = pipeline.install()", False),
        ("pip = 1\ninstall = 2", False),
    ],
)
def test_installers_are_found_in_a_cells_text(text: str, may: bool) -> None:
    assert may_install(text) is may


def test_chains_and_questions() -> None:
    facts = facts_of("concurrent.futures.Future()\nname = input('? ')")
    assert "concurrent.futures.Future" in facts.chains
    assert facts.asks_input
    assert facts_of("def ask(): return getpass.getpass()\nask()").asks_input
    assert not facts_of("x.input()").asks_input


@pytest.mark.parametrize(
    ("body", "line"),
    [("x = (", 4), ("a = 1\nreturn a", 5), ("yield 1", 4), ("ok = 1\n%time 1\ndef f(:", 6), ("a b", 4)],
)
def test_syntax_errors_have_the_cells_own_line(body: str, line: int) -> None:
    with pytest.raises(SyntaxError) as caught:
        parse_cell(body, transform, line_offset=3)
    assert caught.value.lineno == line


def test_python_is_not_transformed() -> None:
    calls: list[str] = []

    def counting(source: str) -> str:
        calls.append(source)
        return source

    parse_cell("await f()", counting)
    assert calls == []
    parse_cell("%time 1", lambda source: counting("1"))
    assert calls == ["1"]


def test_the_users_transformers_do_not_see_a_body_again() -> None:
    shell = make_shell()
    shell.input_transformers_post.append(lambda lines: [line.replace("1", "11") for line in lines])
    assert transform_of_bodies(shell)("print(1)\n%time 1") == "print(1)\nget_ipython().run_line_magic('time', '1')\n"
    assert len(shell.input_transformers_post) == 1


def test_joining_a_process_group_is_seen() -> None:
    for source in (
        "dist.init_process_group('gloo')",
        "if x:\n    init_process_group()",
        "torch.distributed.init_process_group()",
    ):
        assert facts_of(source).joins_group, source
    assert not facts_of("dist.destroy_process_group()").joins_group


@pytest.mark.parametrize(
    ("body", "hints", "any_name"),
    [
        ("lr = globals().get('lr', 0.1)", "lr", False),
        ("if 'model' not in globals(): model = 1", "model", False),
        ("x = globals()['a']\nlocals()['b']\n'c' in dir()\nvars()['d']", "a b c d", False),
        ("def f():\n    locals()\n    return globals()['a']\nf()", "a", False),
        ("def f(n): return globals()['act_' + n]\nf('x')", "", True),
        ("globals()[f'x{1}'] = 2\nglobals().update(y=1)\nvars(obj)", "", False),
        ("globals()['n'] += 1", "n", False),
        ("for k, v in list(globals().items()): pass", "", True),
        ("f(**locals())", "", True),
        ("import sys\nsys.modules['__main__'].a\ngetattr(sys.modules[__name__], 'b')", "a b", False),
        ("import __main__\n__main__.a", "a", False),
        ("import importlib\nimportlib.import_module('__main__').a", "a", False),
        ("vars(sys.modules['__main__'])['a']\nsetattr(sys.modules[__name__], 'b', 1)", "a", False),
        ("get_ipython().user_ns['a']", "a", False),
        ("get_ipython().user_ns", "", False),
        ("exec(f'x{i} = 1')", "", True),
        ("eval('a', {'a': 1})", "", False),
        ("eval(text, names)", "", False),
        ("text = 'a'\neval(text)", "", True),
        ("step = globals().get('step', 0) + 1\nx = 1\neval('x + step')", "step", False),
        ("pd.eval('a + b')\nmodel.eval()\ndf.query(f'x > @y and z < {w}')", "a b y", False),
    ],
)
def test_names_reached_through_the_namespace(body: str, hints: str, any_name: bool) -> None:
    facts = facts_of(body)
    assert names(facts.reflection.names) == set(hints.split())
    assert facts.reflection.any_name is any_name


def test_texts_and_subclasses_are_looked_up_in_the_notebook() -> None:
    found = facts_of("eval(text)\ndf.query(where)\nfor each in Base.__subclasses__(): each()").reflection
    assert (found.texts, found.queries, found.all_classes, found.any_name) == ({"text"}, {"where"}, True, False)


@pytest.mark.parametrize("first", ["", "from __future__ import annotations\n"])
def test_postponed_annotations_are_texts_whose_names_are_hints(first: str) -> None:
    body = f"{first}class Node:\n    kind: ClassVar[int] = one\n    left: Node | Leaf\n    def f(self, x: T = d) -> R: y: S = 1"
    found = analyse(parse_cell(body, transform), transform, postponed=not first)
    assert (names(found.reads), names(found.hints)) == ({"one", "d"}, {"ClassVar", "Leaf", "T", "R", "S"})
    assert "Leaf" in facts_of(body).reads or first
