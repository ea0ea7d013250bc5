"""Source lines: the user's own, be it beneath PyTorch, runpy or an application of Tremula."""

import contextlib
import functools
import inspect
import os
import runpy
import sys
from pathlib import Path

import pytest

import tremula
from tremula.base.source import (
    at_source,
    is_framework_code,
    lines_of_function,
    source_at,
    user_source,
)

PACKAGE = Path(tremula.__file__).parent


@pytest.mark.parametrize(
    ("file", "is_users"),
    [
        ("/models/model.py", True),
        ("<stdin>", True),
        (str(PACKAGE.parents[1] / "benchmarks" / "poptorch" / "models.py"), True),
        (str(PACKAGE / "garden" / "models" / "resnet.py"), True),
        (str(PACKAGE / "commands" / "demo.py"), True),
        (str(PACKAGE / "poplibs" / "popops" / "reduce.py"), False),
        ("<frozen runpy>", False),
        ("<eval_with_key>.3", False),
        (os.__file__, False),
        (contextlib.__file__, False),
        (str(Path(os.__file__).parent / "site-packages" / "transformers" / "model.py"), True),
    ],
)
def test_whose_code_a_file_holds(file, is_users):
    """Applications and installed models are users' code; libraries beneath them are not."""
    assert is_framework_code(file) != is_users


def test_pytorch_is_framework_code():
    """A line of PyTorch is never a source."""
    torch = pytest.importorskip("torch")
    is_framework_code.cache_clear()
    assert is_framework_code(torch.nn.functional.__file__)


def test_a_script_that_runpy_runs(tmp_path):
    """The script's line is found, not that of what runs it."""
    script = tmp_path / "script.py"
    script.write_text("from tremula.base.source import user_source\nfound = user_source()\n")
    result = runpy.run_path(str(script))["found"]
    assert str(result) == f"{script}:2"


def test_a_line_can_be_stated():
    """Inside `at_source` everything comes from that line; None changes nothing."""
    line = source_at("model.py", 7)
    with at_source(line), at_source(None):
        assert user_source() is line
    assert user_source() is source_at(__file__, sys._getframe().f_lineno)


def test_lines_of_a_function_are_those_of_its_file():
    """Decorators and inner functions belong to it, what follows does not; wrappers are left out."""

    def plain():
        def inner():
            return 1

        return inner

    @functools.wraps(plain)
    def wrapper():
        return plain()

    for function in (plain, wrapper, test_lines_of_a_function_are_those_of_its_file):
        assert lines_of_function(function) == inspect.getsourcelines(function)


def test_a_function_without_a_file_has_no_lines():
    """OSError, as inspect has it."""
    scope = {}
    exec("def made():\n    return 1", scope)
    with pytest.raises(OSError, match="line 1 of <string> cannot be read"):
        lines_of_function(scope["made"])
