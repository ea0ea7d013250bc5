"""The methods of products: AMP, horizontal and vertical multiply-accumulate, outer products.

A method is one entry of METHODS: the name of its vertex, what it can compute and in which grains,
and its cycles. The planner asks every entry for its grains and costs, `vertices.conv_partial` makes
the codelet, and plans carry the name. All methods read the same worklists (`worklists.py`) and give
the same results; they differ in what they cost.

The cycles follow the estimators PopLibs published; all arguments may be columns. Every formula is a
nest of loops, the constants what a loop adds per round:

    AMP, one tap:   vertex + groups · (group + input groups · (input group + output groups · pass))
                    pass = setup + loading weights + workers · (first position + slots · the others)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tremula.base.provenance import fitted
from tremula.base.types import FLOAT, QUARTER, Type
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div, distinct
from tremula.poplibs.poplin.product.conv_params import ProductProblem
from tremula.poplibs.popops.elementwise.costs import SUB_VECTOR_SLOTS

Ints = np.ndarray
Count = np.ndarray | int


class Work(NamedTuple):
    """What one vertex multiplies: its share of each dimension. `n_rows` output rows of a field.

    Positions and rows are those that a tap meets: with dilated inputs a part of the `n_outputs`.
    `n_gathered` inputs are collected one by one first, where a plan moves or pads channels.
    """

    n_groups: Count
    n_positions: Count
    n_rows: Count
    n_in: Count
    n_out: Count
    n_taps: Count
    n_gathered: Count = 0
    n_outputs: Count = 0  # positions of the result; 0: as many as a tap meets


def amp_units(chip: Chip, inputs: Type, partials: Type) -> tuple[int, int]:
    """(input channels, output channels) of one pass of the matrix unit; zeros if it has none."""
    return chip.weights_per_conv_unit(inputs), chip.n_conv_units(inputs, partials)


def amp_slots(chip: Chip, inputs: Type, partials: Type) -> float:
    """Worker slots per output position and pass."""
    n_in, n_out = amp_units(chip, inputs, partials)
    return 2 * n_in * n_out / chip.flops_per_cycle(inputs, partials)


def seen_by_method(work: Work, is_update: bool) -> Work:
    """The work as a method counts it: a weight update's inner dimension is its positions."""
    if not is_update:
        return work
    rows = work.n_in * work.n_taps
    return work._replace(n_positions=rows, n_rows=1, n_in=work.n_positions, n_taps=1, n_outputs=0)


class WorkerShare(NamedTuple):
    """What the busiest worker of a tile has: pieces of output rows, and positions in them all."""

    n_items: Ints
    n_positions: Ints


