"""Workloads of small programs: the matrix unit by itself, STREAM, stencils and grids."""

import pytest

from tremula.validate import MORE, read_rows, validate
from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.stencils.grids import tile_splits

# Rows, and how far the prediction may be off today.
NEAR = {
    "m-n-16-x-16-16-fp16-fp16-on-every-tile-con-9": 0.04,
    "m-n-16-x-16-16-fp16-fp16-on-every-tile-con-127": 0.01,
    "m-stream-triad-assembly-vertex-1": 0.01,
    "m-stream-triad-assembly-vertex-2": 0.01,
}


def test_rows_of_the_matrix_unit_and_stream():
    """Both are known to the cycle of their loops, so a change of the model shows here."""
    rows = [row for row in read_rows(MORE) if row.id in NEAR]
    result = validate(rows)
    assert not result.unchecked
    for one in result.checked:
        assert abs(one.error) <= NEAR[one.row.id], one


def row(workload, parameters, unit, n_ipus=1, chip="GC2"):
    """A row as a file in words has it."""
    from tremula.validate.free_text import read_words

    words = read_words(workload) | read_words(parameters)
    return MeasuredRow(
        "mine", chip, n_ipus, workload, words, "", unit, 1.0, "", "stencil", parameters
    )


def predicted(*rows):
    result = validate(rows)
    assert not result.unchecked, result.unchecked
    return [one.predicted for one in result.checked]


def test_blurs_of_an_image():
    """Vectors are faster than single floats, and iterations add up."""
    text = "3x3 Gaussian blur of an RGBA image, {} iterations with halo exchange"
    once, three_times, floats = predicted(
        row(text.format(1), "1 IPU; image 96x64; half4 codelet", "s"),
        row(text.format(3), "1 IPU; image 96x64; half4 codelet", "s"),
        row(text.format(1), "1 IPU; image 96x64; float codelet", "s"),
    )
    assert three_times == pytest.approx(3 * once)
    assert floats > once
    (unknown,) = validate([row(text.format(1), "image 9x9; double codelet", "s")]).unchecked
    assert unknown.reason == "codelet 'double' is not known."


def test_equations_on_grids():
    """Points a second and seconds are read from the same step; a wider stencil takes longer."""
    narrow, wide, seconds = predicted(
        row("3D diffusion, space order 2", "1 IPU; grid 64^3; float", "Gpoints/s", chip="GC200"),
        row("3D diffusion, space order 4", "1 IPU; grid 64^3; float", "Gpoints/s", chip="GC200"),
        row("3D heat, 7-point, 10 steps", "1 IPU; 64^3; HeatEquationOptimized", "s", chip="GC200"),
    )
    assert narrow > wide > 0
    assert 0 < seconds < 1e-3


def test_boxes_have_the_least_surface():
    """The partitions that the authors state: 14 × 42 × 42 points of 342³ on 1472 tiles."""
    assert tile_splits((342, 342, 342), 2, 1, 1472) == (23, 8, 8)


def test_more_messages_than_tiles():
    """Those of both chips: half go back, and all of them fit the machine."""
    text = "IPU-to-IPU bandwidth, both directions"
    (rate,) = predicted(row(text, "path=same board; transfers=2432; bytes=64", "GB/s", 2))
    (each,) = predicted(row(text, "path=same board; transfers=1216; bytes=64", "GB/s", 2))
    assert rate == pytest.approx(each)


def test_columns_of_a_grid_are_many_messages():
    """On GC2 each row of a column that crosses chips waits for its turn; not on later chips."""
    from tremula.base.types import FLOAT
    from tremula.poplar.programs import Copy
    from tremula.validate.timing import time_program

    def exchange(name, stride):
        def build(graph, sequence):
            n = graph.target.tiles_per_ipu
            grid = graph.add_variable(FLOAT, [64 * stride], "grid", mapping=0)
            sequence.add(Copy(grid[::stride], graph.add_variable(FLOAT, [64], "far", mapping=n)))

        return time_program(name, 2, build).exchange

    assert exchange("gc2", 4) > exchange("gc2", 1)
    assert exchange("gc200", 4) == pytest.approx(exchange("gc200", 1), rel=0.05)
