"""A solver is one file: from its entry come the page, the tests and the tile program."""

import importlib.util
from pathlib import Path

import numpy as np

from tests.poplibs.run_op import run_op
from tests.test_docs import steps_of
from tremula.poplibs.registry import all_ops, unregister
from tremula.poplibs.registry_pages import ops_markdown

PAGE = Path(__file__).resolve().parents[4] / "docs" / "adding-an-operation.md"
HEAD = "import numpy as np\nimport tremula as tr\n"


def solver_of_the_page():
    """The block of docs/adding-an-operation.md that is a whole solver."""
    blocks = [step.code.lines for step in steps_of(PAGE.read_text(encoding="utf-8"))]
    return next("\n".join(lines) for lines in blocks if "def diagonal_solve(" in "\n".join(lines))


def test_a_solver_from_a_module_of_its_own(tmp_path):
    """Importing the file is all: page, samples with a reference, right results on tiles."""
    path = tmp_path / "diagonal.py"
    path.write_text(HEAD + solver_of_the_page(), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("diagonal", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        assert "The solution of a diagonal system." in ops_markdown()
        op = all_ops()["poplin.diagonal_solve"]
        for sample in op.samples(op.types[0], np.random.default_rng(0)):
            (got,) = run_op(op.function, sample.inputs)
            np.testing.assert_allclose(got, op.reference(*sample.inputs), rtol=1e-6)
    finally:
        unregister("poplin.diagonal_solve")
    assert "diagonal system" not in ops_markdown()
