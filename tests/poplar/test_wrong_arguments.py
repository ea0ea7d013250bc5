"""Arguments of the wrong kind: a clear error at the call, and a graph that is still usable."""

import pytest

from tremula import Copy, Engine, Graph, IPUModel, append
from tremula.base.errors import InvalidOption, TypeMismatch


@pytest.fixture
def graph():
    return Graph(IPUModel("ipu2", tiles_per_ipu=2).create_device())


@pytest.mark.parametrize("wrong", [None, 3, "x", [1], {}, 0.5], ids=repr)
def test_what_takes_a_tensor_says_so(graph, wrong):
    """Each method that takes a tensor names itself and the type it got, and changes nothing."""
    x = graph.add_variable("float", [2], "x", mapping=0)
    calls = {
        "create_host_read": lambda: graph.create_host_read("h", wrong),
        "create_host_write": lambda: graph.create_host_write("h", wrong),
        "set_initial_value": lambda: graph.set_initial_value(wrong, 1),
        "get_tile_mapping": lambda: graph.get_tile_mapping(wrong),
        "set_tile_mapping": lambda: graph.set_tile_mapping(wrong, 0),
        "map_linearly": lambda: graph.map_linearly(wrong),
        "clone": lambda: graph.clone(wrong),
        "append": lambda: append(x, wrong),
    }
    for name, call in calls.items():
        with pytest.raises(TypeMismatch, match=f"{name} takes a Tensor, got"):
            call()
    Engine(graph, [Copy(x[0], x[1])]).load().run()


def test_options_and_devices(graph):
    """Options of a stream are a dictionary, slices take intervals, engines load on devices."""
    x = graph.add_variable("float", [2], "x", mapping=0)
    with pytest.raises(InvalidOption, match="are a dictionary, got list"):
        graph.add_device_to_host_fifo("out", "float", 2, [1])
    with pytest.raises(TypeMismatch, match="slices takes indices, intervals"):
        x.slices(["ab"])
    with pytest.raises(TypeMismatch, match="loaded on a Device, got Tensor"):
        Engine(graph, [Copy(x[0], x[1])]).load(x)
