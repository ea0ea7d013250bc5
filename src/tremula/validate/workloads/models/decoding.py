"""Decoding of language models whose layers are spread over chips: GPT2-XL and ChatGLM-6B.

One chip works at a time, so the time of a word is that of all layers, of the ends on each chip
that has a part of the table of words, and of passing results from chip to chip. A layer and the
ends are built, each as a program of one chip; the rest is counted. From graphcore/PopTransformer,
commit b5a7569 (examples/gpt2, examples/chatglm, custom_ops/kv_cache.cpp).
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tremula.base.types import HALF
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Program, Sequence
from tremula.poplibs import poputil
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import time_program
from tremula.validate.workloads.model_call import HOST_S_PER_CALL, ModelCall, compiled_call
from tremula.validate.workloads.models.row_facts import DECODING
from tremula.validate.workloads.models.timeline import Timeline, timeline_of
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tremula.frontends.poptorch.options.options import Options
    from tremula.garden.models.published.decoders import DecoderSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A measured decoder: sizes, and how it is spread over chips."""

    width: int
    n_heads: int
    n_inner: int
    n_words: int
    n_layers: int
    n_chips: int
    n_head_chips: int  # that share the table of words
    n_head_slices: int  # of the table on a chip, each with its largest score
    n_positions: int = 0
    residual_scale: float | None = None
    has_prefill: bool = False
    max_length: int = 264
    proportion: float | None = None  # of memory, for one word
    prefill_proportion: float = 0.2  # for more than 32
    n_numbers: int = 1  # that each chip gets in a step: which step it is, or two positions
    prefills_in_halves: bool = True  # partial sums; those of one word are floats

    @property
    def size(self) -> "DecoderSize":
        from tremula.garden.models.published.decoders import DecoderSize

        return DecoderSize(
            width=self.width,
            n_heads=self.n_heads,
            n_inner=self.n_inner,
            n_words=self.n_words,
            n_positions=self.n_positions,
            residual_scale=self.residual_scale,
            has_cache_operation=not self.has_prefill,
        )


GPT2_XL = Decoder(
    width=1600, n_heads=25, n_inner=6400, n_words=50257, n_layers=48, n_chips=8, n_head_chips=1,
    n_head_slices=1, n_positions=1024,
)  # fmt: skip
CHATGLM_6B = Decoder(
    width=4096, n_heads=32, n_inner=16384, n_words=130528, n_layers=28, n_chips=32, n_head_chips=4,
    n_head_slices=2, residual_scale=56**0.5, has_prefill=True, proportion=0.6, n_numbers=2,
)  # fmt: skip


