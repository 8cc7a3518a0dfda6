"""The page of all settings, from their table."""

from __future__ import annotations

from collections.abc import Iterator

from tables import table

from jupyter_gpu_release.settings.setting import Setting, Unit
from jupyter_gpu_release.settings.table import SECTIONS, Section

_INTRO = """# Settings

Each number that you may change, and those that you may only want to know, with unit, default and bounds.
The pages [for operators](operate/index.md) and [for users](use/index.md) say when to change them.

In flags, variables and YAML files durations are written `30s`, `10m`, `2h`, and sizes `512MiB`, `40GB`.
Traits (`c.…`) in Python files take numbers, in seconds. Options of a cell have
[a table of their own](reference/options.md).

`make reference` writes this page from the table in `jupyter_gpu_release/settings/`. Parsers, defaults and `--help`
are made from the same table.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRO, *(_section(section) for section in SECTIONS)])


def _section(section: Section) -> str:
    rows = [
        _row(section, name, setting)
        for name, setting in section.settings.items()
        if not (setting.is_word or setting.required or name == "json")
    ]
    heads = (
        ("number", "meaning", "value", "why it is fixed")
        if not section.form and not any(setting.variable for setting in section.settings.values())
        else ("setting", "meaning", "default", "bounds")
    )
    text = f"{section.text}\n\n" if section.text else ""
    return f"## {section.title}\n\n{text}{table(heads, rows)}\n"


def _row(section: Section, name: str, setting: Setting) -> tuple[str, str, str, str]:
    last = f"fixed: {setting.fixed}" if setting.fixed else _bounds(setting)
    return " ".join(_written(section, name, setting)), setting.help, _default(section, setting), last


def _written(section: Section, name: str, setting: Setting) -> Iterator[str]:
    if section.form:
        shown = name.replace("_", "-") if section.form.startswith("--") else name
        yield f"`{section.form.format(shown)}{f' {setting.metavar}' if setting.metavar else ''}`"
    if setting.variable:
        yield f"`{setting.variable}`"
    elif not section.form:
        yield name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")


def _default(section: Section, setting: Setting) -> str:
    if setting.otherwise:
        return setting.otherwise
    if setting.default is None or setting.default == "":
        return "none"
    if section.form.startswith("c.") and setting.unit is Unit.SECONDS:
        return f"`{setting.default:g}` ({setting.in_words(setting.default)})" if setting.default else "`0`"
    in_words = setting.default_in_words
    return in_words if setting.unit in (Unit.SECONDS, Unit.BYTES) else f"`{in_words}`"


def _bounds(setting: Setting) -> str:
    return f"one of {', '.join(f'`{each}`' for each in setting.choices)}" if setting.choices else setting.bounds
