"""Requirements as they hold for one interpreter."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from jupyter_gpu_release.environments.requirements import Requirements, same_version, takes
from jupyter_gpu_release.protocol.environments import Distribution


def test_only_what_this_interpreter_needs_is_required_and_all_lines_of_a_name_count() -> None:
    lines = [
        "Num.Py>=1.26",
        "num-py<3",
        'winreg; sys_platform == "win32"',
        'torch; extra == "gpu"',
        'odd; platform_version == "x" or python_version >= "3"',
        "not a requirement at all",
    ]
    found = Requirements({"sys_platform": "linux", "python_version": "3.11"}).of(Distribution("a", "1", requires=lines))
    assert set(found) == {"num-py", "odd"}
    assert found["num-py"] == SpecifierSet(">=1.26,<3")


def test_versions_that_are_taken() -> None:
    assert takes(SpecifierSet(">=1"), "2.0rc1"), "who has a prerelease wants it"
    assert not takes(SpecifierSet(">=1"), "0.9")
    assert takes(SpecifierSet(">=1"), "of our own"), "what is no version is not refused"


def test_versions_that_are_the_same() -> None:
    assert same_version("1.0", "1.0.0")
    assert not same_version("1.0", "1.0+cu121")
    assert same_version("of our own", "of our own")
    assert not same_version("of our own", "1.0")
