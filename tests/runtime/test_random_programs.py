"""Random graphs and programs: the engine and the reference interpreter agree on every element."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.runtime.random_graphs import make_world, program
from tremula import Engine, Sequence

pytestmark = pytest.mark.slow

# Programs are large examples. Shrinking one takes minutes, so a failure is shown as it was found:
# remove `phases` to shrink it.
LARGE = settings(
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


def steps(world, draw):
    """A sequence of at least three programs, so that few examples are trivial."""
    return Sequence([program(world, 2) for _ in range(draw(st.integers(3, 6)))])


def assert_same(world, engine, reference):
    """Every variable has the same bits on both sides."""
    for name, tensor in world.all_tensors().items():
        got, wanted = engine.read_tensor(name), reference.read(tensor)
        assert got.dtype == wanted.dtype
        assert np.array_equal(got.view(np.uint8), wanted.view(np.uint8)), (name, got, wanted)


@pytest.mark.slow
@settings(LARGE, max_examples=40)
@given(st.data())
def test_programs_against_the_reference(data):
    """Any program on any mapping computes what the reference interpreter does, run after run."""
    world = make_world(data.draw)
    programs = [steps(world, data.draw) for _ in range(data.draw(st.integers(1, 2)))]
    engine = Engine(world.graph, programs, {"tremula.threads": 1}).load()
    reference = world.reference()
    for number in (0, len(programs) - 1):  # memory and vertex state persist between runs
        engine.run(number)
        reference.run(programs[number])
        assert_same(world, engine, reference)


@settings(LARGE)
@given(st.data())
def test_strict_mode_changes_no_result(data):
    """A legal program passes strict mode, with the same results."""
    world = make_world(data.draw)
    tree = steps(world, data.draw)
    engine = Engine(world.graph, tree, {"debug.strict": True, "tremula.threads": 1})
    reference = world.reference()
    engine.load().run()
    reference.run(tree)
    assert_same(world, engine, reference)


@settings(LARGE)
@given(st.data())
def test_loading_again_resets_everything(data):
    """After load, memory and vertex state are as they were the first time."""
    world = make_world(data.draw)
    tree = steps(world, data.draw)
    engine = Engine(world.graph, tree, {"tremula.threads": 1})
    before = world.reference()
    engine.load().run()
    first = {name: engine.read_tensor(name) for name in world.all_tensors()}
    engine.load()
    assert_same(world, engine, before)
    engine.run()
    for name, values in first.items():
        assert np.array_equal(engine.read_tensor(name).view(np.uint8), values.view(np.uint8))