def busiest_worker(work: Work, chip: Chip) -> WorkerShare:
    """Rows cut into as few equal parts as there must be for all workers to get the same number.

    PopLibs' partition of a convolution by worker: parts follow each other, so a worker may begin
    and end within a row, and neighbouring parts of a row are one item.
    """
    n_workers = chip.n_workers
    n_rows = np.maximum(np.asarray(work.n_rows, np.int64), 1)
    numbers = distinct(n_rows)  # few: each is dealt once
    n_parts = n_workers // np.gcd(numbers, n_workers)  # of each row
    share = numbers * n_parts // n_workers
    begin = np.multiply.outer(np.arange(n_workers), share)
    n_items = ((begin + share - 1) // n_parts - begin // n_parts + 1).max(axis=0)
    which = np.zeros(int(numbers[-1]) + 1 if len(numbers) else 0, np.int64)
    which[numbers] = np.arange(len(numbers))
    which = which[n_rows]
    length = ceil_div(work.n_positions, n_rows)
    return WorkerShare(n_items[which], ceil_div(share[which] * length, n_parts[which]))


# -- AMP, the matrix unit: cycles and slots of PopLibs' ConvPartial estimators ---------------------

AMP_VERTEX, AMP_GROUP = 50, 13  # supervisor cycles: once, and for each group of the convolution
# Positions that the start of a pass includes. PopLibs' estimators say three. Dense products
# measured on Bow (m = k = 1024 … 8192, n = 4 … 32768, 34 rates) grow with every position from the
# first on: with one their median error is 3 %, with three 8 %.
N_POSITIONS_IN_START = fitted(
    "N_POSITIONS_IN_START", 1, "positions in the start of a pass of the matrix unit",
    "PopLibs' estimators say 3; measured rates of dense float products on Bow",
    ("popsparse-dense-FP32-*",),
)  # fmt: skip
# One tap (ConvPartial1x1): cycles of an input group; of a pass: its set-up, and handing it to the
# workers; slots of a worker up to its first position.
ONE_TAP_INPUT_GROUP = 15
ONE_TAP_PASS = 19 + 7
ONE_TAP_FIRST = {"FLOAT": 46, "HALF": 31, "QUARTER": 17 + 27}
# Several taps (ConvPartialnx1): cycles of a vertex in all; of a pass in the loops over taps, input
# and output groups; slots of a worker before its rows, and of a row up to its first position.
TAPS_VERTEX = 109
TAPS_PASS = 12 + 3 + 15
TAPS_WORKER, TAPS_FIRST_FLOAT, TAPS_FIRST_HALF = 18, 39, 28
# Results in flight in the units of the chips these estimators are for: a worker's slots up to its
# first position fill that pipeline.
PUBLISHED_PIPELINE_DEPTH = 4
ZEROING_WORKER = 5  # partial sums start from zero: slots of a worker, then one for each store


class AmpPasses(NamedTuple):
    """The passes of the matrix unit over one tap, and what each takes."""

    in_groups: Ints
    out_groups: Ints
    load: Ints  # cycles to load the weights
    slots: float  # of a worker for each position
    filling: float  # slots of a worker to fill the units, beyond the published ones
    stores: Ints  # that write the results of a position

    def row_slots(self, first: int, share: WorkerShare) -> Ints:
        """Slots of a worker for its rows, where the first position of each takes `first`."""
        further = np.maximum(share.n_positions - N_POSITIONS_IN_START * share.n_items, 0)
        return share.n_items * (first + self.filling) + self.slots * further


def amp_cycles(work: Work, chip: Chip, inputs: Type, partials: Type) -> Ints:
    """Weights are loaded, then all positions pass by: once per tap, input and output group."""
    n_in, n_out = amp_units(chip, inputs, partials)
    slots = amp_slots(chip, inputs, partials)
    passes = AmpPasses(
        in_groups=ceil_div(work.n_in, n_in),
        out_groups=ceil_div(work.n_out, n_out),
        load=ceil_div(n_in * n_out * inputs.n_bytes, chip.conv_unit_coeff_load_bytes_per_cycle),
        slots=slots,
        filling=slots * (chip.conv_unit_pipeline_depth - PUBLISHED_PIPELINE_DEPTH),
        stores=ceil_div(n_out * partials.n_bytes, chip.store_bytes_per_cycle),
    )
    one = _one_tap(work, passes, inputs, chip)
    many = _several_taps(work, passes, inputs, chip)
    each = np.where(np.asarray(work.n_taps) == 1, one, many)
    gathering = SUB_VECTOR_SLOTS * np.asarray(work.n_gathered)  # all workers side by side
    return np.ceil(AMP_VERTEX + work.n_groups * (AMP_GROUP + each) + gathering).astype(np.int64)


def _one_tap(work: Work, passes: AmpPasses, inputs: Type, chip: Chip) -> Ints:
    share = WorkerShare(np.asarray(1), ceil_div(work.n_positions, chip.n_workers))
    worker = passes.row_slots(ONE_TAP_FIRST[inputs.name], share)
    one_pass = ONE_TAP_PASS + passes.load + chip.n_workers * worker
    return passes.in_groups * (ONE_TAP_INPUT_GROUP + passes.out_groups * one_pass)


def _several_taps(work: Work, passes: AmpPasses, inputs: Type, chip: Chip) -> Ints:
    """Per tap: weights are loaded, and each worker has its rows as work items; zeroing first."""
    first = TAPS_FIRST_FLOAT if inputs is FLOAT else TAPS_FIRST_HALF
    worker = TAPS_WORKER + passes.row_slots(first, busiest_worker(work, chip))
    one_pass = TAPS_PASS + passes.load + chip.n_workers * worker
    n_passes = work.n_taps * passes.in_groups * passes.out_groups
    n_outputs = np.maximum(work.n_outputs, work.n_positions)
    zeroed = ceil_div(n_outputs * passes.stores, chip.n_workers)
    zeroing = passes.out_groups * chip.n_workers * (ZEROING_WORKER + zeroed)
    return TAPS_VERTEX - AMP_VERTEX + n_passes * one_pass + zeroing


# -- methods without the matrix unit ---------------------------------------------------------------

OUTER_WORKER, OUTER_POSITION = 25, 6  # worker slots: once, and for each position
HMAC_VERTEX, HMAC_GROUP = 65, 23 + 15 + 10  # supervisor cycles: once; loops of each group
HMAC_WORKER, HMAC_ROW, HMAC_POSITION, HMAC_OUTPUT = 32, 19, 7, 9  # worker slots, loop by loop
VMAC_VERTEX, VMAC_WORKER, VMAC_ROW = 100, 25, 22


def outer_product_cycles(work: Work, chip: Chip, inputs: Type, partials: Type) -> Ints:  # noqa: ARG001
    """One input channel: each output channel of a position is one multiplication."""
    width = chip.vector_width(inputs)
    lead = 3 * width  # channels that the slots of a position include
    position = OUTER_POSITION + np.maximum(ceil_div(np.asarray(work.n_out) - lead, width), 0)
    share = ceil_div(np.asarray(work.n_positions) * work.n_groups, chip.n_workers)
    return chip.n_workers * (OUTER_WORKER + share * position * work.n_in * work.n_taps)


def hmac_cycles(work: Work, chip: Chip, inputs: Type, partials: Type) -> Ints:  # noqa: ARG001
    """Vector multiply-accumulate along the input channels."""
    width = chip.vector_width(inputs)
    share = busiest_worker(work, chip)
    position = HMAC_POSITION + work.n_out * (HMAC_OUTPUT + ceil_div(work.n_in, width))
    rows = share.n_items * HMAC_ROW + share.n_positions * position
    worker = HMAC_WORKER + work.n_taps * rows
    return HMAC_VERTEX + work.n_groups * (HMAC_GROUP + chip.n_workers * worker)


def vmac_cycles(work: Work, chip: Chip, inputs: Type, partials: Type) -> Ints:  # noqa: ARG001
    """Vector multiply-accumulate along the groups, for one channel in and out."""
    width, slots = 2 * chip.vector_width(inputs), 2 if inputs is FLOAT else 3
    share = busiest_worker(work, chip)
    position = slots * ceil_div(work.n_groups, width)
    rows = share.n_items * VMAC_ROW + share.n_positions * position
    worker = VMAC_WORKER + work.n_taps * rows * work.n_in * work.n_out
    return VMAC_VERTEX + chip.n_workers * worker


# -- the table -------------------------------------------------------------------------------------

Grains = tuple[int, int]  # input and output channels are cut into multiples of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to compute a vertex's share of a product."""

    name: str  # in plans and their reports
    vertex: str  # the codelet is poplin::vertex<inputs,partials>
    cycles: Callable[[Work, Chip, Type, Type], Ints]  # tile cycles, of (inputs, partials)
    grains: Callable[
        [ProductProblem, Chip, Type], Grains | None
    ]  # None: cannot compute the problem
    provenance: str = "published"  # of the cycles
    is_on_matrix_unit: bool = False


def _amp_grains(problem: ProductProblem, chip: Chip, partials: Type) -> Grains | None:
    n_in, n_out = amp_units(chip, problem.type, partials)
    if not (n_in and n_out) or not _strides_fit(problem, chip, n_in):
        return None
    return (1 if problem.is_update else n_in), n_out


def _strides_fit(problem: ProductProblem, chip: Chip, n_in: int) -> bool:
    """Whether a worker can step from one position's inputs to the next as it loads them.

    Inputs of a position are as wide as the unit; strides count in data paths and are signed.
    """
    n_paths = ceil_div(n_in * problem.type.n_bytes, chip.data_path_bytes)
    strides = (n_paths * field.stride for field in problem.fields)
    return all(stride < 1 << (chip.n_stride_bits - 1) for stride in strides)


# Only the matrix unit multiplies 8-bit floats.
def _any_grains(problem: ProductProblem, chip: Chip, partials: Type) -> Grains | None:  # noqa: ARG001
    return None if problem.type is QUARTER else (1, 1)


def _outer_grains(problem: ProductProblem, chip: Chip, partials: Type) -> Grains | None:
    """PopLibs' condition: one input channel, and neither a kernel nor strides."""
    is_outer = problem.n_in == 1 and problem.is_product and not problem.is_update
    return _any_grains(problem, chip, partials) if is_outer else None


def _vmac_grains(problem: ProductProblem, chip: Chip, partials: Type) -> Grains | None:
    if problem.type is FLOAT:  # PopLibs' planner: its assembly is for halves (ConvVertexType)
        return None
    is_depthwise = problem.n_in == problem.n_out == 1 and not problem.is_update
    return _any_grains(problem, chip, partials) if is_depthwise else None


# Of equally cheap plans the method that comes first is taken.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="AMP",
            vertex="ConvPartialAmp",
            cycles=amp_cycles,
            grains=_amp_grains,
            provenance="fitted",
            is_on_matrix_unit=True,
        ),
        Method(
            name="HMAC",
            vertex="ConvPartialHorizontalMac",
            cycles=hmac_cycles,
            grains=_any_grains,
        ),
        Method(
            name="OUTER_PRODUCT",
            vertex="OuterProduct",
            cycles=outer_product_cycles,
            grains=_outer_grains,
        ),
        Method(
            name="VMAC",
            vertex="ConvPartialVerticalMac",
            cycles=vmac_cycles,
            grains=_vmac_grains,
        ),
    )
}


def work_cycles(method: str, work: Work, chip: Chip, inputs: Type, partials: Type) -> Ints:
    """Tile cycles of a vertex that does `work` by a method."""
    return np.asarray(METHODS[method].cycles(work, chip, inputs, partials), np.int64)
