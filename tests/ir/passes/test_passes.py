"""The passes over a captured step: each keeps what the step computes and does what it is for."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.ir.steps import captured, run_host, train_on_tiles, training_step
from tremula.ir.errors import CaptureError
from tremula.ir.origin import BACKWARD, FORWARD, ORIGIN
from tremula.ir.passes import COMMON_PASSES, TILE_PASSES, apply, tile_passes
from tremula.ir.passes.clean import (
    drop_dead,
    drop_identities,
    fold_constants,
    schema_name,
    share_common,
)
from tremula.ir.passes.functionalise import functionalise, written_arguments
from tremula.ir.passes.recompute import recompute_stages
from tremula.ir.passes.split import micro_batch_part

ops = torch.ops.tremula


def names(step):
    return [schema_name(node) for node in step.graph.nodes if schema_name(node)]


# -- functionalise ---------------------------------------------------------------------------------

VIEWS = (
    lambda t, n: t[n % t.shape[0] :] if t.dim() else t,
    lambda t, n: t[n % t.shape[0]] if t.dim() > 1 else t,
    lambda t, n: t[..., : n % t.shape[-1] + 1] if t.dim() else t,
    lambda t, _: t.transpose(0, -1) if t.dim() else t,
    lambda t, _: t.unsqueeze(0) if t.dim() < 4 else t,
    lambda t, _: t.squeeze(0) if t.dim() > 1 else t,
    lambda t, _: t.view(-1) if t.is_contiguous() else t,
    lambda t, _: t.diagonal() if t.dim() == 2 else t,
    lambda t, n: t.split(2, -1)[n % len(t.split(2, -1))] if t.dim() else t,
    lambda t, n: t.unbind(0)[n % t.shape[0]] if t.dim() > 1 else t,
    lambda t, _: t.permute(*reversed(range(t.dim()))),
    lambda t, _: t.detach(),
    lambda t, n: t.chunk(2, 0)[n % len(t.chunk(2, 0))] if t.dim() else t,
)
WRITES = (
    lambda t, n, _: t.add_(n),
    lambda t, n, _: t.mul_(n - 2),
    lambda t, _, other: t.copy_(other.sum()),
    lambda t, _, __: t.zero_(),
    lambda t, n, _: t.fill_(n),
    lambda t, _, __: t.relu_(),
    lambda t, n, other: t.sub_(other.mean() * n),
    lambda t, n, _: t.masked_fill_(t > n, 1.5),
    lambda t, n, other: t.__setitem__(0, other.max() + n) if t.dim() else t.neg_(),
)
FRESH = (
    lambda t, n: t * 2 + n,
    lambda t, _: t.clone(),
    lambda t, n: torch.cat([t.reshape(-1)[:1]] * 2) + n,
)

INSTRUCTIONS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(0, 20), st.integers(0, 5)),
    min_size=1,
    max_size=12,
)


def interpreted(program, x, y):
    """Runs (kind, tensor, other tensor, number) on tensors that views and new ones join."""
    tensors = [x, y]
    for kind, which, other, n in program:
        tensor, second = tensors[which % len(tensors)], tensors[other % len(tensors)]
        if kind < len(VIEWS):
            tensors.append(VIEWS[kind](tensor, n))
        elif kind < 30:
            WRITES[kind % len(WRITES)](tensor, n, second)
        else:
            tensors.append(FRESH[kind % len(FRESH)](tensor, n))
    return tensors


@pytest.mark.slow
@settings(max_examples=120, deadline=None, derandomize=True)
@given(INSTRUCTIONS)
def test_writes_through_views_become_values(program):
    """Random programs of views and writes give what eager PyTorch gives, without a write."""
    x, y = torch.arange(24.0).reshape(4, 6) - 9, torch.linspace(-2, 3, 12).reshape(3, 4)

    def function(x, y):
        return interpreted(program, x.clone(), y.clone())

    wanted = function(x, y)
    step = captured(function, x, y)
    calls = [node for node in step.graph.nodes if node.op == "call_function"]
    assert not any(written_arguments(node.target) for node in calls)
    for got, right in zip(run_host(step, x, y), wanted, strict=True):
        torch.testing.assert_close(got, right)


SPLIT_TWICE = [(8, 14, 12, 1), (4, 17, 7, 3), (6, 12, 1, 5), (25, 17, 13, 4)]
CLONE_SHARED_AFTER_A_WRITE = [
    (1, 13, 17, 4), (40, 18, 7, 4), (8, 7, 8, 1), (4, 15, 13, 1), (6, 1, 1, 4), (34, 12, 16, 4),
    (20, 20, 19, 3), (34, 16, 4, 5),
]  # fmt: skip
VIEW_OF_A_WRITTEN_TRANSPOSE = [
    (31, 13, 0, 2), (10, 20, 9, 0), (7, 13, 13, 4), (13, 8, 11, 5), (36, 15, 18, 2), (6, 2, 5, 2),
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@example(SPLIT_TWICE)
@example(CLONE_SHARED_AFTER_A_WRITE)
@example(VIEW_OF_A_WRITTEN_TRANSPOSE)
@given(INSTRUCTIONS)
def test_spelled_out_steps_compute_the_same(program):
    """Programs compute what they did after the passes of the tile program, too."""
    x, y = torch.arange(24.0).reshape(4, 6) - 9, torch.linspace(-2, 3, 12).reshape(3, 4)

    def function(x, y):
        return interpreted(program, x.clone(), y.clone())

    wanted = function(x, y)
    step = apply(captured(function, x, y), TILE_PASSES)
    for got, right in zip(run_host(step, x, y), wanted, strict=True):
        torch.testing.assert_close(got, right)


def test_written_inputs_are_results():
    """An input that forward writes is a result of the step; one that it only reads is not."""

    def function(x, y):
        x.add_(1)
        return x * y

    x, y = torch.ones(3), torch.ones(3)
    step = captured(function, x, y)
    assert [(slot.kind, slot.index) for slot in step.outputs] == [("output", 0), ("input", 0)]
    run_host(step, x, y)
    assert x.tolist() == [2, 2, 2]
    assert y.tolist() == [1, 1, 1]


def test_steps_of_written_slices():
    """A write to every other element is an error at its line; reading them is not."""
    with pytest.raises(CaptureError, match="slices with step size other than 1 is not supported"):
        captured(lambda x: x.clone()[::2].add_(1), torch.ones(4))
    with pytest.raises(CaptureError, match=r"test_passes\.py"):
        captured(lambda x: x.clone().__setitem__(slice(None, None, 2), 1.0), torch.ones(4))
    step = captured(lambda x: x[::2] + 1, torch.arange(4.0))
    assert run_host(step, torch.arange(4.0))[0].tolist() == [1, 3]


# -- cleaning --------------------------------------------------------------------------------------


def recorded(function, *inputs):
    return functionalise(captured(function, *inputs, passes=()))


def test_common_subexpressions_are_computed_once():
    """Equal calls become one; random ones, and calls with other numbers, stay."""

    def function(x):
        noise = torch.rand_like(x) + torch.rand_like(x)
        return torch.exp(x) + torch.exp(x) + torch.exp(x * 2), x + 1, x + 1.0, noise

    step = drop_dead(share_common(recorded(function, torch.ones(3))))
    result = names(step)
    assert result.count("aten::exp") == 2
    assert result.count("aten::rand_like") == 2
    assert result.count("aten::add") == 5  # 1 and 1.0 are two numbers to integers


def test_what_a_checkpoint_computes_again_stays():
    """The gradient of a part under torch.utils.checkpoint uses its own values, not forward's."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            def part(x):
                return torch.exp(torch.exp(x * self.weight))

            y = checkpoint(part, x, use_reentrant=False) if self.is_checkpointed else part(x)
            return F.mse_loss(y, torch.zeros(3))

    for is_checkpointed in (False, True):
        Model.is_checkpointed = is_checkpointed
        step = training_step(Model(), torch.ones(3))
        exps = [node for node in step.graph.nodes if schema_name(node) == "aten::exp"]
        assert len(exps) == (4 if is_checkpointed else 2)
        users = {user.meta[ORIGIN].phase for user in exps[0].users}
        assert (BACKWARD in users) is not is_checkpointed


