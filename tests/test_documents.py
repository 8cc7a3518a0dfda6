"""The documents of the repository hang together: links lead somewhere, contents name all sections."""

from __future__ import annotations

import argparse
import ast
import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import ran_examples
from doc_blocks import block
from traitlets.config import Config

from jupyter_gpu_release.cli.parser import build, parse
from jupyter_gpu_release.client.config import GpuRelease
from jupyter_gpu_release.options.definitions import OPTIONS, split_line
from jupyter_gpu_release.options.run_options import build_options
from jupyter_gpu_release.options.sweep_options import SWEEP_OPTIONS
from jupyter_gpu_release.server_extension.culling.config import GpuCuller
from jupyter_gpu_release.settings.table import RELEASE

REPOSITORY = Path(__file__).parents[1]
TRAITS = {kind.__name__: set(kind.class_own_traits(config=True)) for kind in (GpuCuller, GpuRelease)}
DOCS = REPOSITORY / "docs"
DOCUMENTS = sorted([*DOCS.glob("*.md"), *DOCS.glob("[!_]*/*.md"), *REPOSITORY.glob("*.md")])
SECTIONS = ("start", "use", "operate", "understand")
#: pages for users and operators, which say one thing in short sentences
SHORT_PAGES = sorted(path for section in SECTIONS for path in DOCS.glob(f"{section}/*.md"))
MOVED = json.loads((DOCS / "moved.json").read_text())
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def _name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def _headings(path: Path, level: str = "##*") -> set[str]:
    """As GitHub names them: small letters, no punctuation, hyphens for blanks."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(rf"^{level} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name_of)
def test_every_link_leads_somewhere(path: Path) -> None:
    for file, anchor in _LINK.findall(path.read_text()):
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{file} does not exist"
        assert not anchor or anchor[1:] in _headings(target), f"{file}{anchor}: no such heading"


@pytest.mark.parametrize("page", MOVED)
def test_an_old_address_leads_to_a_page_of_today(page: str) -> None:
    """The page and each of its headings; sent there by the page that the site has at the old address."""
    assert not (DOCS / f"{page}.md").exists()
    for place in MOVED[page].values():
        name, _, heading = place.partition("#")
        assert not heading or heading in _headings(DOCS / name), place
        assert (DOCS / name).exists(), place
    extension = runpy.run_path(str(DOCS / "_ext" / "moved_pages.py"))
    shown = extension["redirects"]()[page]
    (places,) = re.findall(r"^const places = (.*);$", shown, re.MULTILINE)
    assert json.loads(places) == {old: place.replace(".md", ".html") for old, place in MOVED[page].items()}
    assert f'href="{MOVED[page][""].replace(".md", ".html")}"' in shown


def _sentences(path: Path) -> list[str]:
    """Sentences of prose, lists and tables; code counts as one word, what a link leads to as none."""
    text = re.sub(r"^ *```.*?^ *```", "\n", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`", "CODE", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[*>:#]|\d+\.))|\|", text)
    return [one for part in parts for one in re.split(r"(?<=[.!?…])[*)\"]*\s+(?=[A-Z*(\"])", part.replace("\n", " "))]


@pytest.mark.parametrize(
    "name",
    [
        "scheduling",
        "notebook-semantics",
        "idle-policy",
        "kubernetes",
        "scheduling/*",
        "semantics/*",
        "server/*",
        "kubernetes/*",
    ],
)
def test_what_is_explained_at_length_has_several_pages(name: str) -> None:
    assert [path.name for path in DOCS.glob(f"{name}.md") if len(path.read_text().split()) > 900] == []


@pytest.mark.parametrize("path", SHORT_PAGES, ids=_name_of)
def test_a_page_is_short(path: Path) -> None:
    assert len(path.read_text().split()) <= 900
    assert [one for one in _sentences(path) if len(re.findall(r"\S*\w\S*", one)) > 25] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_the_contents_lead_to_every_page(section: str) -> None:
    """By a link that a reader of the file sees, and in the site's navigation."""
    contents = (DOCS / section / "index.md").read_text()
    shown, _, navigation = contents.partition("```{toctree}")
    own = {path.stem for path in DOCS.glob(f"{section}/*.md")} - {"index"}
    assert own <= set(re.findall(r"\]\(([\w-]+)\.md\)", shown))
    assert own <= set(navigation.split())


def test_pictures_are_files_that_every_reader_can_show() -> None:
    assert [path.name for path in DOCUMENTS if "{raw}" in path.read_text()] == []


@pytest.mark.parametrize("name", ran_examples.NAMES)
def test_the_outputs_on_the_site_are_those_of_the_example_of_today(name: str) -> None:
    path = ran_examples.RAN / f"{name}.ipynb"
    shown, source = (ran_examples.read(folder, name).cells for folder in (ran_examples.RAN, ran_examples.SOURCES))
    assert [(each.cell_type, each.source) for each in shown] == [(each.cell_type, each.source) for each in source], (
        f"{path.name} is stale: make examples"
    )
    assert any(each.get("outputs") for each in shown)
    assert not re.search(r"/(?:root|home|tmp|work|usr)/", path.read_text())
    for file, _anchor in _LINK.findall("".join(each.source for each in source if each.cell_type == "markdown")):
        assert (ran_examples.SOURCES / file).exists(), file


