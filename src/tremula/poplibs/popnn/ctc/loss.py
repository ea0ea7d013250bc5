"""Connectionist temporal classification: the loss of unaligned labels, and its gradient.

Data is [n_steps, n_batches, n_classes]. Time is cut into parts, each on its own tile: while one
tile counts paths forwards in the first part, another counts them backwards in the last.
"""

from collections.abc import Iterator

import numpy as np

from tremula.base.types import FLOAT, HALF, UNSIGNED_INT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popnn.ctc.build import (
    add_by_part,
    add_gradient,
    add_loss,
    add_sweeps,
    check_ctc_type,
    check_data,
    checked_call,
    plan,
)
from tremula.poplibs.popnn.ctc.codelets import (
    ctc_alpha_codelet,
    ctc_beta_codelet,
    ctc_gradient_codelet,
    ctc_loss_codelet,
)
from tremula.poplibs.popnn.softmax import log_softmax
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.expr import Cast, _1, _2, _3, exp
from tremula.poplibs.registry import ErrorCase, Op, Sample, register


def create_data_input(
    graph: Graph, type: Type | str, n_steps: int, n_batches: int, n_classes: int, name: str = ""
) -> Tensor:
    """Data [n_steps, n_batches, n_classes], each part of time where the loss works on it."""
    layout = plan(graph, n_steps, n_batches)
    return add_by_part(graph, as_type(type), layout, n_classes, name or "data").dim_shuffle(
        [1, 0, 2]
    )


def create_labels_input(
    graph: Graph, n_batches: int, n_labels: int, name: str = ""
) -> Tensor:  # fmt: skip
    """Labels [n_batches, n_labels], spread over the tiles."""
    shape = [n_batches, n_labels]
    return graph.add_variable(UNSIGNED_INT, shape, name or "labels", mapping="linear")


def calc_loss_and_gradient_log_probabilities(
    graph: Graph,
    log_probabilities: Tensor,
    labels: Tensor,
    data_lengths: Tensor,
    label_lengths: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    blank_class: int = 0,
    out_type: Type | str | None = None,
) -> tuple[Tensor, Tensor]:
    """(loss [n_batches], its gradient for every log probability).

    Labels are unsigned [n_batches, n_labels]; the lengths, [n_batches], say how many steps and
    labels of each sequence count. Labels that no path can give have an infinite loss, no gradient.
    """
    out = _checked_type(out_type)
    tensors = (log_probabilities, labels, data_lengths, label_lengths)
    call = checked_call(graph, tensors, blank_class, sequence, name or "ctcLoss")
    alpha, beta = add_sweeps(call, has_beta=True)
    loss = add_loss(call, alpha)
    gradient = add_gradient(call, alpha, beta, loss, out)
    return _as_type(graph, loss, out, sequence), gradient.dim_shuffle([1, 0, 2])


def calc_ctc_loss_log_probabilities(
    graph: Graph,
    log_probabilities: Tensor,
    labels: Tensor,
    data_lengths: Tensor,
    label_lengths: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    blank_class: int = 0,
    out_type: Type | str | None = None,
) -> Tensor:
    """The loss [n_batches] alone."""
    out = _checked_type(out_type)
    tensors = (log_probabilities, labels, data_lengths, label_lengths)
    call = checked_call(graph, tensors, blank_class, sequence, name or "ctcLoss")
    alpha, _ = add_sweeps(call, has_beta=False)
    return _as_type(graph, add_loss(call, alpha), out, sequence)


def _checked_type(out_type: Type | str | None) -> Type:
    out = FLOAT if out_type is None else as_type(out_type)
    check_ctc_type(out)
    return out


def _as_type(graph: Graph, tensor: Tensor, type: Type, sequence: Sequence) -> Tensor:
    return tensor if type is tensor.type else popops.cast(graph, tensor, type, sequence)


