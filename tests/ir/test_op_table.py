"""The table of operations: modules enter their functions, and the page shows all of them."""

import importlib
from pathlib import Path

import pytest
import torch
from torch.torch_version import TorchVersion

from tremula.ir.op_table import (
    all_complex_rules,
    all_decompositions,
    all_lowerings,
    aten_markdown,
    code_of_users,
    decomposes,
    decomposition_of,
    forget,
    lowers,
)
from tremula.ir.run.tile_run import run_on_tiles

PAGE = Path(__file__).resolve().parents[2] / "docs" / "aten.md"
USERS_MODULE = '''
import torch
from tremula.ir.lowering.pointwise.map import mapped
from tremula.ir.op_table import decomposes, lowers
from tremula.poplibs.popops.elementwise import expr

@lowers("sinc", calls="popops.map")
def odd_cube(tiles, x):
    return mapped(tiles, lambda x: x * x * x, x)

@decomposes(torch.ops.aten.deg2rad.default)
def radians(x):
    """A half turn is pi."""
    return x * (torch.pi / 180)
'''


def test_the_page_is_up_to_date():
    """docs/aten.md is what the table says with the newest PyTorch; an older one has less."""
    page = PAGE.read_text(encoding="utf-8")
    if TorchVersion(torch.__version__) >= (2, 13):
        assert page == aten_markdown(), "run `make docs`"
    else:
        assert set(aten_markdown().splitlines()) <= set(page.splitlines())


def test_the_page_has_every_operation():
    """Each entry of the table has a row, and each row says what it becomes."""
    rows = [line for line in aten_markdown().splitlines() if line.startswith("| `")]
    assert len(rows) == len(all_lowerings()) + len(all_decompositions()) + len(all_complex_rules())
    assert all(row.split("|")[2].strip() for row in rows)


def test_a_users_module_adds_operations(tmp_path, monkeypatch):
    """Importing a module outside the package is all it takes: on the page, and on tiles."""
    (tmp_path / "users_operations.py").write_text(USERS_MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = aten_markdown()
    module = importlib.import_module("users_operations")
    try:
        page = aten_markdown()
        assert "## Users operations" in page
        assert "| `sinc` | popops.map |" in page
        assert "| `deg2rad` | A half turn is pi. |" in page
        x = torch.tensor([-2.0, -0.5, 0.0, 3.0])
        (cubes,) = run_on_tiles(torch.sinc, x)
        torch.testing.assert_close(cubes, x**3)
        (angles,) = run_on_tiles(torch.deg2rad, x)
        torch.testing.assert_close(angles, torch.deg2rad(x))
        # A cached program depends on the user's file, too.
        assert USERS_MODULE in code_of_users()
    finally:
        forget(module.odd_cube, module.radians)
    assert aten_markdown() == before


def test_an_operation_has_one_entry_of_a_kind():
    """A second lowering or decomposition is rejected; PyTorch's own are not entries."""
    with pytest.raises(ValueError, match="aten::mm has two lowerings"):
        lowers("mm", calls="")(print)
    addbmm = torch.ops.aten.addbmm.default
    with pytest.raises(ValueError, match="aten::addbmm has two decompositions"):
        decomposes(addbmm)(print)
    assert decomposition_of(torch.ops.aten.addcmul.default) is not None
    assert "aten::addcmul" not in all_decompositions()
