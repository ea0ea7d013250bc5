"""A full disk leaves no half-written file: the one that was there stays, or there is none."""

import re
import resource
from contextlib import contextmanager

import numpy as np
import pytest

import tremula as tr
from tests.sources import ROOT
from tremula import FLOAT
from tremula.base.storage.atomic_file import write_bytes, write_text
from tremula.hardware import chip, save_chip, save_system, system

# Files that may be written in place, and why.
IN_PLACE = {
    "base/processes.py": "a file of the kernel, which starts counting memory again",
    "commands/reports/remote_reports.py": "a temporary file",
    "demo/mnist.py": "a temporary folder",
    "frontends/keras/tensorflow/records.py": "a stream that a script writes and closes",
    "frontends/keras/tensorflow/summaries.py": "a stream that a script writes and closes",
    "frontends/poptorch/executor/saving.py": "a temporary file",
    "poplibs/popops/elementwise/stubs.py": "our own source, by make docs",
    "validate/fit/template.py": "the text of a script that people run",
    "vision/report/reader.py": "a temporary folder",
    "vision/serve/uploads.py": "a temporary folder",
}
_WRITES = re.compile(
    r"(?<!atomic_file)\.write_(?:text|bytes)\(|\bopen\([^)\n]*[\"'][wx]b?[\"']|np\.save[z]?\((?!\s*(?:file|stream))"
)


@contextmanager
def full_disk():
    """No file can have more than 8 bytes: writing more is an OSError, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _graph():
    graph = tr.Graph(tr.IPUModel("ipu2", tiles_per_ipu=2).create_device())
    graph.set_initial_value(graph.add_variable(FLOAT, [64], "x", mapping=0), np.arange(64.0))
    return graph


def _model_file(path):
    popart = pytest.importorskip("popart")
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4])
    builder.addOutputTensor(builder.aiOnnx.relu([x]))
    builder.saveModelProto(str(path))


EXPORTS = {
    "bytes": lambda path: write_bytes(path, b"x" * 1000),
    "text": lambda path: write_text(path, "x" * 1000),
    "chip": lambda path: save_chip(chip("bow"), path),
    "system": lambda path: save_system(system("pod16"), path),
    "drawing": lambda path: _graph().output_vertex_graph(str(path)),
    "executable": lambda path: tr.compile_graph(_graph(), tr.Sequence()).save(path),
    "model": _model_file,
}


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_are_whole_or_absent(name, tmp_path):
    """Every kind of file: nothing new is left, and what was there stays."""
    path = tmp_path / "export"
    EXPORTS[name](path)
    path.unlink()
    with full_disk(), pytest.raises(Exception, match="File too large"):
        EXPORTS[name](path)
    assert not list(tmp_path.iterdir())
    path.write_text("old")
    with full_disk(), pytest.raises(Exception, match="File too large"):
        EXPORTS[name](path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_nothing_else_writes_files():
    """All exports go through `atomic_file`, apart from files that are listed with a reason."""
    package = ROOT / "src" / "tremula"
    texts = {str(p.relative_to(package)): p.read_text("utf-8") for p in package.rglob("*.py")}
    writers = {name for name, text in texts.items() if _WRITES.search(text)}
    assert writers <= IN_PLACE.keys(), writers - IN_PLACE.keys()
    assert writers == IN_PLACE.keys(), f"no longer: {IN_PLACE.keys() - writers}"


def test_a_link_stays_a_link_and_a_pipe_is_written(tmp_path):
    """The file behind a link is replaced, with its permissions; devices are written in place."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    write_text("/dev/null", "gone")
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "no" / "file", "")
