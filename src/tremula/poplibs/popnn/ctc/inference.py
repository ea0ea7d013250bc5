"""CTC inference: the likeliest label sequences, by a beam search over their prefixes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.popnn.ctc.beam_codelets import (
    BEAM_WORDS,
    NO_CLASS,
    PREFIX_WORDS,
    beam_step_codelet,
    beam_trace_codelet,
)
from tremula.poplibs.popnn.ctc.build import (
    CtcPlan,
    add_by_part,
    check_ctc_type,
    check_lengths,
    plan,
)
from tremula.poplibs.popnn.ctc.codelets import LOG_ZERO
from tremula.poplibs.popnn.ctc.loss import log_softmax_in_numpy
from tremula.poplibs.popnn.softmax import log_softmax
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register


class _Beam(NamedTuple):
    """The tensors of a search."""

    words: Tensor  # [n_batches, 6·width + 3]
    scores: Tensor  # [n_batches, 4·width + 2]
    parent: Tensor  # [n_batches, n_steps, width]
    added: Tensor


def beam_search_decoder_log_probabilities(
    graph: Graph,
    log_probabilities: Tensor,
    data_lengths: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    blank_class: int = 0,
    beam_width: int = 16,
    top_paths: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """(log probabilities, numbers of labels, labels) of the likeliest label sequences, best first.

    Of shapes [n_batches, top_paths], twice, and [n_batches, top_paths, n_steps]; labels beyond
    their number are the blank class, and paths that do not exist have probability 0. Data is
    [n_steps, n_batches, n_classes].
    """
    name = name or "ctcInference"
    _check(log_probabilities, data_lengths, blank_class, beam_width, top_paths)
    n_steps, n_batches, _ = log_probabilities.shape
    layout = plan(graph, n_steps, n_batches)
    beam = _add_beam(graph, layout, beam_width, sequence, name)
    data = log_probabilities.dim_shuffle([1, 0, 2])
    if n_batches:
        for part in range(layout.n_parts):
            _add_part(graph, layout, part, data, data_lengths, beam, blank_class, sequence, name)
    return _add_traces(graph, layout, beam, top_paths, blank_class, sequence, name)


def beam_search_decoder_logits(
    graph: Graph,
    logits: Tensor,
    data_lengths: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    blank_class: int = 0,
    beam_width: int = 16,
    top_paths: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Beam search on values before a log-softmax over the classes."""
    _check(logits, data_lengths, blank_class, beam_width, top_paths)
    log_probabilities = log_softmax(graph, logits, sequence, f"{name or 'ctcInference'}/logSoftmax")
    return beam_search_decoder_log_probabilities(
        graph, log_probabilities, data_lengths, sequence, name,
        blank_class=blank_class, beam_width=beam_width, top_paths=top_paths,
    )  # fmt: skip


def _check(data: Tensor, lengths: Tensor, blank: int, width: int, n_paths: int) -> None:
    check_ctc_type(data.type)
    if data.rank != 3 or not data.shape[0] or not 0 <= blank < data.shape[2]:
        raise PoplibsError(
            "CTC inference expected data of shape [n_steps, n_batches, n_classes], a step or more, "
            f"and blank class {blank} among the classes, got {list(data.shape)}.",
            source=user_source(),
            hint="put time first, classes last, and count classes from 0",
        )
    check_lengths(lengths, data.shape[1], "data_lengths")
    if not 1 <= n_paths <= width:
        raise PoplibsError(
            f"CTC inference got top_paths {n_paths} and beam_width {width}.",
            source=user_source(),
            hint="ask for 1 path or more, and at most as many as the beam has",
        )


def _add_beam(graph: Graph, layout: CtcPlan, width: int, sequence: Sequence, name: str) -> _Beam:
    """The tensors of a search, holding the empty prefix alone."""
    words = np.full(BEAM_WORDS * width + PREFIX_WORDS, NO_CLASS, np.uint32)
    words[[width, 2 * width]] = 1  # hashes of the empty prefix; NO_CLASS is none
    scores = np.full(4 * width + 2, LOG_ZERO, np.float32)
    scores[0] = 0
    made = [
        _per_batch(graph, layout, values, sequence, f"{name}/beam") for values in (words, scores)
    ]
    history = [
        add_by_part(graph, UNSIGNED_INT, layout, width, f"{name}/{what}")
        for what in ("parent", "added")
    ]
    return _Beam(*made, *history)