def test_the_figures_of_the_readme_stand_in_the_pages_that_it_names() -> None:
    text = (REPOSITORY / "README.md").read_text()
    rows = [row for row in re.findall(r"^\|.*\|$", text, re.MULTILINE) if "**" in row]
    assert len(rows) == 5
    for row in rows:
        page = (REPOSITORY / re.findall(r"\]\(([^)#]+)", row)[0]).read_text()
        for figure in re.findall(r"\*\*([^*]+)\*\*", row):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", page), f"no {figure} in {row}"


@pytest.mark.parametrize("name", ["idle-policy.md", "kubernetes.md"])
def test_the_contents_name_every_section(name: str) -> None:
    path = REPOSITORY / "docs" / name
    first, _, _ = path.read_text().partition("\n## ")
    assert _headings(path, "##") <= set(re.findall(r"\(#([^)]*)\)", first))


def _fenced(path: Path, start: str) -> list[str]:
    """Lines of fenced blocks that begin so, without what explains them (after ``#`` or three blanks)."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith(start)]
    return [re.split(r"   |  #", line)[0].removeprefix(start).strip() for line in lines]


def test_every_command_that_is_written_down_is_understood() -> None:
    shown = [line for path in DOCUMENTS for line in _fenced(path, "jupyter gpu ") if "|" not in line]
    assert len(shown) > 8
    for line in shown:
        parse(shlex.split(line))
    cells = [line for path in DOCUMENTS for line in _fenced(path, "%%gpu_train") if "{" not in line]
    assert len(cells) > 12
    for cell in cells:
        line = split_line(cell)
        assert not line.rest, cell
        build_options(line.written)


def test_what_is_installed_on_the_pages_can_be_installed() -> None:
    """``tests/local_cluster/test_wheel.py`` installs by the README's line."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    lines = [
        *block("start/install.md", "## For notebooks and a cluster on one machine").commands(),
        *block("start/install.md", "## For notebooks that use a team's cluster", "pip").commands(),
        *block("start/install.md", "## Your own conda environment, or venv").commands()[1:],
        *block("use/assistants.md", "## Set it up", "pip").commands(),
        *block("use/sweeps.md", "# Search for good parameters", "%pip").commands(),
    ]
    for line in lines:
        (found,) = re.findall(r"^%?pip install (?:'(?:\.|jupyter-gpu-release)\[(\w+)\]'|\.)$", line)
        assert not found or found in extras, line
    (make,) = block("start/install.md", "## To try it").commands()
    assert make in block("../README.md", "## Try it", "make").text
    exports = block("start/install.md", "## For notebooks that use a team's cluster", "export").commands()
    variables = {setting.variable for setting in RELEASE.values()}
    for line in exports:
        assert line.split()[1].partition("=")[0] in variables, line
    for line in block("start/install.md", "## Check").commands():
        parse(shlex.split(line)[2:])


