"""A wheel that is made of what is installed: the same files, metadata and entry points; the same bytes each time."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from wheel_bed import install, make_wheel

from jupyter_gpu_release.environments.wheels import pack_wheel
from jupyter_gpu_release.errors import CannotSendError

FILES = {"tools/__init__.py": "x = 1\n", "tools/data/a,b.csv": "1\n", "single.py": ""}
SHARED = "../../../share/tools/t.txt"


def test_it_has_what_was_installed(tmp_path: Path) -> None:
    site = tmp_path / "prefix" / "lib" / "python3" / "site-packages"
    info = install(make_wheel(tmp_path, "Tools", "1.0", FILES, scripts={"t": "tools:x"}), site)
    shared = tmp_path / "prefix" / "share" / "tools" / "t.txt"
    shared.parent.mkdir(parents=True)
    shared.write_text("t")
    with open(info / "RECORD", "w") as file:
        listed = ["tools/__init__.py", '"tools/data/a,b.csv"', "single.py", SHARED, "../../../bin/t"]
        file.writelines(f"{each},,\n" for each in [*listed, "tools/__pycache__/x.pyc", f"{info.name}/RECORD"])
    (info / "INSTALLER").write_text("pip")
    wheel = pack_wheel(info, "tools", "1.0")
    assert wheel.file_name == "tools-1.0-py3-none-any.whl"
    (tmp_path / "made").mkdir()
    made = tmp_path / "made" / wheel.file_name
    made.write_bytes(wheel.content)
    with zipfile.ZipFile(made) as archive:
        names = set(archive.namelist())
        record = archive.read("tools-1.0.dist-info/RECORD").decode()
    assert names == {
        "tools/__init__.py",
        "tools/data/a,b.csv",
        "single.py",
        "tools-1.0.data/data/share/tools/t.txt",
        *(f"tools-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")),
    }
    assert '"tools/data/a,b.csv",sha256=' in record
    os.utime(site / "single.py", ns=(1, 1))
    assert pack_wheel(info, "tools", "1.0") == wheel
    (site / "single.py").write_text("y = 2\n")
    assert pack_wheel(info, "tools", "1.0").digest != wheel.digest


def test_of_one_that_is_edited_in_place(tmp_path: Path) -> None:
    source = tmp_path / "project" / "tools"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    info = install(make_wheel(tmp_path, "tools", "1.0", {"tools.pth": f"{source.parent}\n"}), tmp_path / "site")
    wheel = pack_wheel(info, "tools", "1.0", source.parent.as_uri())
    (tmp_path / wheel.file_name).write_bytes(wheel.content)
    with zipfile.ZipFile(tmp_path / wheel.file_name) as archive:
        assert "tools/__init__.py" in archive.namelist()
        assert "tools.pth" not in archive.namelist()


def test_files_that_cannot_be_read_are_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(CannotSendError, match=r"tools 1\.0 cannot be sent along: .*RECORD"):
        pack_wheel(tmp_path / "tools-1.0.dist-info", "tools", "1.0")