def _per_batch(
    graph: Graph, layout: CtcPlan, values: np.ndarray, sequence: Sequence, name: str
) -> Tensor:
    """A copy of the values for each sequence, on the tile of its first part."""
    type = UNSIGNED_INT if values.dtype == np.uint32 else FLOAT
    variable = graph.add_variable(type, [layout.n_batches, len(values)], name)
    batch, n = np.arange(layout.n_batches), len(values)
    tiles = layout.tiles(batch, 0)
    graph.set_tile_mapping(variable, TileMapping(batch * n, (batch + 1) * n, tiles, layout.n_tiles))
    first = graph.add_constant(type, [1, n], values, f"{name}/first")
    if layout.n_batches:
        sequence.add(Copy(first.broadcast(layout.n_batches), variable))
    return variable


def _add_part(  # noqa: PLR0917 - a step of one function, taken out of it
    graph: Graph, layout: CtcPlan, part: int, data: Tensor, lengths: Tensor, beam: _Beam,
    blank: int, sequence: Sequence, name: str,
) -> None:  # fmt: skip
    batch = np.arange(layout.n_batches)
    begin = batch * layout.n_steps + layout.cut(part)
    end = batch * layout.n_steps + layout.cut(part + 1)
    width, n_classes = beam.parent.shape[2], data.shape[2]
    run_vertices(
        graph,
        beam_step_codelet(data.type),
        {
            "probabilities": Slices(data, begin * n_classes, end * n_classes),
            "data_length": lengths,
            "words": beam.words,
            "scores": beam.scores,
            "parent": Slices(beam.parent, begin * width, end * width),
            "added": Slices(beam.added, begin * width, end * width),
            "first_step": int(layout.cut(part)),
            "n_classes": n_classes,
            "blank": blank,
        },
        layout.tiles(batch, part),
        sequence,
        f"{name}/steps",
    )