def calc_loss_and_gradient_logits(
    graph: Graph,
    logits: Tensor,
    labels: Tensor,
    data_lengths: Tensor,
    label_lengths: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    blank_class: int = 0,
    out_type: Type | str | None = None,
) -> tuple[Tensor, Tensor]:
    """(loss, its gradient for the values before a log-softmax over the classes).

    Steps beyond a sequence's length have no gradient.
    """
    name = name or "ctcLoss"
    check_data(logits, labels, blank_class)
    log_probabilities = log_softmax(graph, logits, sequence, f"{name}/logSoftmax")
    loss, gradient = calc_loss_and_gradient_log_probabilities(
        graph, log_probabilities, labels, data_lengths, label_lengths, sequence, name,
        blank_class=blank_class, out_type=out_type,
    )  # fmt: skip
    # The log-softmax's own gradient: g - p·Σg; Σg is -1, or 0 where there is no gradient.
    total = popops.reduce(graph, gradient, [2], "ADD", sequence, f"{name}/total", out_type=FLOAT)
    result = Cast(_1, FLOAT) - exp(Cast(_2, FLOAT)) * _3
    operands = [gradient, log_probabilities, total.expand([2])]
    popops.map_in_place(graph, Cast(result, gradient.type), operands, sequence, f"{name}/gradient")
    return loss, gradient


# -- registry --------------------------------------------------------------------------------------

_CASES = (  # (n_steps, n_classes, data lengths, label lengths, blank class)
    (1, 2, (1,), (1,), 0),
    (5, 4, (5, 3), (2, 1), 0),
    (6, 3, (6, 0, 4), (3, 0, 0), 2),  # an empty sequence, and one without labels
    (4, 3, (4, 2), (2, 2), 1),
    (70, 5, (70, 41), (4, 7), 0),  # several parts of time
)


