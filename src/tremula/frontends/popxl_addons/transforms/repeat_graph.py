"""A graph that runs another several times."""

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs


def repeat_graph(graph: GraphWithNamedArgs, repeat_count: int) -> GraphWithNamedArgs:
    """A graph with the same inputs and names that repeats a whole graph.

    Outputs of a round are the first inputs of the next; other inputs are passed by reference, so
    that variables keep what a round does to them.
    """
    inner = graph.graph
    outer = inner.ir.create_empty_graph(f"{inner.name.split('_subgraph(')[0]}_repeated")
    with outer:
        own = {
            t: popxl.graph_input(
                t.shape, t.dtype, t.name.replace("/", "_"), t in inner.by_ref_inputs, t.meta_shape
            )
            for t in inner.inputs
        }
        for t in ops.repeat(inner, repeat_count, inputs_dict=own):
            popxl.graph_output(t)
    return GraphWithNamedArgs(outer, graph.args.remap(own))