def test_constants_are_folded():
    """What is computed from constants alone is a constant; its sources go."""

    def function(x):
        table = torch.tensor([1.0, 2.0, 3.0])
        return x * (table * 2 + 1)

    step = drop_dead(fold_constants(recorded(function, torch.ones(3))))
    assert names(step) == ["aten::mul"]
    (constant,) = step.constants.values()
    assert constant.tolist() == [3, 5, 7]
    assert run_host(step, torch.ones(3))[0].tolist() == [3, 5, 7]


def test_dead_nodes_go_but_prints_stay():
    """Unused work is dropped; a print whose result is not used still prints."""

    def function(x):
        torch.exp(x)
        ops.print_tensor(x, "kept", "", False)
        return x + 1

    step = drop_dead(recorded(function, torch.ones(3)))
    assert names(step) == ["tremula::print_tensor", "aten::add"]


def test_identities_go():
    """detach, conversions to the same type and views of the same shape are the tensor itself."""
    function = lambda x: x.detach().to(torch.float32).view(3).expand(3) + 1  # noqa: E731
    assert names(drop_identities(recorded(function, torch.ones(3)))) == ["aten::add"]


def test_every_pass_has_a_name():
    """The lists of passes name each pass once in a list."""
    for passes in (COMMON_PASSES, TILE_PASSES):
        assert len({name for name, _ in passes}) == len(passes)