def log_softmax_in_numpy(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for n_steps, n_classes, data_lengths, label_lengths, blank in _CASES:
        n_batches = len(data_lengths)
        logits = rng.standard_normal((n_steps, n_batches, n_classes))
        data = log_softmax_in_numpy(logits)
        labels = rng.integers(0, n_classes - 1, (n_batches, max(label_lengths)))
        labels = (labels + (labels >= blank)).astype(np.uint32)  # anything but the blank
        lengths = (np.array(data_lengths, np.uint32), np.array(label_lengths, np.uint32))
        options = {"blank_class": blank} if blank else {}
        yield Sample((data.astype(type.dtype), labels, *lengths), options)
    impossible = np.full((2, 1, 3), np.log(1 / 3), type.dtype)
    lengths = (np.array([2], np.uint32), np.array([2], np.uint32))
    yield Sample((impossible, np.ones((1, 2), np.uint32), *lengths))  # a a needs a blank between


def _log_add(*values: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(np.stack(values))


def _sequence_reference(
    data: np.ndarray, labels: np.ndarray, blank: int
) -> tuple[float, np.ndarray]:
    """(loss, gradient) of one sequence [n_steps, n_classes] in float64."""
    places = np.full(2 * len(labels) + 1, blank)
    places[1::2] = labels
    skips = np.zeros(len(places), bool)
    skips[3::2] = labels[1:] != labels[:-1]
    alpha = np.full((len(data) + 1, len(places)), -np.inf)
    alpha[0, 0] = 0
    for t, row in enumerate(data):
        one = np.concatenate(([-np.inf], alpha[t, :-1]))
        two = np.where(skips, np.concatenate(([-np.inf] * 2, alpha[t]))[: len(places)], -np.inf)
        alpha[t + 1] = _log_add(alpha[t], one, two) + row[places]
    beta = np.full((len(data) + 1, len(places)), -np.inf)
    beta[-1, -1] = 0
    for t, row in reversed(list(enumerate(data))):
        one = np.concatenate((beta[t + 1, 1:], [-np.inf]))
        two = np.concatenate((np.where(skips, beta[t + 1], -np.inf), [-np.inf] * 2))[2:]
        beta[t] = _log_add(beta[t + 1], one, two) + row[places]
    loss = -np.logaddexp.reduce(alpha[-1, -2:] if len(labels) else alpha[-1])
    gradient = np.zeros(data.shape)
    if np.isfinite(loss):
        share = np.exp(alpha[1:] + beta[:-1] - data[:, places] + loss)
        for index, column in enumerate(places.tolist()):
            gradient[:, column] -= share[:, index]
    return float(loss), gradient


def _reference(
    data: np.ndarray,
    labels: np.ndarray,
    data_lengths: np.ndarray,
    label_lengths: np.ndarray,
    *,
    blank_class: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    losses = np.zeros(data.shape[1], np.float32)
    gradient = np.zeros(data.shape, np.float32)
    for b, (n_steps, n_labels) in enumerate(zip(data_lengths, label_lengths, strict=True)):
        part = data[:n_steps, b].astype(np.float64)
        with np.errstate(invalid="ignore"):
            losses[b], gradient[:n_steps, b] = _sequence_reference(
                part, labels[b, :n_labels].astype(np.int64), blank_class
            )
    return losses, gradient


def _loss_reference(*arrays: np.ndarray, **options: int) -> np.ndarray:
    return _reference(*arrays, **options)[0]


def _logits_reference(
    logits: np.ndarray, *arrays: np.ndarray, **options: int
) -> tuple[np.ndarray, np.ndarray]:
    data = log_softmax_in_numpy(logits.astype(np.float64))
    loss, gradient = _reference(data, *arrays, **options)
    return loss, (gradient - np.exp(data) * gradient.sum(-1, keepdims=True)).astype(np.float32)


_DATA = np.zeros((3, 2, 4), np.float32)
_LABELS, _LENGTHS = np.ones((2, 2), np.uint32), np.ones(2, np.uint32)
_ERRORS = (
    ErrorCase(Sample((_DATA[0], _LABELS, _LENGTHS, _LENGTHS)), "CTC expected data of shape"),
    ErrorCase(Sample((_DATA, _LABELS[:1], _LENGTHS, _LENGTHS)), "got [3, 2, 4] and [1, 2]"),
    ErrorCase(
        Sample((_DATA, _LABELS, _LENGTHS, _LENGTHS), {"blank_class": 4}), "there are 4 classes"
    ),
    ErrorCase(
        Sample((_DATA, _LABELS, _LENGTHS[:1], _LENGTHS)), "data_lengths must be unsigned int [2]"
    ),
    ErrorCase(
        Sample((_DATA.astype(np.int32), _LABELS, _LENGTHS, _LENGTHS)), "works on float and half"
    ),
    ErrorCase(
        Sample((_DATA, _LABELS.astype(np.int32), _LENGTHS, _LENGTHS)), "labels must be unsigned int"
    ),
)
_SWEEPS = (ctc_alpha_codelet, ctc_beta_codelet, ctc_loss_codelet, ctc_gradient_codelet)
_TOLERANCE = {"FLOAT": 1e-4, "HALF": 5e-3}

register(
    Op(
        name="popnn.ctc.calc_loss_and_gradient_log_probabilities",
        function=calc_loss_and_gradient_log_probabilities,
        about="The CTC loss of label sequences, and its gradient for the log probabilities.",
        types=(FLOAT, HALF),
        samples=_samples,
        reference=_reference,
        codelets=_SWEEPS,
        errors=_ERRORS,
        tolerance=_TOLERANCE,
    )
)
register(
    Op(
        name="popnn.ctc.calc_ctc_loss_log_probabilities",
        function=calc_ctc_loss_log_probabilities,
        about="The CTC loss of label sequences, from log probabilities.",
        types=(FLOAT, HALF),
        samples=_samples,
        reference=_loss_reference,
        codelets=(ctc_alpha_codelet, ctc_loss_codelet),
        errors=_ERRORS,
        tolerance=_TOLERANCE,
    )
)
register(
    Op(
        name="popnn.ctc.calc_loss_and_gradient_logits",
        function=calc_loss_and_gradient_logits,
        about="The CTC loss of label sequences after a log-softmax, and its gradient.",
        types=(FLOAT, HALF),
        samples=_samples,
        reference=_logits_reference,
        codelets=(*_SWEEPS, element_codelet),
        errors=_ERRORS[:3],
        tolerance=_TOLERANCE,
    )
)
