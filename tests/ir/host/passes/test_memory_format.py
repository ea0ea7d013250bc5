"""Images keep their memory format, and gradients of convolutions are what PyTorch computes."""

import pytest
import torch
from torch import fx, nn

from tests.ir.steps import captured, training_step
from tremula.ir.host.passes.memory_format import keep_contiguity, keep_memory_format, relax_strides
from tremula.ir.host.passes.substitute_kernels import plain_convolution_gradients
from tremula.ir.nodes import schema_name
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.step import INPUT, OUTPUT, CapturedStep, StepSlot

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("kernel", "padding"), [((3, 3), [1, 1]), ((2, 3), [0, 2]), ((1, 1), [0] * 2)]
)
def test_gradients_are_those_of_the_backward_kernel(kernel, padding):
    """Of the image and of the weight, for kernels with and without padding."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, 3, 6, 5, generator=generator)
    weight = torch.randn(4, 3, *kernel, generator=generator)
    gradient = torch.randn_like(torch.conv2d(image, weight, padding=padding))
    rest = ([0], [1, 1], padding, [1, 1], False, [0, 0], 1, [True, True, False])
    theirs = aten.convolution_backward.default(gradient, image, weight, *rest)
    ours = plain_convolution_gradients(gradient, image, weight, *rest)
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1])


def test_copies_that_only_change_the_order_are_dropped():
    """Keras's copies around a pooling and a convolution are removed; values do not change."""

    def pooled(pixels, weight):
        image = aten.clone.default(
            aten.permute.default(pixels, [0, 3, 1, 2]), memory_format=torch.contiguous_format
        )
        small = aten.max_pool2d_with_indices.default(image, [2, 2], [2, 2])[0]
        again = aten.clone.default(small, memory_format=torch.channels_last)
        matches = aten.convolution.default(
            again, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        )
        flat = aten.clone.default(
            aten.permute.default(matches, [0, 2, 3, 1]), memory_format=torch.contiguous_format
        )
        return aten._unsafe_view.default(flat, [2, 8])

    pixels, weight = torch.randn(2, 6, 6, 3), torch.randn(2, 3, 2, 2)
    graph = fx.experimental.proxy_tensor.make_fx(pooled)(pixels, weight).graph
    result = graph.output_node().args[0]
    graph.output_node().args = ([result],)
    slots = tuple(StepSlot(INPUT, i, f"input{i}") for i in range(2))
    step = CapturedStep(graph, {}, slots, (StepSlot(OUTPUT, 0, "out"),), ())
    before = step.module()(pixels, weight)[0]
    step = keep_memory_format(step)
    step.graph.lint()
    assert not [node for node in step.graph.nodes if node.target is aten.clone.default]
    torch.testing.assert_close(step.module()(pixels, weight)[0], before)


class Grouped(nn.Module):
    """A convolution, concatenated parts of its result, and a group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.norm(torch.cat([y, y[:, :4]], 1)).square().mean(dtype=torch.float32).reshape(1)


def test_kernels_behind_group_norms_get_contiguous_operands():
    """In channels-last a step gives the same, and its kernels read what PyTorch's callers pass."""
    torch.manual_seed(0)
    model, x = Grouped(), torch.randn(2, 3, 7, 7)
    loss = lambda x: nn.functional.mse_loss(model(x), torch.zeros(1))  # noqa: E731
    wrapped = nn.Module()
    wrapped.model, wrapped.forward = model, loss
    step = apply(training_step(wrapped, x), HOST_PASSES, "host")
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    expected = step.module().forward(*arguments)
    step = keep_contiguity(relax_strides(step))
    norms = [n for n in step.graph.nodes if "group_norm" in schema_name(n)]
    images = [o for n in norms for o in n.all_input_nodes if o.meta["val"].dim() == 4]
    assert len(norms) == 2
    assert all(image.target is aten.contiguous.default for image in images)
    last = [a.to(memory_format=torch.channels_last) if a.dim() == 4 else a for a in arguments]
    torch.testing.assert_close(step.module().forward(*last), expected, rtol=1e-4, atol=1e-5)


def test_kernels_that_view_their_operand_get_a_contiguous_one():
    """Channels of an image with rows and columns exchanged are shuffled on a GPU, too."""
    shuffle = lambda x: nn.functional.channel_shuffle(x.transpose(2, 3), 2)  # noqa: E731
    step = keep_contiguity(apply(captured(shuffle, torch.randn(2, 4, 3, 5)), HOST_PASSES, "host"))
    shuffles = [n for n in step.graph.nodes if "channel_shuffle" in schema_name(n)]
    assert [n.args[0].target for n in shuffles] == [aten.contiguous.default]