@workload("GPT-?2.?XL decoding", DECODING, gbytes=2.0)
def gpt2_xl(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Seconds of a step: the loop feeds the prompt's words one by one, too."""
    return _latency(GPT2_XL, row, chip_name)


@workload("ChatGLM-6B decoding", DECODING, gbytes=3.0)
def chatglm_6b(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Seconds of a run, its prefill included, by the number of words it generates."""
    return _latency(CHATGLM_6B, row, chip_name)


def _latency(decoder: Decoder, row: MeasuredRow, chip_name: str) -> ModelledValue:
    batch = row.number("batch", 1)
    length = row.number("max_length", decoder.max_length)
    n_input = row.number("input", 0) if decoder.has_prefill else 0
    n_steps = length - n_input
    if n_steps < 1:
        raise NoWorkload("its prompt is as long as the longest text", hint="")
    step_s = _step_seconds(decoder, batch, 1, length, chip_name)
    run_s = n_steps * step_s + HOST_S_PER_CALL
    if n_input:
        run_s += _step_seconds(decoder, batch, n_input, n_input, chip_name)
    seconds = run_s / n_steps
    clock_hz = _clock_hz(chip_name)
    return ModelledValue(seconds * clock_hz, clock_hz, n_items=batch)


def _step_seconds(decoder: Decoder, batch: int, n_new: int, length: int, chip_name: str) -> float:
    """All layers and the ends once, for `n_new` words."""
    layer = _layer(decoder, batch, n_new, length, chip_name)
    ends = _ends(decoder, batch, n_new, chip_name)
    seconds = decoder.n_layers * _alone(layer) + decoder.n_head_chips * _alone(ends)
    if decoder.has_prefill and n_new < length:
        head_size = decoder.width // decoder.n_heads
        seconds += _carried_seconds(chip_name, 2 * batch * decoder.n_heads * length * head_size)
    return seconds + _transfer_seconds(decoder, batch, n_new, length, chip_name)


def _transfer_seconds(
    decoder: Decoder, batch: int, n_new: int, length: int, chip_name: str
) -> float:
    """What crosses links, one transfer after the other: PopART makes a program of each.

    A chip with layers gets its words from the chip before; the mask, and the step or positions,
    from the first. Parts of the embedding are summed on the last chip that has one; each part of
    the output layer gets the last layer's result, and sends its best score and word there.
    """
    n, n_ends = decoder.n_chips, decoder.n_head_chips
    words, mask = batch * n_new * decoder.width, batch * length
    hops = [(c - 1, c, words) for c in range(n_ends, n)]
    hops += [(0, c, size) for c in range(n_ends, n) for size in (mask, *[1] * decoder.n_numbers)]
    hops += [(n - 1, c, batch * decoder.width) for c in range(n_ends)]
    for c in range(1, n_ends):
        hops += [(0, c, batch * n_new), (c - 1, n_ends - 1, words)]
        hops += [(c - 1, n_ends - 1, batch)] * 2
    if n_ends > 1:
        hops.append((n_ends - 1, 0, batch))
    return sum(_hop_seconds(chip_name, n, *hop) for hop in hops)


def _alone(timeline: Timeline) -> float:
    """Seconds of what the chip does by itself: its inputs are there when it begins."""
    return timeline.local_cycles / timeline.clock_hz


def _clock_hz(chip_name: str) -> float:
    from tremula.hardware import chip

    return chip(chip_name).clock_hz


# -- programs --------------------------------------------------------------------------------------


def _layer(decoder: Decoder, batch: int, n_new: int, length: int, chip_name: str) -> Timeline:
    import torch

    from tremula.garden.models.published.decoders import DecoderLayer

    size = decoder.width // decoder.n_heads
    inputs = (
        torch.zeros(batch, n_new, decoder.width, dtype=torch.half),
        torch.zeros(2, batch, decoder.n_heads, length, size, dtype=torch.half),
        torch.zeros(batch, 1, n_new, length, dtype=torch.half),
        torch.zeros(2, n_new, dtype=torch.half),
    )
    return _timeline(DecoderLayer(decoder.size), inputs, decoder, n_new, chip_name)


def _ends(decoder: Decoder, batch: int, n_new: int, chip_name: str) -> Timeline:
    import torch

    from tremula.garden.models.published.decoders import DecoderEnds

    n_words = -(-decoder.n_words // decoder.n_head_chips)
    ids = torch.zeros(batch, n_new, dtype=torch.int32)
    x = torch.zeros(batch, n_new, decoder.width, dtype=torch.half)
    return _timeline(DecoderEnds(decoder.size, n_words), (ids, ids, x), decoder, n_new, chip_name)


def _timeline(
    model: "nn.Module", inputs: "tuple[Tensor, ...]", decoder: Decoder, n_new: int, chip_name: str
) -> Timeline:
    call = ModelCall(
        model=model.half().eval(),
        micro_batch=inputs,
        choose=lambda options: _choose(options, decoder, n_new),
    )
    built, program = compiled_call(call, chip_name).built()
    return timeline_of(built.graph, program)


def _choose(options: "Options", decoder: Decoder, n_new: int) -> None:
    import torch

    proportion = decoder.prefill_proportion if n_new > 32 else decoder.proportion
    if proportion is not None:
        options.setAvailableMemoryProportion({"IPU0": proportion})
    uses_halves = n_new > 1 and decoder.prefills_in_halves
    options.Precision.setPartialsType(torch.half if uses_halves else torch.float)


@cache
def _carried_seconds(chip_name: str, n_elements: int) -> float:
    """Keys and values of a step become those of the loop's next turn, on all chips at once."""

    def build(graph: Graph, sequence: Sequence) -> Program | None:
        source, target = (graph.add_variable(HALF, [n_elements], name) for name in ("out", "in"))
        for tensor in (source, target):
            poputil.map_tensor_linearly(graph, tensor)
        sequence.add(Copy(source, target))
        return None

    timing = time_program(chip_name, 1, build)
    return timing.cycles / timing.clock_hz


@cache
def _hop_seconds(
    chip_name: str, n_chips: int, source_chip: int, target_chip: int, n_elements: int
) -> float:
    """Halves from tiles of a chip to those of another."""

    def build(graph: Graph, sequence: Sequence) -> Program | None:
        ends = []
        for number in (source_chip, target_chip):
            chip = graph.create_virtual_graph(number * n_tiles, (number + 1) * n_tiles)
            ends.append(chip.add_variable(HALF, [n_elements], "x"))
            poputil.map_tensor_linearly(chip, ends[-1])
        sequence.add(Copy(*ends))
        return None

    from tremula.hardware import chip as named_chip

    n_tiles = named_chip(chip_name).n_tiles
    timing = time_program(chip_name, n_chips, build)
    return timing.cycles / timing.clock_hz
