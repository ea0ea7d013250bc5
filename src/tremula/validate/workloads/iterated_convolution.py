"""A convolution applied to its own result again and again: PopLibs' blur of an image.

thorbenlouw/lbm-graphcore (PoplibsStencil.cpp): channels of an RGBA image are groups with one
channel each, padded by one pixel; after each convolution the result is copied to the input. An
iteration is read as one convolution: an earlier form of that program had two.
"""

from functools import partial

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Repeat, Sequence
from tremula.poplibs.poplin.product.conv_params import ConvParams
from tremula.poplibs.poplin.product.convolution import convolution, create_input, create_weights
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import time_program
from tremula.validate.workloads.matmul import CONVOLUTION, type_of
from tremula.validate.workloads.table import ModelledValue, workload

N_CHANNELS, SIDE = 4, 3
ITERATIONS = 100
PROPORTION = 0.5


@workload("depthwise 3x3 blur of an RGBA image, iterated", CONVOLUTION)
def iterated_blur(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The time of all iterations."""
    width, height = row.sizes("image")[:2]
    n_times = row.number("iterations", ITERATIONS)
    proportion = row.real("availablememoryproportion", PROPORTION)
    element = type_of(row, "dtype", "half")
    build = partial(_build, (height, width), element, proportion, n_times)
    return ModelledValue.of(time_program(chip_name, row.n_ipus, build))


def _build(
    field: tuple[int, int], element: Type, proportion: float, n_times: int,
    graph: Graph, sequence: Sequence,
) -> None:  # fmt: skip
    params = ConvParams(
        type=element, n_batch=1, field_shape=field, kernel_shape=(SIDE, SIDE),
        n_in_chans=1, n_out_chans=1, n_groups=N_CHANNELS,
        padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    share = proportion
    image = create_input(graph, params, "image", available_memory_proportion=share)
    weights = create_weights(graph, params, "weights", available_memory_proportion=share)
    once = Sequence()
    blurred = convolution(
        graph, image, weights, params, once, "blur", available_memory_proportion=share
    )
    once.add(Copy(blurred, image))
    sequence.add(Repeat(n_times, once))
