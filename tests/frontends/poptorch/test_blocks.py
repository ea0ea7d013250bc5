"""Blocks, name scopes and attributes tell the recording; outside of one they do nothing."""

import copy
import io
import pickle
import re

import pytest
import torch

import poptorch
from tremula.ir.recording import Recording, recording


def double(x):
    """A plain function, to be put into a block."""
    return 2 * x


def ids_of(state: Recording) -> list[tuple[str, int | None]]:
    return [(block.user_id, block.ipu_id) for block in state.blocks]


def now(state: Recording) -> str | None:
    return None if state.block is None else state.blocks[state.block].user_id


def test_nothing_happens_outside_of_a_model():
    """All forms of blocks and scopes are no-ops where no model is recorded."""
    layer = poptorch.BeginBlock(torch.nn.ReLU(), "a", ipu_id=3)
    poptorch.Block.useAutoId()
    poptorch.Block.start("x", ipu_id=1)
    with poptorch.Block("a"), poptorch.NameScope("n"), poptorch.Attribute(__g={"k": "v"}):
        assert layer(torch.ones(1)) == 1
    assert poptorch.BlockFunction("b")(double)(2) == 4
    assert poptorch.BeginBlock(double, "b")(2) == 4


def test_blocks_nest():
    """A block in another one ends with its scope, and the outer one goes on."""
    state = Recording(training=False)
    with recording(state):
        with poptorch.Block("outer", ipu_id=0):
            assert now(state) == "outer"
            with poptorch.Block("inner", ipu_id=1):
                poptorch.Block.start("started", ipu_id=2)
                assert now(state) == "started"
            assert now(state) == "outer"
        assert now(state) is None
    assert ids_of(state) == [("outer", 0), ("inner", 1), ("started", 2)]


def test_a_block_ends_when_an_exception_leaves_it():
    """After an exception the enclosing block is the current one."""
    state = Recording(training=False)
    with recording(state):
        with pytest.raises(ValueError, match="stop"), poptorch.Block("a"):
            raise ValueError("stop")
        assert now(state) is None


def test_anonymous_blocks_are_numbered():
    """Blocks without an id get 0, 1, …; useAutoId starts again."""
    state = Recording(training=False)
    with recording(state):
        for ipu in (0, 1):
            with poptorch.Block(ipu_id=ipu):
                pass
        poptorch.Block.useAutoId()
        with poptorch.Block(ipu_id=5):
            assert now(state) == "0"
    assert ids_of(state) == [("0", 0), ("1", 1), ("0", 5)]


def test_block_function():
    """A decorated function or method is a block each time it runs, and keeps its name."""

    class Model(torch.nn.Module):
        @poptorch.BlockFunction("first", ipu_id=0)
        def first(self, x):
            return now(state), x

        def forward(self, x):
            return self.first(x)

    state = Recording(training=False)
    with recording(state):
        assert Model()(3) == ("first", 3)
        assert now(state) is None
    assert Model.first.__name__ == "first"


def test_begin_block_leaves_the_module_as_it_is():
    """BeginBlock returns the same module: class, names and state are untouched."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    keys = list(model.state_dict())
    layer = model[0]
    assert poptorch.BeginBlock(layer, ipu_id=1) is layer
    assert type(layer) is torch.nn.Linear
    assert list(model.state_dict()) == keys
    with pytest.raises(poptorch.Error, match=r"module has already been assigned to a block\."):
        poptorch.BeginBlock(layer, ipu_id=2)


def test_begin_block_lasts_until_the_next():
    """A module's block begins before its forward and goes on behind it."""
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU(), torch.nn.ReLU())
    poptorch.BeginBlock(model[1], "one", ipu_id=1)
    state = Recording(training=False)
    seen = []
    for layer in model:
        layer.register_forward_hook(lambda *_: seen.append(now(state)))
    with recording(state):
        model(torch.ones(1))
    assert seen == [None, "one", "one"]


def test_a_module_begins_the_same_block_each_time():
    """Within one recording a module without an id always begins the same block."""
    layer = poptorch.BeginBlock(torch.nn.ReLU(), ipu_id=1)
    other = poptorch.BeginBlock(torch.nn.ReLU(), ipu_id=2)
    for _ in range(2):
        state = Recording(training=False)
        with recording(state):
            for module in (layer, other, layer):
                module(torch.ones(1))
        assert ids_of(state) == [("0", 1), ("1", 2)]
        assert now(state) == "0"


def test_a_function_is_wrapped():
    """BeginBlock of a function is a LegacyBeginBlockFn, which can be pickled."""
    block = poptorch.BeginBlock(double, 1, 2)
    assert isinstance(block, poptorch.LegacyBeginBlockFn)
    assert (block._user_id, block._ipu_id) == (1, 2)
    torch.save(block, io.BytesIO())
    state = Recording(training=False)
    with recording(state):
        assert block(4) == 8
    assert ids_of(state) == [("1", 2)]


def test_anything_else_is_rejected():
    """BeginBlock needs a module or a function."""
    with pytest.raises(poptorch.Error, match=r"needs a torch\.nn\.Module or a function, got int"):
        poptorch.BeginBlock(3)


def test_blocks_survive_copies():
    """A block stays with shallow, deep and pickled copies of its module."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    poptorch.BeginBlock(model[0], user_id=1, ipu_id=2)
    with recording(Recording(training=False)):
        model(torch.ones(1, 2))
    for copied in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert "BeginBlock(user_id=1, ipu_id=2)" in poptorch.module_repr(copied)


def test_blocks_are_shown(capsys):
    """module_repr and print show where blocks begin, else what PyTorch shows."""
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.ReLU()), torch.nn.Dropout(0.25)
    )
    assert poptorch.module_repr(model) == repr(model)
    poptorch.BeginBlock(model[1][0], ipu_id=1)
    shown = poptorch.module_repr(model)
    assert re.search(r"\(0\):\s*BeginBlock\(user_id=None, ipu_id=1\)\s*ReLU\(\)", shown)
    poptorch.print("model", model, sep=": ")
    assert capsys.readouterr().out == f"model: {shown}\n"


def test_remove_blocks():
    """removeBlocks takes all blocks off, other hooks stay, and blocks can be set again."""
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())
    calls = []
    model[0].register_forward_pre_hook(lambda *_: calls.append(1))
    for layer in model:
        poptorch.BeginBlock(layer, ipu_id=1)
    poptorch.removeBlocks(model)
    state = Recording(training=False)
    with recording(state):
        model(torch.ones(1))
    assert not state.blocks
    assert calls == [1]
    poptorch.BeginBlock(model[0], ipu_id=1)


def test_names_and_attributes():
    """Scopes and attributes are part of the origin of operations inside them."""
    state = Recording(training=False)
    with recording(state):
        with poptorch.NameScope("encoder"), poptorch.Attribute(__outline={"layer": "embedding"}):
            inside = state.origin()
        outside = state.origin()
    assert inside.scope == ("encoder",)
    assert dict(inside.attributes) == {"__outline": "{'layer': 'embedding'}"}
    assert (outside.scope, outside.attributes) == ((), ())
    with pytest.raises(AssertionError, match="must be a dict"):
        poptorch.Attribute(__outline="embedding")
