"""Workloads made of PopLibs operations: small rows of each family, predicted within reach."""

import pytest

from tremula.base.types import HALF
from tremula.poplar.target import IPUModel
from tremula.validate import GRID, MORE, PUBLISHED, read_rows, validate
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import Timing
from tremula.validate.workloads import matmul
from tremula.validate.workloads.matmul import is_of_2019

# Row, and how far the prediction may be off today: a change of the model shows here first.
ROWS = {
    "jia-reduce1-1216": 0.10,
    # One value a tile: a local stage seems to be missing (docs/caveats.md)
    "jia-reduce-w1": 0.29,
    "popsparse-dense-FP32-1024-16": 0.25,
    "popsparse-fs512-static": 0.12,
    "popsparse-fs256-dynamic": 0.45,
    "jia-conv-rn50-Conv4_1-b1": 0.15,
    "jia-conv-rn50-Conv3_3-b4": 0.05,
    "hydro-gather-16-16-1024": 0.10,
    "hydro-scatter_add-64-64-512": 0.12,
    "scatter_add-0.1-16-512-8192": 0.06,  # a large table: the zeros it begins with are added
    "hydro-schnet_block-64-64-512": 0.04,
    "gather-0.1-16-32-64": 0.12,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_each_family(name):
    """The workload is found, needs no execution, and its error is as small as it was."""
    (row,) = [r for r in (*read_rows(PUBLISHED), *read_rows(GRID)) if r.id == name]
    outcome = validate([row])
    assert not outcome.unchecked
    assert abs(outcome.checked[0].error) <= ROWS[name]


def test_vertices_of_products_on_a_c600():
    """Halves and 8-bit floats: of a profile that was read when the model stood."""
    rows = [row for row in read_rows(MORE) if row.id.startswith("m-c600-")]
    errors = [abs(one.error) for one in validate(rows).checked]
    assert len(errors) == 12
    assert sorted(errors)[6] < 0.08
    assert max(errors) < 0.27


def fp8_row(workload, parameters, dtype, chip="C600"):
    """A row that could have been measured."""
    split = dict(pair.split("=") for pair in f"{parameters};dtype={dtype}".split(";"))
    return MeasuredRow(f"mine-{dtype}", chip, 1, workload, split, "rate", "TFLOP/s", 300.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "parameters"),
    [
        ("dense matmul", "m=4096;k=4096;n=4096"),
        ("convolution forward", "batch=16;in_hw=28;in_c=256;out_c=256;kernel=1"),
    ],
)
def test_rows_of_8_bit_floats(workload, parameters):
    """On a C600 they run at the 8-bit rate, below the published peak; a Bow has no such unit."""
    rows = [fp8_row(workload, parameters, dtype) for dtype in ("fp16", "fp8")]
    halves, small = (result.predicted for result in validate(rows).checked)
    assert halves < small < 560
    (refused,) = validate([fp8_row(workload, parameters, "fp8", "Bow")]).unchecked
    assert "Bow does not multiply" in refused.reason


def test_rows_of_2019_are_planned_as_then():
    """By the SDK a row names, else by its chip: only the GC2 was there."""

    def row(chip, sdk):
        return MeasuredRow("mine", chip, 1, "", {}, "rate", "TFLOP/s", 1.0, sdk=sdk)

    assert is_of_2019(row("GC2", "1.0.49"), "gc2")
    assert is_of_2019(row("GC2", ""), "gc2")
    assert not is_of_2019(row("GC2", "1.4"), "gc2")
    assert not is_of_2019(row("Bow", ""), "bow")


def test_best_widths_are_those_that_fit(monkeypatch: pytest.MonkeyPatch):
    """All powers of two, up to where operands and result fill the chip; the best rate counts."""
    tried: list[int] = []

    def timed(chip: str, shape: tuple[int, int, int], *_: object) -> Timing:
        tried.append(shape[2])
        cycles = shape[2] if shape[2] == 2048 else 2 * shape[2]
        return Timing(IPUModel(chip).create_target(), cycles, 0, 0, cycles, (), ())

    monkeypatch.setattr(matmul, "time_product", timed)
    best = matmul.best_dense_rate("bow", 8192, 8192, HALF, 1.0)
    assert tried == [256, 512, 1024, 2048, 4096, 8192, 16384]
    assert best.n_flops == 2.0 * 8192 * 8192 * 2048
    tried.clear()
    matmul.best_dense_rate("bow", 1024, 1024, HALF, 1.0)
    assert tried[-1] == 65536