# -- memory of products ----------------------------------------------------------------------------


def test_memory_share_reaches_the_product():
    """set_available_memory ends at the product behind a bias and views, and at its gradients."""
    weights = [torch.randn(6, 6) for _ in range(2)]

    def function(x, a, b):
        x = x.requires_grad_(True)
        y = ops.set_available_memory(F.linear(x, a) + 1, 0.25)
        z = F.linear(y, b)
        return z, torch.autograd.grad(z.sum(), x)[0]

    step = captured(function, torch.randn(2, 3, 6), *weights)
    assert "tremula::set_available_memory" not in names(step)
    shares = [
        n.meta[ORIGIN].choices.available_memory
        for n in step.graph.nodes
        if schema_name(n) == "aten::mm"
    ]
    assert shares.count(0.25) >= 1
    assert None in shares


# -- recomputation ---------------------------------------------------------------------------------


class Tower(nn.Module):
    """Layers with a checkpoint behind every second one."""

    def __init__(self, has_checkpoints, dropout=0.0):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.has_checkpoints, self.dropout = has_checkpoints, dropout

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if self.dropout:
                x = F.dropout(x, self.dropout)
            if self.has_checkpoints and number % 2 == 1:
                x = ops.checkpoint(x)
        return F.mse_loss(x, torch.zeros_like(x))


@pytest.mark.slow
def test_recomputation_saves_memory_and_no_bit_changes():
    """With checkpoints the fullest moment holds less, and weights and loss are bitwise equal."""
    torch.manual_seed(0)
    plain, marked = Tower(False), Tower(True)
    marked.load_state_dict(plain.state_dict())
    x = torch.randn(256, 16)
    without, with_marks = train_on_tiles(plain, x), train_on_tiles(marked, x)
    assert torch.equal(without.outputs[0], with_marks.outputs[0])
    for a, b in zip(without.weights, with_marks.weights, strict=True):
        assert torch.equal(a, b)
    assert with_marks.temporary_bytes < 0.9 * without.temporary_bytes


@pytest.mark.slow
def test_recomputation_draws_nothing_again():
    """Random values are kept: the backward pass sees the mask of the forward pass."""
    step = train_step(Tower(True, dropout=0.5))
    drawn = [
        n for n in names(step) if n in ("aten::native_dropout", "aten::bernoulli", "aten::rand")
    ]
    plain = train_step(Tower(False, dropout=0.5))
    assert len(drawn) == len([n for n in names(plain) if n in drawn])
    assert names(step).count("aten::tanh") > names(plain).count("aten::tanh")


def train_step(model, x=None, passes=TILE_PASSES):
    from tests.ir.steps import training_step

    x = torch.randn(8, 16) if x is None else x
    return apply(training_step(model, x), passes)


