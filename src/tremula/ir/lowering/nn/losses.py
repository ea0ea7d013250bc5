"""Lowerings of losses: negative log likelihood, one element picked per row, CTC and its decoder."""

from tremula.base.types import FLOAT, INT, UNSIGNED_INT
from tremula.ir.lowering.indexing.row_tables import check_indices
from tremula.ir.lowering.pointwise.map import narrow, wide
from tremula.ir.lowering.reductions import last_dim
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import operand
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popnn.ctc import inference as ctc_inference
from tremula.poplibs.popnn.ctc import loss as ctc
from tremula.poplibs.popops import Reduction
from tremula.poplibs.popops.elementwise.expr import Cast, Expr, PlaceHolder, _1, _2, _3, exp, select

_NONE, _MEAN = 0, 1  # as ATen numbers reductions; 2 is the sum
_NO_CLASS = -1  # a label that matches no class


class _Rows:
    """Log probabilities [rows, classes], and labels in which ignored ones are out of range."""

    def __init__(self, tiles: Tiles, x: Tensor, target: Tensor, ignored: int):
        self.tiles = tiles
        by_class = last_dim(x, 1 if x.rank > 1 else 0)  # classes last
        self.shape = by_class.shape
        n_classes = by_class.shape[-1]
        self.x = by_class.reshape([by_class.n_elems // max(n_classes, 1), n_classes])
        self.labels = tiles.cast(target, INT).flatten()
        check_indices(tiles, self.labels, n_classes, ignored=ignored)
        if 0 <= ignored < n_classes:
            self.labels = self.map(select(_NO_CLASS, _1, _1 == ignored), self.labels)

    def map(self, expr: Expr, *tensors: Tensor) -> Tensor:
        tiles = self.tiles
        return popops.map(tiles.graph, expr, list(tensors), tiles.sequence, tiles.name)

    def weights(self, weight: Tensor | None) -> Tensor:
        """The weight of each row: a float, 0 for an ignored one."""
        n_classes = self.x.shape[1]
        if weight is None:
            return self.map(Cast(_1 >= 0, FLOAT), self.labels)
        tiles = self.tiles
        table = tiles.cast(weight, FLOAT).reshape([n_classes, 1])
        places = self.map(select(0, _1, _1 < 0), self.labels).reinterpret(INT)
        result = popops.multi_slice(
            tiles.graph, table, places.reshape([places.n_elems, 1]), tiles.sequence,
            f"{tiles.name}/weights",
        )  # fmt: skip
        return self.map(select(0.0, _1, _2 < 0), result.flatten(), self.labels)


@lowers(
    "nll_loss_forward",
    "nll_loss2d_forward",
    calls="popops.select_scalar_from_rows, popops.reduce_many",
)
def nll_loss_forward(
    tiles: Tiles, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """The loss, and the sum of the weights of its rows."""
    rows = _Rows(tiles, x, target, ignored)
    picked = popops.select_scalar_from_rows(
        tiles.graph, rows.x, rows.labels, tiles.sequence, f"{tiles.name}/pick"
    )
    type = tiles.result_type(0)
    if reduction == _NONE:
        loss = _row_losses(rows, picked, weight)
        return tiles.cast(loss, type).reshape(list(tiles.result_shape(0))), tiles.constant(0, type)
    weights = rows.weights(weight)
    terms = _weighted(rows, picked, None if weight is None else weights)
    sums = [Reduction(t, [0], "ADD", out_type=FLOAT) for t in (terms, weights)]
    loss, total = popops.reduce_many(tiles.graph, sums, tiles.sequence, tiles.name)
    if reduction == _MEAN:
        loss = rows.map(_1 / _2, loss, total)
    return tiles.cast(loss, type).reshape([]), tiles.cast(total, tiles.result_type(1)).reshape([])


def _row_losses(rows: _Rows, picked: Tensor, weight: Tensor | None) -> Tensor:
    return _weighted(rows, picked, None if weight is None else rows.weights(weight))


def _weighted(rows: _Rows, picked: Tensor, weights: Tensor | None) -> Tensor:
    """-picked · weight; what an ignored row picked is 0 already."""
    value = -wide(_1, picked.type)
    if weights is None:
        return rows.map(value, picked)
    return rows.map(value * _2, picked, weights)


@lowers(
    "nll_loss_backward", "nll_loss2d_backward", calls="popops.encode_one_hot, popops.map_in_place"
)
def nll_loss_backward(  # noqa: PLR0917 - as ATen
    tiles: Tiles, gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor | None,
    reduction: int, ignored: int, total: Tensor,
) -> Tensor:  # fmt: skip
    """A one-hot row per label, times the row's weight."""
    rows = _Rows(tiles, x, target, ignored)
    result = tiles.graph.clone(rows.x, f"{tiles.name}/one_hot")
    popops.encode_one_hot(tiles.graph, rows.labels, result, tiles.sequence, f"{tiles.name}/one_hot")
    factor = _row_factor(rows, gradient, weight, reduction, total)
    scaled = narrow(wide(_1, result.type) * _2, result.type)
    column = factor.reshape([factor.n_elems, 1])
    popops.map_in_place(tiles.graph, scaled, [result, column], tiles.sequence, tiles.name)
    by_class = result.reshape(list(rows.shape))
    return by_class.dim_roll(by_class.rank - 1, 1) if by_class.rank > 1 else by_class


def _row_factor(
    rows: _Rows, gradient: Tensor, weight: Tensor | None, reduction: int, total: Tensor
) -> Tensor:
    """-gradient · weight, over the total weight for a mean; one number if rows are alike."""
    gradient = gradient.flatten()
    factor = -wide(_1, gradient.type)
    if reduction == _MEAN:
        share = factor / wide(_2, total.type)
        counted = rows.map(select(0.0, share, _2 == 0.0), gradient, total.reshape([1]))
    else:
        counted = rows.map(factor, gradient)
    return counted if weight is None else rows.map(_1 * _2, counted, rows.weights(weight))


# -- connectionist temporal classification ---------------------------------------------------------


@lowers("tremula::ctc_loss", calls="popnn.ctc")
def ctc_loss(
    tiles: Tiles, x: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor,
    blank: int, _zero_infinity: bool, is_differentiated: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Losses of a batch. The gradient comes with them and waits for the backward pass."""
    labels, of_inputs, of_labels = (
        tiles.cast(t, INT).reinterpret(UNSIGNED_INT)
        for t in (targets, input_lengths, target_lengths)
    )
    operands = (tiles.graph, x, labels, of_inputs, of_labels, tiles.sequence, tiles.name)
    tape = tiles.new((0,), x.type)
    if not is_differentiated:
        loss = ctc.calc_ctc_loss_log_probabilities(*operands, blank_class=blank, out_type=x.type)
        return loss, tape
    loss, gradient = ctc.calc_loss_and_gradient_log_probabilities(
        *operands, blank_class=blank, out_type=x.type
    )
    tiles.shared["ctc", tiles.node.name] = gradient
    return loss, tape


@lowers("tremula::ctc_loss_backward", calls="popops.reduce, popops.map")
def ctc_loss_backward(
    tiles: Tiles, gradient: Tensor, _tape: Tensor, _loss: Tensor, x: Tensor, *_operands: object
) -> Tensor:
    """As PyTorch gives it: with the part of the log-softmax that made x.

    Labels that no path can give have a gradient of 0.
    """
    result = tiles.shared["ctc", operand(operand(tiles.node, 1)).name]
    total = popops.reduce(
        tiles.graph, result, [2], "ADD", tiles.sequence, f"{tiles.name}/total", out_type=FLOAT
    )
    own = wide(_1, x.type) - exp(wide(_2, x.type)) * _3
    expr = narrow(own * wide(PlaceHolder(4), gradient.type), x.type)
    operands = [result, x, total.expand([2]), gradient.reshape([1, gradient.n_elems, 1])]
    return popops.map(tiles.graph, expr, operands, tiles.sequence, tiles.name)


@lowers(
    "tremula::ctc_beam_search", calls="popnn.ctc_inference.beam_search_decoder_log_probabilities"
)
def ctc_beam_search(
    tiles: Tiles, log_probs: Tensor, lengths: Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[Tensor, ...]:
    result = ctc_inference.beam_search_decoder_log_probabilities(
        tiles.graph, log_probs, tiles.cast(lengths, UNSIGNED_INT), tiles.sequence, tiles.name,
        blank_class=blank, beam_width=beam_width, top_paths=top_paths,
    )  # fmt: skip
    return tuple(tiles.cast(tensor, tiles.result_type(i)) for i, tensor in enumerate(result))
