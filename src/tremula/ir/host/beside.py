"""Gradients of convolutions' weights on a stream of their own, beside the rest of a compiled step.

Inductor's code is one launch after the other, and late layers of an image network fill half a GPU:
nothing but the optimiser waits for the gradients of weights, so they run meanwhile. A convolution's
backward pass becomes an operation that gives the gradient of the image and a *token*; one at the
end takes the tokens, waits for the other stream and gives the gradients of all weights. Inductor
sees none of them before, so it cannot read one too early. What the other stream reads is kept until
then, and Inductor must not write over it (`CHOICES`).
"""

import operator
import threading
from collections.abc import Sequence

import torch
from torch import Tensor, fx

from tremula.ir.nodes import operand
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
CHOICES = {"allow_buffer_reuse": False, "inplace_buffers": False}  # of Inductor
_OF_IMAGE, _OF_WEIGHT = [True, False, False], [False, True, False]  # gradients that are wanted
_BOTH = [True, True, False]
_N_WANTED = 10  # the operand that says so
_FEWEST = 4  # convolutions that are worth two streams


def is_worthwhile(step: CapturedStep) -> bool:
    return sum(_has_both(node) for node in step.graph.nodes) >= _FEWEST


def take_weight_gradients_beside(step: CapturedStep) -> CapturedStep:
    """Let backward passes of convolutions use both streams; they meet before the results."""
    graph, tokens, weights, readers = step.graph, [], [], []
    for place, node in enumerate([node for node in graph.nodes if _has_both(node)]):
        gradient, image, weight, _, *how, _ = node.args
        node.target = torch.ops.tremula.image_gradient_beside.default
        node.args = (gradient, image, weight, *how, place)
        token = _item(node, 1)
        readers.append((token, token.meta["val"]))
        token.meta["val"] = token.meta["val"].new_empty(1)
        node.meta["val"] = (node.meta["val"][0], token.meta["val"])
        tokens.append(token)
        weights.append(operand(node, 2))
    end = graph.output_node()
    with graph.inserting_before(end):
        all_of_them = torch.ops.tremula.weight_gradients.default
        made = graph.call_function(all_of_them, (tokens, weights))
        made.meta["val"] = [value for _, value in readers]
        for place, (token, value) in enumerate(readers):
            item = graph.call_function(operator.getitem, (made, place))
            item.meta["val"] = value
            end.replace_input_with(token, item)
    return step


def _has_both(node: fx.Node) -> bool:
    """Whether a convolution's image and weight have gradients, the latter as a result only."""
    if node.target is not aten.convolution_backward.default:
        return False
    if list(node.args[_N_WANTED]) != _BOTH:  # pyright: ignore[reportArgumentType, reportCallIssue]
        return False
    items = [u for u in node.users if u.target is operator.getitem and u.args[1] == 1]
    return len(items) == 1 and all(user.op == "output" for user in items[0].users)


def _item(node: fx.Node, place: int) -> fx.Node:
    return next(u for u in node.users if u.target is operator.getitem and u.args[1] == place)


# -- the operations --------------------------------------------------------------------------------


class _Aside(threading.local):
    """The second stream of a thread, what it still reads, and what it has computed."""

    def __init__(self) -> None:
        self.streams: dict[torch.device, torch.cuda.Stream] = {}
        self.kept: list[Tensor] = []
        self.found: dict[int, Tensor] = {}

    def stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self.streams:
            self.streams[device] = torch.cuda.Stream(device)
        return self.streams[device]


_aside = _Aside()
_library = torch.library.Library("tremula", "FRAGMENT")
_library.define(
    "image_gradient_beside(Tensor gradient, Tensor image, Tensor weight, SymInt[] stride, "
    "SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, "
    "SymInt groups, int place) -> (Tensor, Tensor)",
    tags=(torch.Tag.flexible_layout,),
)
_library.define("weight_gradients(Tensor[] tokens, Tensor[] weights) -> Tensor[]")


def _image_gradient(gradient: Tensor, *given: object) -> tuple[Tensor, Tensor]:
    image, weight, *how, place = given
    operands = (gradient, image, weight, None, *how)
    _aside.found[place] = _weight_gradient(*operands)
    return aten.convolution_backward.default(*operands, _OF_IMAGE)[0], gradient.new_empty(1)


def _weight_gradient(gradient: Tensor, image: Tensor, weight: Tensor, *how: object) -> Tensor:
    """As the weight lies in memory, which is what Inductor was told."""
    found = aten.convolution_backward.default(gradient, image, weight, *how, _OF_WEIGHT)[1]
    if found.stride() == weight.stride():
        return found
    return torch.empty_like(weight).copy_(found)


def _image_gradient_on_gpu(gradient: Tensor, *given: object) -> tuple[Tensor, Tensor]:
    image, weight, *how, place = given
    operands = (gradient, image, weight, None, *how)
    stream = _aside.stream(gradient.device)
    stream.wait_stream(torch.cuda.current_stream(gradient.device))
    with torch.cuda.stream(stream):
        _aside.found[place] = _weight_gradient(*operands)
    _aside.kept += [gradient, image]
    return aten.convolution_backward.default(*operands, _OF_IMAGE)[0], gradient.new_empty(1)


def _fake_image_gradient(gradient: Tensor, *given: object) -> tuple[Tensor, Tensor]:
    operands = (gradient, *given[:2], None, *given[2:-1])
    return aten.convolution_backward.default(*operands, _OF_IMAGE)[0], gradient.new_empty(1)


def _weight_gradients(tokens: Sequence[Tensor], _weights: Sequence[Tensor]) -> list[Tensor]:
    return [_aside.found.pop(place) for place in range(len(tokens))]


def _weight_gradients_on_gpu(tokens: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    device = tokens[0].device
    torch.cuda.current_stream(device).wait_stream(_aside.stream(device))
    _aside.kept.clear()
    return _weight_gradients(tokens, weights)


def _fake_weight_gradients(_tokens: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    return [torch.empty_like(weight) for weight in weights]


_library.impl("image_gradient_beside", _image_gradient, "CPU")
_library.impl("image_gradient_beside", _image_gradient_on_gpu, "CUDA")
_library.impl("weight_gradients", _weight_gradients, "CPU")
_library.impl("weight_gradients", _weight_gradients_on_gpu, "CUDA")
torch.library.register_fake("tremula::image_gradient_beside", _fake_image_gradient, lib=_library)
torch.library.register_fake("tremula::weight_gradients", _fake_weight_gradients, lib=_library)
