"""Installed packages are read from metadata folders, as installers leave them, and read again when they changed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
from wheel_bed import install, make_wheel

from jupyter_gpu_release.environments.editable import EditableFiles
from jupyter_gpu_release.environments.installed import InstalledReader, topmost
from jupyter_gpu_release.protocol.environments import Distribution, Installed, Origin


def read(site: Path) -> dict[str, Distribution]:
    return {each.name: each for each in InstalledReader([str(site)]).read().distributions}


def make_editable(site: Path, project: Path, name: str, pth: str) -> Path:
    info = install(make_wheel(project / "dist", name, "0.1", {f"__editable__.{name}.pth": pth}), site)
    (info / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}))
    return info


def test_names_versions_requirements_and_imports(tmp_path: Path) -> None:
    files = {"google/cloud/store/__init__.py": "", "google/cloud/store/deep/__init__.py": "", "single.py": ""}
    needs = ["numpy>=1; python_version > '3'", "dask; extra == 'all'"]
    install(make_wheel(tmp_path, "Google.Cloud-Store", "2.0", files, requires=needs), tmp_path)
    (found,) = read(tmp_path).values()
    assert (found.name, found.version, found.origin) == ("google-cloud-store", "2.0", Origin.INDEX)
    assert found.imports == ["google/cloud/store", "single"]
    assert found.requires == needs[:1]
    assert found.is_pure


def test_compiled_ones_are_told(tmp_path: Path) -> None:
    install(make_wheel(tmp_path, "lies", files={"lies/__init__.py": "", "lies/fast.cpython-311.so": ""}), tmp_path)
    install(make_wheel(tmp_path, "tells", tag="cp311-cp311-linux_x86_64"), tmp_path)
    assert [each.is_pure for each in read(tmp_path).values()] == [False, False]


def test_origins(tmp_path: Path) -> None:
    direct = {
        "a": {"url": "https://ann:secret@host/a.whl?token=secret", "archive_info": {"hashes": {"sha256": "12"}}},
        "b": {"url": "file:///w/b.whl", "archive_info": {}},
        "c": {"url": "file:///p/c", "dir_info": {}},
        "d": {"url": "ssh://git@host/d.git", "vcs_info": {"vcs": "git", "commit_id": "ab"}},
    }
    for name, facts in direct.items():
        info = install(make_wheel(tmp_path, name), tmp_path)
        (info / "direct_url.json").write_text(json.dumps(facts))
    conda = install(make_wheel(tmp_path, "e"), tmp_path)
    (conda / "INSTALLER").write_text("conda\n")
    (conda / "direct_url.json").write_text('{"url": "file:///home/builder/e", "dir_info": {}}')
    broken = install(make_wheel(tmp_path, "f"), tmp_path)
    (broken / "direct_url.json").write_text("[")
    found = read(tmp_path)
    assert [(each.origin, each.source, each.digest) for each in found.values()] == [
        (Origin.URL, "https://host/a.whl", "sha256:12"),
        (Origin.WHEEL, "file:///w/b.whl", ""),
        (Origin.FOLDER, "file:///p/c", ""),
        (Origin.URL, "ssh://host/d.git", "commit:ab"),
        (Origin.CONDA, "", ""),
        (Origin.URL, "", ""),
    ]
    assert b"secret" not in msgspec.msgpack.encode(list(found.values()))


def test_what_is_half_there_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "gone-1.0.dist-info").mkdir()
    assert read(tmp_path) == {}
    assert read(tmp_path / "nowhere") == {}


def test_the_first_on_the_path_counts(tmp_path: Path) -> None:
    for folder, version in (("one", "1"), ("two", "2")):
        install(make_wheel(tmp_path, "a", version), tmp_path / folder)
    reader = InstalledReader([str(tmp_path / "one"), str(tmp_path / "two")])
    assert [each.version for each in reader.read().distributions] == ["1"]


def test_the_same_record_until_something_changes(tmp_path: Path) -> None:
    install(make_wheel(tmp_path / "w", "a"), tmp_path / "site")
    reader = InstalledReader([str(tmp_path / "site")])
    first = reader.read()
    assert reader.read() is first
    install(make_wheel(tmp_path / "w", "b"), tmp_path / "site")
    os.utime(tmp_path / "site", ns=(1, 1))  # whatever the clock's steps
    second = reader.read()
    assert [each.name for each in second.distributions] == ["a", "b"]
    assert second.digest != first.digest


def test_a_file_that_is_edited_in_place_changes_the_digest(tmp_path: Path) -> None:
    source = tmp_path / "project" / "src" / "tools"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("x = 1\n")
    (source / "table.csv").write_text("1\n")
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.pyc").write_text("")
    make_editable(tmp_path / "site", tmp_path / "project", "vision_tools", f"{source.parent}\n")
    reader = InstalledReader([str(tmp_path / "site")])
    (first,) = reader.read().distributions
    assert (first.name, first.origin, first.files, first.imports) == ("vision-tools", Origin.EDITABLE, 2, ["tools"])
    assert reader.read().distributions == [first]
    (source / "__init__.py").write_text("x = 22\n")
    (second,) = reader.read().distributions
    assert second.digest not in ("", first.digest)
    (source / "more.py").write_text("")
    assert reader.read().distributions[0].files == 3


def test_a_flat_project_is_its_packages_and_not_its_tests(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("tools", "tests", "notes"):
        (project / name).mkdir(parents=True)
    for name in ("tools", "tests"):
        (project / name / "__init__.py").write_text("")
    (project / "setup.py").write_text("")
    make_editable(tmp_path / "site", project, "tools", f"{project}\n")
    assert read(tmp_path / "site")["tools"].imports == ["tools"]


def test_finders_of_setuptools_and_hatchling_tell_the_packages(tmp_path: Path) -> None:
    package = tmp_path / "code" / "tools"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "code" / "one.py").write_text("")
    mapping = {"tools": str(package), "one": str(tmp_path / "code" / "one")}
    lines = f"import sys\nMAPPING: dict[str, str] = {mapping!r}\nNAMESPACES = {{}}\n"
    hatch = f"from editables.redirector import R as F\nF.map_module('hatched', '{package / '__init__.py'}')\n"
    for name, finder, text in (("a", "__editable___a_finder.py", lines), ("b", "_editable_impl_b.py", hatch)):
        pth = f"import {finder[:-3]}\n"
        info = install(make_wheel(tmp_path, name, "1", {f"{name}.pth": pth, finder: text}), tmp_path / "site")
        (info / "direct_url.json").write_text('{"url": "file:///p", "dir_info": {"editable": true}}')
    found = read(tmp_path / "site")
    assert (found["a"].imports, found["a"].files) == (["one", "tools"], 2)
    assert (found["b"].imports, found["b"].files) == (["hatched"], 1)


def test_more_than_is_read_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    with open(tmp_path / "big" / "__init__.py", "wb") as file:
        file.truncate((64 << 20) + 1)
    assert EditableFiles({"big": tmp_path / "big"}).digest() == ""


def test_this_interpreter(tmp_path: Path) -> None:
    """The real thing agrees with the standard library's slow reading."""
    from importlib import metadata

    from packaging.utils import canonicalize_name

    found = InstalledReader().read()
    sites = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    expected = {
        canonicalize_name(each.name): each.version for each in reversed(list(metadata.distributions(path=sites)))
    }
    assert {each.name: each.version for each in found.distributions} == expected
    by_name = {each.name: each for each in found.distributions}
    assert by_name["jupyter-gpu-release"].origin is Origin.EDITABLE
    assert "msgspec" in by_name["msgspec"].imports
    assert not by_name["msgspec"].is_pure
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Installed) == found


def test_topmost() -> None:
    assert topmost(["a/b", "a", "ab", "c/d/e", "c/d", "a.b"]) == ["a", "a.b", "ab", "c/d"]
