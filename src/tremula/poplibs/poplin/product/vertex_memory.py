"""Bytes of the vertices of products and beside them: pointers to operands, and worklists.

A vertex of PopLibs (poplin/ConvVertices.cpp) has a compressed pointer for each group of channels of
an operand, and tells its workers what to do in worklists: an entry is a run of output positions,
three half-words for where it starts in the output and in the input and how long it is. With one tap
each worker has one entry. With several there is a list for each tap and worker, of the runs that
the worker has there; groups of channels and of the convolution go through the same lists in loops.

Our own worklists have more in them (`worklists.py`), since they serve every method and update.
"""

import numpy as np

from tremula.base.types import Type
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.poplin.product.methods import METHODS, Work, amp_units, busiest_worker

Ints = np.ndarray

ENTRY_BYTES = 3 * 2  # where a run starts in the output and in the input, and how long it is
LIST_BYTES = 4  # the descriptor of one list of several
POINTER_BYTES = 2  # PopLibs' COMPACT_PTR


def field_data_bytes(method: str, work: Work, chip: Chip, inputs: Type, partials: Type) -> Ints:
    """int64[n]: of vertices that do `work` by a method."""
    n_groups = np.asarray(work.n_groups, np.int64)
    if METHODS[method].is_on_matrix_unit:
        n_in, n_out = amp_units(chip, inputs, partials)
        n_in, n_out = ceil_div(work.n_in, n_in), ceil_div(work.n_out, n_out)
        n_pointers = n_groups * (n_in + n_in * n_out + n_out)
    else:
        n_pointers = 3 * n_groups
    return POINTER_BYTES * n_pointers + _worklist_bytes(method, work, chip)


# Fields of PopLibs' vertices (poplin/codelets) where operands, strides and counts fit half-words:
# pointers to operands and worklists, strides, numbers of groups and of channels in one.
ONE_TAP_BYTES = 24  # ConvPartial1x1Out: four compact pointers and seven half-words
TAPS_BYTES = 52  # ConvPartialnx1: three pointers, a list, two strides, zeros, nine half-words
OTHERS_BYTES = (
    44  # ConvPartialHorizontalMac: three pointers, a list, strides, zeros, six half-words
)


def instance_bytes(method: str, work: Work) -> Ints:
    """int64[n]: the vertices themselves, of those that do `work` by a method."""
    n_taps = np.asarray(work.n_taps, np.int64)
    if not METHODS[method].is_on_matrix_unit:
        return np.full_like(n_taps, OTHERS_BYTES)
    return np.where(n_taps == 1, ONE_TAP_BYTES, TAPS_BYTES)


def _worklist_bytes(method: str, work: Work, chip: Chip) -> Ints:
    if method == "OUTER_PRODUCT":  # its workers share the output channels evenly
        return np.zeros(1, np.int64)
    lists = chip.n_workers * np.asarray(work.n_taps, np.int64)
    of_taps = lists * (LIST_BYTES + ENTRY_BYTES * busiest_worker(work, chip).n_items)
    has_one = (np.asarray(work.n_taps) == 1) & METHODS[method].is_on_matrix_unit
    return np.where(has_one, chip.n_workers * ENTRY_BYTES, of_taps)
