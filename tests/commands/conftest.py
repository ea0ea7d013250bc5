"""Files to give to commands, right and wrong ones, and a way to run a command on them."""

from types import SimpleNamespace

import pytest

from tests.vision.programs import summing_engine
from tremula.commands import main
from tremula.vision.report.write import report_of_engine

WRONG_FILES = {
    "text": b"hello\n",
    "binary": bytes(range(256)) * 8,
    "empty": b"",
    "wrong.toml": b"total_cycles = = 4\n",
    "strange.toml": b'base = "bow"\nclock_hz = -1\n',
    "words.toml": b'total_cycles = "many"\n',
    "limits.toml": b"total_cycles = 1_000_000_000\n",
    "short.csv": b"id,chip,num_ipus,workload,parameters,metric,unit,value\nx\n",
    "fine.py": b"print('fine')\n",
    "raises.py": b"def divide(n):\n    return 1 / n\n\n\ndivide(0)\n",
    "syntax.py": b"x = = 3\n",
    "empty.cpp": b"int x = ;\n",
}


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder of wrong files, beside a report that is right and one that is cut."""
    folder = tmp_path_factory.mktemp("files")
    for name, content in WRONG_FILES.items():
        (folder / name).write_bytes(content)
    engine = summing_engine().load()
    engine.run()
    report = report_of_engine(engine, folder / "report")
    (folder / "cut.pop").write_bytes(report.read_bytes()[:-4096])
    (folder / "folder").mkdir()
    return folder


@pytest.fixture
def tremula(files, monkeypatch, capsys):
    """Runs a command line in the folder of files; a traceback of ours would raise here."""
    monkeypatch.chdir(files)

    def run(line):
        try:
            code = main(line.split() if isinstance(line, str) else line)
        except SystemExit as stopped:
            code = stopped.code
        printed = capsys.readouterr()
        return SimpleNamespace(code=code, out=printed.out, err=printed.err)

    return run
