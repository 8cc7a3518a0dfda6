"""Imports whose names nothing reads."""

from __future__ import annotations

from jupyter_gpu_release.submission.effect_imports import EffectImports, effect_cell


def test_only_imports_whose_names_nothing_reads_are_for_their_effect() -> None:
    cells = ["", "import msgspec, json\nfrom cloudpickle import cloudpickle\nfrom psutil import Process as own"]
    effects = EffectImports(lambda: cells)
    assert effects.modules() == ["msgspec", "cloudpickle.cloudpickle", "psutil"]
    cells += ["not python (", "import not_there_at_all", "own(1)\nif True:\n    import this_is_conditional"]
    assert effects.modules() == ["msgspec", "cloudpickle.cloudpickle"]
    cells += ["def f(): return msgspec.json"]
    assert effects.modules() == ["cloudpickle.cloudpickle"]


def test_a_module_that_is_missing_there_fails_nothing() -> None:
    cell = effect_cell("no_such_module_at_all")
    exec(cell.source, {})
    assert cell.modules == ["no_such_module_at_all"]
