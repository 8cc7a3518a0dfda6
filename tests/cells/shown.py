# ruff: noqa: E501 - a cell is one string
"""Outputs of cells, their ends, and settings that a cell makes for those after it."""

from __future__ import annotations

_BAD = (
    "class Bad:\n    def __repr__(self):\n        raise ValueError('no text')\n"
    "class Half:\n    def __repr__(self):\n        return 'half'\n"
    "    def _repr_html_(self):\n        raise KeyError('no html')\n"
)
#: errors that IPython only shows end the cell, or do not, as in a plain one
ERRORS = {
    "a script that fails": "open('bad.py', 'w').write(\"print('begun')\\nraise OSError('bad')\\n\")\n%run bad.py\nprint('after')",
    "an error in a cell that a cell runs": "get_ipython().run_cell('1 / 0')\nprint('after')",
    "no Python": "get_ipython().run_cell('1 +')\nprint('after')",
    "a display without text": f"{_BAD}display(Bad())\nprint('after')",
    "a value without text": f"{_BAD}Bad()",
    "a value without HTML": f"{_BAD}Half()",
    "no such magic": "%nosuchmagic 3",
    "a traceback that the cell shows": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    get_ipython().showtraceback()\nprint('after')",
}
#: setup, cell
OUTPUTS = {
    "the front end that libraries find": (
        "import os, shutil, sys, __main__\nimport numpy as np, pandas as pd\nfrom rich.console import Console\n"
        "from tqdm.auto import tqdm\nfrom jax._src import pretty_printer",
        "ip = get_ipython()\ncls = type(ip)\n"
        "frame = pd.DataFrame(np.arange(90).reshape(3, 30) * 1000).add_prefix('column ')\n"
        "print(frame)\nprint(pd.get_option('display.max_columns'), pd.get_option('display.width'))\n"
        "print(cls, cls.__name__, cls.__module__, hasattr(ip, 'kernel'), 'IPKernelApp' in ip.config)\n"
        "print(sys.stdout.isatty(), sys.stderr.isatty(), shutil.get_terminal_size(), hasattr(sys, 'ps1'))\n"
        "print(Console().is_jupyter, Console().width, pretty_printer.CAN_USE_COLOR, hasattr(__main__, '__file__'))\n"
        "print(tqdm, ip.kernel.get_parent()['header']['msg_type'], pd.io.formats.console.in_ipython_frontend())\n"
        "print([os.environ.get(name) for name in ('TERM', 'FORCE_COLOR', 'PAGER', 'COLUMNS', 'JPY_PARENT_PID')])\n"
        "print(sorted(ip.display_formatter.active_types), sorted(ip.display_formatter.formatters), ip.colors)\n"
        "del ip, cls\nframe",
    ),
    "names that are listed": (
        "hidden_gem = 3\nother_gem = [1, 2]",
        "%who int list\nprint([name for name in dir() if 'gem' in name])",
    ),
    "text between displays": (
        "from IPython.display import HTML, display",
        "print('a')\ndisplay(HTML('<b>b</b>'))\nprint('c')\nprint('d', end='')\n[1]",
    ),
}
_TREE = (
    "@dataclass\nclass Node:\n    depth: ClassVar[int] = 1\n    left: Node | Leaf\nclass Leaf: pass\n"
    "def f(x: Missing): pass\nprint(Node.__annotations__, [field.name for field in fields(Node)], f.__annotations__)"
)
_LOGGED = (
    "import logging, warnings\nlogging.info('by root'); warnings.warn('warned')\nlogging.getLogger('loud').debug('loud')\n"
    "logging.getLogger('quiet').warning('quiet')\nlogging.getLogger('own').error('own'); logging.getLogger('own').warning('below its level')\n"
    "print(len(logging.root.handlers), logging.getLogger('own').propagate)"
)
_LOG_SETUP = (
    "import logging, sys\nlogging.basicConfig(level=logging.INFO, format='{levelname}: {message}', style='{', "
    "stream=sys.stdout)\nlogging.getLogger('loud').setLevel(logging.DEBUG)\n"
    "logging.getLogger('quiet').setLevel(logging.ERROR)\nown = logging.getLogger('own')\nown.propagate = False\n"
    "own.addHandler(logging.StreamHandler()); own.handlers[0].setLevel(logging.ERROR)"
)
_VARIABLES = (
    "import os\nprint([os.environ.get(name) for name in ('OWN_MODE', 'OWN_WORD')],"
    " os.popen('echo $OWN_MODE').read().strip())"
)
#: setup, cell. The setup is a plain cell once, and a GPU cell once
SETTINGS = {
    "magics, aliases and annotations": (
        "from IPython.core.magic import Magics, line_magic, magics_class, register_line_cell_magic, register_line_magic\n"
        "said = []\n@register_line_magic\ndef shout(line):\n    said.append(line)\n    return line.upper()\n"
        "@register_line_cell_magic\ndef twice(line, cell=None):\n    get_ipython().run_cell((cell or line) * 2)\n"
        "@magics_class\nclass Own(Magics):\n    @line_magic\n    def own(self, line): return line + '!'\n"
        "get_ipython().register_magics(Own)\n%alias hello echo hello %s\nclass Part: pass\npart: Part = Part()",
        "loud = %shout abc\nmine = %own abc\nprint(loud, mine)\n%twice print(len(said))\n%hello you\n"
        "print(__annotations__, __annotations__['part'] is Part)",
    ),
    "transformers of code": (
        "import ast\nclass More(ast.NodeTransformer):\n    def visit_Constant(self, node):\n"
        "        return ast.copy_location(ast.Constant(42), node) if node.value == 41 else node\n"
        "get_ipython().ast_transformers.append(More())",
        "print(41)\nprint(len(get_ipython().ast_transformers))",
    ),
    "of libraries that show numbers and pictures": (
        "import warnings, numpy as np, matplotlib as mpl, matplotlib.pyplot as plt\n"
        "plt.style.use('dark_background'); mpl.rcParams['figure.figsize'] = (2, 1)\n"
        "np.set_printoptions(suppress=True); import pandas as pd; pd.set_option('display.max_rows', 3)\n"
        "pd.set_option('display.float_format', lambda x: f'<{x:.1f}>'); warnings.filterwarnings('ignore', 'not this')\n"
        "%precision 3\n%config InlineBackend.figure_format = 'svg'\n"
        "import torch; torch.set_printoptions(precision=2); torch.set_default_dtype(torch.float64)",
        "import warnings, numpy as np, pandas as pd, matplotlib as mpl, torch; from IPython.display import display\n"
        "print(mpl.rcParams['axes.facecolor'], mpl.rcParams['figure.figsize'], np.ones(2) / 3, torch.ones(1) / 3)\n"
        "print(pd.DataFrame({'a': [1 / 3] * 9}), torch.get_default_dtype()); warnings.warn('not this')\n"
        "display(1 / 3)",
    ),
    "a future import": (
        "from __future__ import annotations\nfrom dataclasses import dataclass, fields\nfrom typing import ClassVar",
        _TREE,
    ),
    "no future import": ("from dataclasses import dataclass, fields\nfrom typing import ClassVar", _TREE),
    "logging": (_LOG_SETUP, _LOGGED),
    "logging that is changed": (
        f"{_LOG_SETUP}\nlogging.captureWarnings(True); logging.disable(logging.INFO)\nlogging.root.handlers[0].setFormatter(None)\n"
        "logging.getLogger('quiet').setLevel(logging.NOTSET)",
        _LOGGED,
    ),
    "logging of libraries": (
        "import fractions, logging, sched, sys\nfor name in ('fractions', 'sched'):\n    lib = logging.getLogger(name)\n"
        "    lib.handlers[:] = []; lib.addHandler(logging.StreamHandler(sys.stdout)); lib.setLevel(logging.INFO); lib.propagate = False\n"
        "logging.getLogger('fractions').disabled = True",
        "import fractions, logging, sched\nfor name in ('fractions', 'sched'):\n    logging.getLogger(name).info('by %s', name)\n"
        "    print(logging.getLogger(name).propagate, len(logging.getLogger(name).handlers))",
    ),
    "magics under other names": (
        "%alias_magic --line written_as precision\n%alias_magic timed timeit -p '-n1 -r1'",
        "%written_as 2\n2 / 3",
    ),
    "the shell under a name of its own": (
        "_ip = get_ipython()\n_held = [_ip]",
        "print(_ip is get_ipython() is _held[0], type(_ip).__name__)\n_ip.run_line_magic('precision', '3')\n2 / 3",
    ),
    "the environment under a name of its own": (
        "import os\nfrom os import environ as _own\n_held = {'of': _own}\nos.environ['OWN_MODE'] = 'slow'",
        "print(_own is os.environ is _held['of'], _own['OWN_MODE'])\nos.environ['OWN_WORD'] = 'a'; print(_own['OWN_WORD'])",
    ),
    "environment variables": ("import os\nos.environ['OWN_MODE'] = 'fast'\n%env OWN_WORD=a b", _VARIABLES),
    "environment variables that are changed": (
        "import os\nos.environ['OWN_MODE'] = 'fast'\n%env OWN_WORD=a b\n"
        "del os.environ['OWN_WORD']\nos.environ['OWN_MODE'] = 'slow'",
        _VARIABLES,
    ),
}
