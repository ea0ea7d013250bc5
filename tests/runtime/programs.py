"""Small graphs and engines that the tests of the engine share."""

from tests.runtime.codelets import Blend, Collect
from tremula import Engine, Execute, Graph, IPUModel

ONE_THREAD = {"tremula.threads": 1}


def new_graph(n_ipus=1, replicas=1, tiles=4):
    return Graph(IPUModel("ipu2", n_ipus=n_ipus, tiles_per_ipu=tiles).create_device(), replicas)


def variable(graph, type, shape, name, value=None, tile=0):
    """A mapped variable whose host handles have the variable's name."""
    tensor = graph.add_variable(type, shape, name, mapping=tile)
    if value is not None:
        graph.set_initial_value(tensor, value)
    graph.create_host_read(name, tensor)
    graph.create_host_write(name, tensor)
    return tensor


def loaded(graph, programs, **options):
    return Engine(graph, programs, ONE_THREAD | options).load()


def blend_set(graph, x, y, shift, tile=0):
    """A compute set of one vertex: y = x / 2 + shift."""
    cs = graph.add_compute_set("blend")
    graph.add_vertex(cs, Blend, {"x": x, "y": y, "shift": shift}, tile=tile)
    return cs


def adder(graph, total, row, tile=0):
    """A program that adds the elements of row to total."""
    cs = graph.add_compute_set("add")
    graph.add_vertex(cs, Collect, {"rows": [row], "total": total}, tile=tile)
    return Execute(cs)
