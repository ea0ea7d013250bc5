"""The public names of `tremula.serving`: they exist, and loading the package loads nothing."""

import subprocess
import sys

import pytest

import tremula.serving


def test_every_public_name_is_there():
    """Each name of `__all__` is found; another one is an AttributeError."""
    for name in tremula.serving.__all__:
        assert getattr(tremula.serving, name) is not None, name
    with pytest.raises(AttributeError, match="no attribute 'serve_me'"):
        _ = tremula.serving.serve_me


def test_the_package_alone_loads_nothing_heavy():
    """`import tremula.serving` loads neither httptools nor PyTorch."""
    code = "import sys, tremula.serving; print({'httptools', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
