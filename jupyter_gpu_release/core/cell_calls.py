"""What particular calls in a cell say: magics and commands (as IPython's transformation leaves them), ``input``,
``exec``, queries with names in their text.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from . import reflection
from .cell import CellFacts

if TYPE_CHECKING:
    from .cell_flow import Flow

#: the call by which a process joins its gang
JOINS_GROUP = "init_process_group"
_ASKING = frozenset({"input", "getpass.getpass", "getpass"})
_OPAQUE = frozenset({"exec", "eval", "globals", "locals", "vars", "compile"})
#: magics whose line, or body, is Python of the notebook
_PYTHON_LINES = frozenset({"time", "timeit", "prun", "memit", "mprun", "lprun", "mpl_time", "gpu_train"})
_PYTHON_BODIES = frozenset({"time", "timeit", "prun", "memit", "capture", "gpu_train"})
#: magics that list the notebook's names
_LISTS = frozenset({"who", "who_ls", "whos", "psearch"})
_INSTALLERS = frozenset({"pip", "conda", "mamba", "micromamba", "uv"})
_INSTALLS = re.compile(r"\b(?:pip|conda|mamba|uv)\b.*\b(?:install|add)\b")
_INTERPOLATED = re.compile(r"\$\{?([A-Za-z_]\w*)|\{([^{}]+)\}")


def note_chain(facts: CellFacts, node: ast.Attribute) -> None:
    """Remember ``a.b.c``."""
    if node.attr in reflection.ATTRIBUTES:
        facts.reflects = True
    chain = dotted(node)
    if chain:
        facts.chains.add(chain)


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for such a node, else an empty string."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def look_at_call(flow: Flow, call: ast.Call) -> None:
    """Draw conclusions from one call."""
    name = dotted(call.func)
    facts = flow.facts
    if name in reflection.CALLS:
        facts.reflects = True
    if name.rpartition(".")[2] == JOINS_GROUP:
        facts.joins_group = True
    if name in _ASKING:
        facts.asks_input = True
    elif name in _OPAQUE:
        facts.opaque = True
    elif isinstance(call.func, ast.Attribute) and _is_shell(call.func.value):
        facts.binds_more = True
        _shell_call(flow, call.func.attr, _texts(call))


def _texts(call: ast.Call) -> list[str]:
    return [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _is_shell(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_ipython"


def _shell_call(flow: Flow, method: str, texts: list[str]) -> None:
    match method, texts:
        case "run_line_magic", [name, line, *_]:
            _line_magic(flow, name, line)
        case "run_cell_magic", [name, line, body, *_]:
            _cell_magic(flow, name, line, body)
        case (("system" | "getoutput" | "getoutput_split" | "run_line_magic"), [command, *_]):
            _command(flow, command)


def _line_magic(flow: Flow, name: str, line: str) -> None:
    if name in _INSTALLERS:
        flow.facts.installs = flow.facts.installs or "install" in line or "add" in line
    if name in _LISTS:
        flow.facts.reflects = flow.facts.reflection.any_name = True
    if name in _PYTHON_LINES:
        _read_code(flow, line)
    else:
        _read_text(flow, [line])
    _command(flow, line)


def _cell_magic(flow: Flow, name: str, line: str, body: str) -> None:
    _command(flow, line)
    if name == "capture":
        for word in line.split():
            if word.isidentifier():
                flow.bind(word)
    if name in _PYTHON_LINES:
        _read_code(flow, line)
    if name in _PYTHON_BODIES:
        try:
            tree = ast.parse(flow.transform(body))
        except SyntaxError:
            return
        flow.block(tree.body)


def _command(flow: Flow, text: str) -> None:
    """A shell command, or a magic's line: IPython fills in ``$name`` and ``{expression}``."""
    if _INSTALLS.search(text):
        flow.facts.installs = True
    for name, expression in _INTERPOLATED.findall(text):
        if name:
            _hint(flow, {name})
        else:
            _read_text(flow, [expression])


def _read_code(flow: Flow, line: str) -> None:
    """Statements after a magic's own options: ``-n 3 f(x)``."""
    words = line
    while words:
        try:
            tree = ast.parse(words.strip())
        except SyntaxError:
            words = words.strip().partition(" ")[2]
            continue
        soft, flow.soft = flow.soft, True
        flow.block(tree.body)
        flow.soft = soft
        return


def _read_text(flow: Flow, texts: list[str]) -> None:
    """Text that may be code: the names in it are hints."""
    for text in texts:
        try:
            tree = ast.parse(text.strip())
        except SyntaxError:
            continue
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        _hint(flow, names)


def _hint(flow: Flow, names: set[str]) -> None:
    soft, flow.soft = flow.soft, True
    for name in names:
        flow.read(name)
    flow.soft = soft
