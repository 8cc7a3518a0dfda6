"""The hosted session of ``binder/``: the memory that it needs of the 2 GB that there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jupyter_gpu_release.client.home import HomePaths

REPOSITORY = Path(__file__).parents[2]
_LIMIT_MIB = 2000
#: what a notebook does there: trains in a GPU cell, and asks while the model is in it how much memory all have
_NOTEBOOK = '''\
import os
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.user_ns["home"] = os.environ["JUPYTER_GPU_HOME"]
shell.run_line_magic("load_ext", "jupyter_gpu_release")
done = shell.run_cell("""%%gpu_train
import os
import torch
from pathlib import Path
from sklearn.datasets import load_digits
X = torch.tensor(load_digits().data, dtype=torch.float32)
model = torch.nn.Linear(64, 10)
torch.nn.functional.cross_entropy(model(X), torch.zeros(len(X), dtype=torch.long)).backward()
kib = 0
for process in Path("/proc").glob("[0-9]*"):
    try:
        if os.fsencode(f"JUPYTER_GPU_HOME={home}") in (process / "environ").read_bytes():
            lines = (process / "smaps_rollup").read_text().splitlines()
            kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except OSError:
        pass
""")
done.raise_error()
print("MiB:", shell.user_ns["kib"] // 1024)
'''


def test_a_session_with_its_cluster_fits_into_two_gigabytes(own_home: HomePaths, tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(_NOTEBOOK)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    own = {"PATH": path, "IPYTHONDIR": str(tmp_path / "ipython")}
    around = {**os.environ, **own}
    command = [REPOSITORY / "binder" / "start", "python", str(tmp_path / "notebook.py")]
    done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, timeout=220)
    assert done.returncode == 0, done.stdout + done.stderr
    needed_mib = int(done.stdout.rpartition("MiB: ")[2])
    assert 200 < needed_mib < _LIMIT_MIB
    assert own_home.connection.exists()