def _add_traces(
    graph: Graph, layout: CtcPlan, beam: _Beam, n_paths: int, blank: int, sequence: Sequence,
    name: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """One vertex per requested path."""
    n_batches, n_steps = layout.n_batches, layout.n_steps
    batch, path = np.divmod(np.arange(n_batches * n_paths), n_paths)
    tiles = np.arange(len(batch)) % layout.n_tiles
    results = []
    for what, type, n in (
        ("probability", FLOAT, 1), ("count", UNSIGNED_INT, 1), ("labels", UNSIGNED_INT, n_steps),
    ):  # fmt: skip
        variable = graph.add_variable(type, [len(batch), n], f"{name}/{what}")
        rows = np.arange(len(batch)) * n
        graph.set_tile_mapping(variable, TileMapping(rows, rows + n, tiles, layout.n_tiles))
        results.append(variable)
    probability, count, labels = results
    if len(batch):
        n = n_steps * beam.parent.shape[2]
        n_scores = beam.scores.shape[1]
        fields = {
            "parent": Slices(beam.parent, batch * n, (batch + 1) * n),
            "added": Slices(beam.added, batch * n, (batch + 1) * n),
            "scores": Slices(beam.scores, batch * n_scores, (batch + 1) * n_scores),
            "probability": probability.flatten(),
            "n_labels": count.flatten(),
            "labels": labels,
            "path": path,
            "blank": blank,
        }
        run_vertices(graph, beam_trace_codelet(), fields, tiles, sequence, f"{name}/trace")
    shape = (n_batches, n_paths)
    return probability.reshape(shape), count.reshape(shape), labels.reshape((*shape, n_steps))


# -- registry --------------------------------------------------------------------------------------

_CASES = (  # (n_steps, n_classes, data lengths, options)
    (1, 2, (1,), {}),
    (6, 4, (6, 3, 0), {"blank_class": 3, "beam_width": 4, "top_paths": 2}),
    (9, 3, (9, 8), {"beam_width": 1}),
    (12, 5, (12, 11), {"blank_class": 2, "beam_width": 6, "top_paths": 6}),
    (66, 4, (66, 50), {"beam_width": 8, "top_paths": 3}),  # several parts of time
)


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for n_steps, n_classes, lengths, options in _CASES:
        logits = 2 * rng.standard_normal((n_steps, len(lengths), n_classes))
        data = log_softmax_in_numpy(logits)
        yield Sample((data.astype(type.dtype), np.array(lengths, np.uint32)), options)


Scores = dict[tuple[int, ...], list[float]]  # prefix -> log of paths with and without a last blank


def _step_reference(beam: Scores, row: np.ndarray, blank: int, width: int) -> Scores:
    result: Scores = {}

    def add(prefix: tuple[int, ...], which: int, score: float) -> None:
        scores = result.setdefault(prefix, [-np.inf, -np.inf])
        scores[which] = float(np.logaddexp(scores[which], score))

    for prefix, (with_blank, without) in beam.items():
        total = float(np.logaddexp(with_blank, without))
        add(prefix, 0, total + row[blank])
        if prefix:
            add(prefix, 1, without + row[prefix[-1]])
        for c in range(len(row)):
            if c != blank:
                is_again = bool(prefix) and prefix[-1] == c
                add((*prefix, c), 1, (with_blank if is_again else total) + row[c])
    best = sorted(result, key=lambda p: -float(np.logaddexp.reduce(result[p])))[:width]
    return {prefix: result[prefix] for prefix in best}


def _reference(
    data: np.ndarray,
    lengths: np.ndarray,
    *,
    blank_class: int = 0,
    beam_width: int = 16,
    top_paths: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = (data.shape[1], top_paths)
    probabilities = np.full(shape, -np.inf, np.float32)
    counts = np.zeros(shape, np.uint32)
    labels = np.full((*shape, data.shape[0]), blank_class, np.uint32)
    for b, n_steps in enumerate(lengths.tolist()):
        beam: Scores = {(): [0.0, -np.inf]}
        for row in data[:n_steps, b].astype(np.float64):
            beam = _step_reference(beam, row, blank_class, beam_width)
        for path, (prefix, scores) in enumerate(list(beam.items())[:top_paths]):
            probabilities[b, path] = np.logaddexp.reduce(scores)
            counts[b, path] = len(prefix)
            labels[b, path, : len(prefix)] = prefix
    return probabilities, counts, labels


def _logits_reference(
    logits: np.ndarray, lengths: np.ndarray, **options: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _reference(log_softmax_in_numpy(logits.astype(np.float64)), lengths, **options)


_DATA, _LENGTHS = np.zeros((3, 2, 4), np.float32), np.ones(2, np.uint32)
_ERRORS = (
    ErrorCase(Sample((_DATA[0], _LENGTHS)), "CTC inference expected data of shape"),
    ErrorCase(Sample((_DATA, _LENGTHS), {"blank_class": 4}), "blank class 4 among the classes"),
    ErrorCase(Sample((_DATA, _LENGTHS), {"top_paths": 3, "beam_width": 2}), "got top_paths 3 and"),
    ErrorCase(Sample((_DATA, _LENGTHS[:1])), "data_lengths must be unsigned int [2]"),
)

register(
    Op(
        name="popnn.ctc_inference.beam_search_decoder_log_probabilities",
        function=beam_search_decoder_log_probabilities,
        about="The likeliest label sequences of CTC data, from log probabilities.",
        types=(FLOAT, HALF),
        samples=_samples,
        reference=_reference,
        codelets=(beam_step_codelet, beam_trace_codelet),
        errors=_ERRORS,
        tolerance={"FLOAT": 1e-4, "HALF": 1e-3},
    )
)
register(
    Op(
        name="popnn.ctc_inference.beam_search_decoder_logits",
        function=beam_search_decoder_logits,
        about="The likeliest label sequences of CTC data, after a log-softmax.",
        types=(FLOAT,),
        samples=_samples,
        reference=_logits_reference,
        codelets=(beam_step_codelet, beam_trace_codelet, element_codelet),
        errors=_ERRORS,
        tolerance={"FLOAT": 1e-4},
    )
)