def test_behind_the_last_checkpoint_nothing_is_computed_again():
    """What the backward pass uses first stays in memory; so does a step without a backward pass."""
    step = train_step(Tower(True))
    # Six layers, of which the last checkpoint comes after the sixth: all but stored ones twice.
    again = [
        n for n in step.graph.nodes
        if schema_name(n) == "aten::tanh" and n.meta[ORIGIN].phase == BACKWARD
    ]  # fmt: skip
    assert len(again) == 3  # layers 1, 3 and 5; 2, 4 and 6 are checkpoints
    inference = apply(captured(lambda x: ops.checkpoint(x.tanh()), torch.ones(3)), TILE_PASSES)
    assert names(inference).count("aten::tanh") == 1


def test_stages_are_recomputed():
    """Of a pipeline, all stages but the last keep only what they got from other stages."""
    from tremula.ir.recording import active

    class Staged(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

        def forward(self, x):
            for number, layer in enumerate(self.layers):
                if number % 2 == 0 and active() is not None:
                    active().start_block(str(number), None)
                x = torch.tanh(layer(x))
            return F.mse_loss(x, torch.zeros_like(x))

    step = recompute_stages(train_step(Staged()), (0, 1))
    step.graph.lint()
    tanhs = [n.meta[ORIGIN] for n in step.graph.nodes if schema_name(n) == "aten::tanh"]
    assert [o.block for o in tanhs if o.phase == FORWARD] == [0, 0, 1, 1]
    assert [o.block for o in tanhs if o.phase == BACKWARD] == [0, 0]
    crossing = [
        source.name
        for node in micro_batch_part(step).graph.nodes
        if ORIGIN in node.meta and node.meta[ORIGIN].phase == BACKWARD
        for source in node.all_input_nodes
        if schema_name(source) == "aten::tanh" and source.meta[ORIGIN].phase == FORWARD
        and source.meta[ORIGIN].block == 0
    ]  # fmt: skip
    assert len(set(crossing)) == 1


def test_checkpoints_leave_other_stages_alone():
    """What another stage of a pipeline made is not computed again for a checkpointed one."""
    from tremula.ir.recording import active

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x):
            recording = active()
            for number in range(2):
                if recording is not None:
                    recording.start_block(str(number), None)
                if number == 0:
                    x = self.layer(x)
                    mask = torch.sigmoid(x)
                x = torch.ops.tremula.checkpoint(torch.tanh(self.layer(x) * mask))
            return F.mse_loss(self.layer(x), torch.zeros_like(x))

    for stages, n_copies in (((0, 0), 1), ((0, 1), 0)):
        step = train_step(Masked(), passes=tile_passes(stages))
        copies = [
            node
            for node in step.graph.nodes
            if schema_name(node) == "aten::sigmoid" and node.meta[ORIGIN].phase == BACKWARD
            if any(ORIGIN in user.meta and user.meta[ORIGIN].block == 1 for user in node.users)
        ]
        assert len(copies) == n_copies


def test_checkpointed_stages_compute_nothing_a_third_time():
    """What norms leave for their gradient comes with the rest, or stays with a checkpoint."""
    from tremula.ir.recording import active

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
            self.norm = nn.LayerNorm(16)

        def forward(self, x):
            for number, layer in enumerate(self.layers):
                if number % 2 == 0 and active() is not None:
                    active().start_block(str(number), None)
                x = ops.checkpoint(self.norm(torch.tanh(layer(self.norm(x)))))
            return F.mse_loss(x, torch.zeros_like(x))

    step = train_step(Normed(), passes=tile_passes((0, 1), (0, 1)))
    layers = [
        n.meta[ORIGIN].block for n in step.graph.nodes
        if schema_name(n) == "aten::tanh" and n.meta[ORIGIN].phase == BACKWARD
    ]  # fmt: skip
    assert sorted(layers) == [0, 0, 1, 1]


def test_one_tensor_for_two_inputs():
    """A model called with the same tensor twice still has two inputs."""
    x = torch.ones(3)
    step = captured(lambda a, b: a - 2 * b, x, x)
    assert [slot.kind for slot in step.outputs] == ["output"]
    assert run_host(step, torch.full((3,), 5.0), x)[0].tolist() == [3, 3, 3]
