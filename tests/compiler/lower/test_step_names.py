"""Names of steps: those of programs, and for copies without one the place they belong to."""

import tremula as tr
from tremula import FLOAT


def test_a_copy_without_a_name_is_called_after_its_destination():
    """So a report counts it with the operation that made the destination."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())
    weights, turned, plain = (
        graph.add_variable(FLOAT, [8], name, mapping="linear")
        for name in ("weights", "layer/product/turned", "plain")
    )
    program = tr.Sequence(
        [tr.Copy(weights, turned), tr.Copy(turned, plain), tr.Copy(plain, weights, name="save")]
    )
    steps = tr.Engine(graph, program).executable.steps
    assert [step.name for step in steps] == ["layer/product/Copy turned", "Copy plain", "save"]
