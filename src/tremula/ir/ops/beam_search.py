"""CTC beam search as an operation: the likeliest label sequences of log probabilities."""

import numpy as np
import torch
from torch import Tensor

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define(
    "ctc_beam_search(Tensor log_probs, Tensor lengths, int blank, int beam_width, int top_paths)"
    " -> (Tensor, Tensor, Tensor)"
)
Beam = dict[tuple[int, ...], tuple[float, float]]  # labels -> log probability ending blank, not so


def search(
    data: np.ndarray, blank: int, beam_width: int, top_paths: int
) -> list[tuple[tuple[int, ...], float]]:
    """The best label sequences of [n_steps, n_classes] log probabilities, with theirs."""
    beam: Beam = {(): (0.0, -np.inf)}
    for row in data.astype(np.float64):
        grown = _grown(beam, row, blank)
        best = sorted(grown, key=lambda labels: -np.logaddexp(*grown[labels]))
        beam = {labels: grown[labels] for labels in best[:beam_width]}
    ranked = [(labels, float(np.logaddexp(*beam[labels]))) for labels in beam]
    return sorted(ranked, key=lambda pair: -pair[1])[:top_paths]


def _grown(beam: Beam, row: np.ndarray, blank: int) -> Beam:
    """All sequences one step later: kept by a blank or a repetition, or longer by one label."""
    grown: Beam = {}

    def add(labels: tuple[int, ...], ends_blank: float, ends_label: float) -> None:
        before = grown.get(labels, (-np.inf, -np.inf))
        grown[labels] = (
            float(np.logaddexp(before[0], ends_blank)),
            float(np.logaddexp(before[1], ends_label)),
        )

    for labels, (ends_blank, ends_label) in beam.items():
        total = np.logaddexp(ends_blank, ends_label)
        add(labels, total + row[blank], -np.inf)
        if labels:
            add(labels, -np.inf, ends_label + row[labels[-1]])
        for label in range(len(row)):
            if label != blank:
                # A label that repeats the last one is new only behind a blank.
                before = ends_blank if labels and labels[-1] == label else total
                add((*labels, label), -np.inf, before + row[label])
    return grown


def _decode(
    log_probs: Tensor, lengths: Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Paths that do not exist have a log probability of minus infinity and only blanks."""
    n_steps, n_batches, _ = log_probs.shape
    data = log_probs.detach().float().cpu().numpy()
    found = np.full((n_batches, top_paths), -np.inf, np.float32)
    counts = np.zeros((n_batches, top_paths), np.int32)
    paths = np.full((n_batches, top_paths, n_steps), blank, np.int32)
    for batch, length in enumerate(lengths.tolist()):
        best = search(data[:length, batch], blank, beam_width, top_paths)
        for place, (labels, probability) in enumerate(best):
            found[batch, place], counts[batch, place] = probability, len(labels)
            paths[batch, place, : len(labels)] = labels
    device, type = log_probs.device, log_probs.dtype
    on_device = [torch.from_numpy(array).to(device) for array in (found, counts, paths)]
    return on_device[0].to(type), on_device[1], on_device[2]


for _key in ("CPU", "CUDA"):
    _library.impl("ctc_beam_search", _decode, _key)


@torch.library.register_fake("tremula::ctc_beam_search", lib=_library)
def _fake(
    log_probs: Tensor,
    lengths: Tensor,  # noqa: ARG001
    blank: int,  # noqa: ARG001
    beam_width: int,  # noqa: ARG001
    top_paths: int,
) -> tuple[Tensor, Tensor, Tensor]:
    n_steps, n_batches, _ = log_probs.shape
    shape = (n_batches, top_paths)
    return (
        log_probs.new_empty(shape),
        log_probs.new_empty(shape, dtype=torch.int32),
        log_probs.new_empty((*shape, n_steps), dtype=torch.int32),
    )
