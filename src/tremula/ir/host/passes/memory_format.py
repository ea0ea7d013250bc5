"""Strides and memory formats: what convolutions and products read fastest, without copies.

Keras keeps the channels of a pixel contiguous, which PyTorch's kernels like, and yet copies into
the other order before a pooling and back before a convolution.
"""

import torch
from torch import Tensor, fx

from tremula.ir.nodes import operand, schema_name
from tremula.ir.step import PARAMETER, CapturedStep

aten = torch.ops.aten
IMAGE_RANK = 4
_VIEWS = (aten.view.default, aten._unsafe_view.default)


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one piece of memory, in whatever order."""
    if tensor.is_contiguous():
        return True
    n_before = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != n_before:
            return False
        n_before *= size
    return True


# -- weights ---------------------------------------------------------------------------------------


def image_format(step: CapturedStep, device: torch.device) -> torch.memory_format:
    """The format of weights and states with the rank of an image; operations propagate it."""
    has_images = any(
        node.target is aten.convolution.default and node.meta["val"].dim() == IMAGE_RANK
        for node in step.graph.nodes
    )
    is_on_gpu = device.type == "cuda"
    return torch.channels_last if has_images and is_on_gpu else torch.preserve_format


def device_copy(value: Tensor, device: torch.device, images: torch.memory_format) -> Tensor:
    """A copy on a device, in the format of images if it may be one."""
    is_image = value.dim() == IMAGE_RANK
    form = images if is_image else torch.preserve_format
    return value.detach().to(device, copy=True, memory_format=form)


# The argument that is the weight in a product of matrices.
_WEIGHT_POSITION = {aten.mm.default: 1, aten.addmm.default: 2}


def column_major_weights(step: CapturedStep, device: torch.device) -> frozenset[int]:
    """Weights that are read fastest column by column, by their index among the parameters.

    A product of one row is a dot product for each column: a CPU that reads contiguous columns is
    twice as fast as one that adds up rows. Steps that generate word by word consist of little else.
    """
    if device.type != "cpu" or step.rule is not None:
        return frozenset()
    nodes = [node for node in step.graph.nodes if node.op == "placeholder"]
    return frozenset(
        slot.index
        for position, slot in step.of_kind(PARAMETER)
        if nodes[position].users
        and all(_is_row_product(u, nodes[position]) for u in nodes[position].users)
    )


def _is_row_product(user: torch.fx.Node, weight: torch.fx.Node) -> bool:
    position = _WEIGHT_POSITION.get(user.target)  # pyright: ignore[reportArgumentType]
    if position is None or user.args[position] is not weight:
        return False
    return user.meta["val"].shape[0] == 1 and weight not in user.args[:position]


def to_column_major(value: Tensor) -> Tensor:
    """A matrix whose columns are contiguous."""
    return value.t().contiguous().t()


# -- passes ----------------------------------------------------------------------------------------


def relax_strides(step: CapturedStep) -> CapturedStep:
    """Where strides differ from those that were recorded, `view` may be impossible: reshape."""
    for node in step.graph.nodes:
        if node.target in _VIEWS:
            node.target = aten.reshape.default
    return step


# Kernels whose callers make their operands contiguous. A step records the kernel alone, with
# operands that were contiguous then. Those that take any order of memory are not listed.
_INTERNAL = ("aten::native_", "aten::_")
_TAKES_ANY_ORDER = (
    "native_batch_norm", "_native_batch_norm", "_batch_norm", "native_layer_norm",
    "native_dropout", "_adaptive_avg_pool", "_upsample", "_to_copy", "_softmax", "_log_softmax",
    "_unsafe_view", "_reshape_alias", "_safe_softmax", "_unsafe_index", "_conj", "_fft",
)  # fmt: skip

# Kernels that view their operand, which fails for rows and columns exchanged, in PyTorch as well.
_VIEWS_OPERAND = {"aten::channel_shuffle", "aten::native_channel_shuffle"}


def keep_contiguity(step: CapturedStep) -> CapturedStep:
    """Make operands contiguous again for kernels that need it; a copy only where they are not."""
    contiguous: dict[fx.Node, fx.Node] = {}
    for node in list(step.graph.nodes):
        views = schema_name(node) in _VIEWS_OPERAND
        if not views and not _needs_contiguity(node):
            continue
        for source in node.all_input_nodes:
            value = source.meta.get("val")
            is_matrix = isinstance(value, Tensor) and value.dim() > 1
            if is_matrix and (views or value.is_contiguous()):
                if source not in contiguous:
                    contiguous[source] = _made_contiguous(step.graph, source)
                node.replace_input_with(source, contiguous[source])
    return step


def _needs_contiguity(node: fx.Node) -> bool:
    name = schema_name(node)
    if node.op != "call_function" or not name.startswith(_INTERNAL):
        return False
    return not name.removeprefix("aten::").startswith(_TAKES_ANY_ORDER)


def _made_contiguous(graph: fx.Graph, source: fx.Node) -> fx.Node:
    with graph.inserting_after(source):
        made = graph.call_function(aten.contiguous.default, (source,))
    made.meta.update(source.meta)
    return made


# These read their first operands in any memory format, and propagate it.
_READS_ANY_ORDER = {
    "aten::convolution",
    "aten::convolution_backward",
    "aten::max_pool2d_with_indices",
    "aten::max_pool2d_with_indices_backward",
    "aten::avg_pool2d",
    "aten::avg_pool2d_backward",
}
_CONVOLUTIONS = {"aten::convolution", "aten::convolution_backward"}
_READS_STRIDES = {"aten::as_strided", "aten::new_empty_strided", "aten::empty_strided"}


def keep_memory_format(step: CapturedStep) -> CapturedStep:
    """Drop copies of images into another memory format, where kernels take either."""
    nodes = list(step.graph.nodes)
    if any(schema_name(node) in _READS_STRIDES for node in nodes):
        return step
    copies = [node for node in nodes if _is_reordered_image(node)]
    for node in copies:
        source = operand(node)
        while _is_reordered_image(source):
            source = operand(source)
        if _is_channels_last(source) and not _users(node) <= _CONVOLUTIONS:
            node.replace_all_uses_with(source)
        else:  # at run time a copy only if the format differs
            node.target, node.args = aten.contiguous.default, (source,)
    for node in reversed(copies):
        if not node.users:
            step.graph.erase_node(node)
    return _with_relaxed_views(step) if copies else step


def _is_reordered_image(node: fx.Node) -> bool:
    """A copy for the sake of its format, read only by operations that take any."""
    if node.target is not aten.clone.default or node.meta["val"].dim() != IMAGE_RANK:
        return False
    has_order = node.kwargs.get("memory_format") in (torch.contiguous_format, torch.channels_last)
    readers = [user for user in node.users if not _is_copy(user)]
    return has_order and all(schema_name(user) in _READS_ANY_ORDER for user in readers)


def _is_copy(node: fx.Node) -> bool:
    return node.target is aten.clone.default and "memory_format" in node.kwargs


def _users(node: fx.Node) -> set[str]:
    return {schema_name(user) for user in node.users}


def _is_channels_last(node: fx.Node) -> bool:
    return node.meta["val"].is_contiguous(memory_format=torch.channels_last)


def _with_relaxed_views(step: CapturedStep) -> CapturedStep:
    """Views become reshapes, which may copy: strides are no longer those that were recorded."""
    for node in list(step.graph.nodes):
        if node.target not in _VIEWS:
            continue
        node.target = aten.reshape.default
        source = operand(node)
        if _is_copy(source) and len(source.users) == 1:  # made for this view alone
            node.args = (operand(source), *node.args[1:])
            step.graph.erase_node(source)
    return step
