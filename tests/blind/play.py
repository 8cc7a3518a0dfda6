from __future__ import annotations
import os, pathlib, subprocess, sys, json
import pytest
ns={}
exec(pathlib.Path(os.environ["CASES"]).read_text(), ns)
ROWS = {k: v for k, v in ns["CASES"].items() if os.environ.get("ONLY", k) == k}
PLAIN = """
def _run():
    import sys, json, types, io, contextlib
    case = json.load(sys.stdin)
    m = types.ModuleType('__main__'); sys.modules['__main__'] = m; g = vars(m)
    with contextlib.redirect_stdout(io.StringIO()):
        for i, t in enumerate(case[:2]): exec(compile(t, f'<c{i}>', 'exec'), g)
        r = repr(eval(case[2], g))
    sys.stdout.write('\\n@@' + r)
_run()
"""
@pytest.mark.parametrize("name", ROWS)
def test_it(nb, name):
    case = ROWS[name]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PLAIN], input=json.dumps(case), capture_output=True, text=True)
    plain = done.stdout.rpartition("@@")[2] or done.stderr.strip()[-200:].replace(chr(10), " / ")
    try:
        nb.cell(case[0])
        trip = nb.gpu(case[1])
    except Exception as e:
        print("RESULT LOUD before:", type(e).__name__, str(e)[:300]); raise
    if trip.error:
        print("RESULT LOUD error:", str(trip.error)[-400:], "NOTES", trip.notes)
    try:
        got = repr(nb.cell(case[2]))
    except Exception as e:
        got = "ERR " + repr(e)
    if got != plain:
        print("RESULT", "SAID" if trip.notes or trip.error else "SILENT", trip.notes, "\nPLAIN", plain[:700], "\nGPU  ", got[:700])
    assert got == plain