def _options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a command and of those below it."""
    found = {option for action in parser._actions for option in action.option_strings}
    below = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found.union(*(_options_of(command) for choices in below for command in choices.values()))


def _own_words(path: Path) -> str:
    """The page without the section that compares with other schedulers."""
    return re.sub(
        r"^##? Words of other schedulers\n.*?(?=^## |\Z)", "", path.read_text(), flags=re.DOTALL | re.MULTILINE
    )


def test_no_option_is_written_down_that_does_not_exist() -> None:
    """Nothing unbuilt is on show: what a sentence calls an option is one of a cell or of ``jupyter gpu``."""
    known = {f"--{name}" for name in SWEEP_OPTIONS.keys() | OPTIONS.keys()} | _options_of(build()[0])
    pages = [path for path in DOCUMENTS if path.parent.name != "design"]
    written = {(path.name, option) for path in pages for option in re.findall(r"`(--[a-z][a-z-]*)", _own_words(path))}
    assert len({option for _, option in written}) > 50
    assert sorted((name, option) for name, option in written if option not in known) == []


def test_the_options_that_gpu_config_does_not_take_are_named() -> None:
    (said,) = re.findall(
        r"^Every option except (.*?)\.", (REPOSITORY / "docs" / "reference.md").read_text(), re.MULTILINE
    )
    assert set(re.findall(r"`(\w+)`", said)) == {option.name for option in OPTIONS.values() if not option.configurable}


def test_who_imports_ray_is_named() -> None:
    contributing = (REPOSITORY / "CONTRIBUTING.md").read_text()
    (said,) = re.findall(r"^\* Only these import Ray: `gateway` \((.*?)\)", contributing, re.MULTILINE)
    gateway = REPOSITORY / "jupyter_gpu_release" / "gateway"
    files = [path for path in gateway.rglob("*.py") if re.search(r"^\s*(import|from) ray\b", path.read_text(), re.M)]
    found = {path.relative_to(gateway).parts[0].removesuffix(".py") for path in files}
    assert set(re.findall(r"`(\w+)`", said)) == found


def test_every_command_and_setting_of_the_sidebar_is_carried_out_somewhere() -> None:
    """JupyterLab shows an entry of a menu even where nothing stands behind it, and a setting that nobody reads."""
    sidebar = REPOSITORY / "labextension"
    schema = json.loads((sidebar / "schema" / "plugin.json").read_text())
    named = set(re.findall(r'"command": "(jupyter-gpu-release:[\w-]+)"', json.dumps(schema)))
    ids = dict(
        re.findall(r"export const (\w+) =\s*'(jupyter-gpu-release:[\w-]+)'", (sidebar / "src/tokens.ts").read_text())
    )
    adding = "".join(text for path in (sidebar / "src").rglob("*.ts*") if "addCommand(" in (text := path.read_text()))
    assert len(named) > 3
    assert named <= set(ids.values())
    assert [name for name in ids if f"CommandIDs.{name}" not in adding] == []
    read = (sidebar / "src" / "preferences.ts").read_text()
    assert {name for name in schema["properties"] if f"  {name}:" not in read} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name_of)
def test_every_setting_that_is_written_down_exists(path: Path) -> None:
    for name, trait in re.findall(r"c\.(Gpu[A-Z]\w+)\.(\w+)", path.read_text()):
        assert trait in TRAITS[name], f"c.{name}.{trait}"


def test_the_reference_is_what_the_code_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS / "_ext" / "reference_pages.py", tmp_path], check=True)
    made = {str(page.relative_to(tmp_path)): page.read_text() for page in tmp_path.rglob("*.md")}
    assert {"settings.md", "reference/options.md"} < set(made)
    assert set(made) - {"settings.md"} == {str(page.relative_to(DOCS)) for page in DOCS.glob("reference/*.md")}
    stale = [name for name, text in made.items() if (DOCS / name).read_text() != text]
    assert stale == [], "`make reference` writes them anew"


def test_the_example_of_the_idle_policy_is_accepted() -> None:
    config = Config()
    exec(block("idle-policy.md", "## Settings").text, {"c": config})
    culler = GpuCuller(config=config)
    assert (culler.action, len(culler.overrides)) == ("release", 2)


def _known_differences() -> list[Any]:
    text = (REPOSITORY / "docs" / "notebook-semantics.md").read_text().split("\n## Known differences\n")[1]
    rows = [line.strip("| ").split(" | ") for line in text.split("\n## ")[0].splitlines() if line.startswith("| ")]
    return [pytest.param(*row, id=row[-1].rpartition("::")[2].strip("`")) for row in rows[1:]]


@pytest.mark.parametrize(("difference", "said", "named"), _known_differences())
def test_every_known_difference_is_said_and_tested(difference: str, said: str, named: str) -> None:
    """Its sentence is in the code, in quotes in the table, and looked for by the test that the table names."""
    file, _, name = named.strip("`").partition("::")
    found = [node for node in ast.parse((REPOSITORY / file).read_text()).body if getattr(node, "name", "") == name]
    assert found, f"{named}: there is no such test"
    sentences = re.findall(r'"([^"]+)"', said)
    assert sentences, f"{difference}: no sentence in quotes"
    package = "\n".join(path.read_text() for path in (REPOSITORY / "jupyter_gpu_release").rglob("*.py"))
    for sentence in sentences:
        assert sentence in ast.unparse(found[0]), f"{named} does not look for {sentence!r}"
        assert sentence in package, f"nothing says {sentence!r}"


def test_the_known_differences_are_few() -> None:
    assert 0 < len(_known_differences()) <= 15


def _messages_of(path: Path) -> str:
    """A module's texts (no docstrings) and names of classes, a line each; what an f-string fills in is ``…``."""
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            texts.append(node.value)
        elif isinstance(node, ast.ClassDef):
            texts.append(node.name)
    return "\n".join(texts)


@pytest.fixture(scope="module")
def messages() -> list[str]:
    return [_messages_of(path) for path in (REPOSITORY / "jupyter_gpu_release").rglob("*.py")]


def _fixed_parts(message: str) -> list[str]:
    """``run … belongs to …`` → what stands between the dots, and the names that differ each time."""
    return [part for each in re.split(r"…|`name`", message.removeprefix("⚠ ")) if (part := each.strip(" ,`"))]


_OF_MESSAGES = ("troubleshooting", "failed-cells", "gateway-messages")
_TROUBLES = [
    message
    for page in _OF_MESSAGES
    for message in re.findall(r"^(.+)\n: ", (DOCS / "use" / f"{page}.md").read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("message", [each for heading in _TROUBLES for each in heading.split(" · ")])
def test_every_message_that_is_explained_can_be_met(message: str, messages: list[str]) -> None:
    """One module says all of it."""
    parts = _fixed_parts(message)
    assert parts
    assert any(all(part in texts for part in parts) for texts in messages), f"nothing says {message!r}"


def test_messages_are_explained() -> None:
    assert len(_TROUBLES) > 30
