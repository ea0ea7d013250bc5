"""Decoding of language models whose layers are spread over chips: GPT2-XL and ChatGLM-6B.

One chip works at a time, so the time of a word is that of all layers, of the ends on each chip
that has a part of the table of words, and of passing results from chip to chip. A layer and the
ends are built, each as a program of one chip; the rest is counted. From graphcore/PopTransformer,
commit b5a7569 (examples/gpt2, examples/chatglm, custom_ops/kv_cache.cpp).
"""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from tremula.base.types import FLOAT, HALF, INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, If, Program, Sequence
from tremula.poplar.target import IPUModel
from tremula.poplibs import poputil
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import time_program
from tremula.validate.workloads.model_call import HOST_S_PER_CALL, ModelCall, compiled_call
from tremula.validate.workloads.models.row_facts import DECODING
from tremula.validate.workloads.models.shared_weights import (
    Numbering,
    Use,
    Weight,
    rearranging_cycles,
)
from tremula.validate.workloads.models.timeline import ChipTimeline, timeline_of
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tremula.frontends.poptorch.options.options import Options
    from tremula.garden.models.published.decoders import DecoderSize


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDecoder:
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
    proportion: float = 0.6  # of memory, for one word; PopLibs' default
    prefill_proportion: float = 0.2  # for more than 32
    n_numbers: int = 1  # that each chip gets in a step: which step it is, or two positions
    prefills_in_halves: bool = True  # partial sums; those of one word are floats
    weights: tuple[Weight, ...] = ()  # of a layer, that a prompt and its words share
    numbering: Numbering | None = None
    n_answered: int | None = None  # words of an answer, which ends a run

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


GPT2_XL = MeasuredDecoder(
    width=1600, n_heads=25, n_inner=6400, n_words=50257, n_layers=48, n_chips=8, n_head_chips=1,
    n_head_slices=1, n_positions=1024,
)  # fmt: skip
# Operations of poptransformer/models/chatglm as its files call them, constants aside. Before the
# layers: positions and mask (6), the prompt's words (1), the embedding's four parts (14). Between:
# the last norm and word (3), the output layer (42), the first word of the loop (4), its positions
# and mask (3), and the loop's own words and embedding (2 + 14). A layer of the prompt has one
# operation more, the remap of its scores.
_GLM_NUMBERING = Numbering(before_prompt=21, in_prompt=83, between=68, in_word=82)
# The measured program stops at the end of its answer (conf/sharding.yaml: early_stop). It asks what
# to do if one cannot sleep; the answer to that on ChatGLM-6B's page has 454 characters. Of the
# dialogue there, 16 characters are 8 words of its vocabulary, 10 are 4 (tests of chatglm.cpp).
_GLM_ANSWER, CHARACTERS_PER_WORD = 454, 2
CHATGLM_6B = MeasuredDecoder(
    width=4096, n_heads=32, n_inner=16384, n_words=130528, n_layers=28, n_chips=32, n_head_chips=4,
    n_head_slices=2, residual_scale=56**0.5, has_prefill=True, n_numbers=2,
    weights=(
        Weight(4096, 3 * 4096, 1, 1), Weight(4096, 4096, 69, 68),
        Weight(4096, 16384, 75, 74), Weight(16384, 4096, 78, 77),
    ),
    numbering=_GLM_NUMBERING, n_answered=_GLM_ANSWER // CHARACTERS_PER_WORD,
)  # fmt: skip


@workload("GPT-?2.?XL.*(decod|generat)|(decod|generat).*GPT-?2.?XL", DECODING, gbytes=2.0)
def gpt2_xl(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Seconds of a step: the loop feeds the prompt's words one by one, too."""
    return _latency(GPT2_XL, row, chip_name)


@workload("ChatGLM.?6B.*(decod|generat)|(decod|generat).*ChatGLM.?6B", DECODING, gbytes=3.0)
def chatglm_6b(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Seconds of a run, its prefill included, by the number of words it generates."""
    return _latency(CHATGLM_6B, row, chip_name)


def _latency(decoder: MeasuredDecoder, row: MeasuredRow, chip_name: str) -> ModelledValue:
    batch = row.number("batch", 1)
    length = row.number("max_length", decoder.max_length)
    n_input = row.number("input", 0) if decoder.has_prefill else 0
    n_steps = length - n_input
    if n_steps < 1:
        raise NoWorkload("its prompt is as long as the longest text", hint="")
    n_steps = min(n_steps, decoder.n_answered or n_steps)
    clock_hz = _clock_hz(chip_name)
    step_s = _step_seconds(decoder, batch, 1, length, chip_name)
    run_s = HOST_S_PER_CALL
    if n_input:
        run_s += _step_seconds(decoder, batch, n_input, n_input, chip_name)
        prompt, word = _rearranging(decoder, batch, n_input, chip_name)
        run_s, step_s = run_s + prompt / clock_hz, step_s + word / clock_hz
    seconds = run_s / n_steps + step_s
    return ModelledValue(seconds * clock_hz, clock_hz, n_items=batch)


def _rearranging(
    decoder: MeasuredDecoder, batch: int, n_input: int, chip_name: str
) -> tuple[float, float]:
    """Cycles of rearranging weights for a prompt, and for each word."""
    assert decoder.numbering is not None, "a decoder with a prefill says how its program is read"
    prompt, word = (Use(batch * n, *_product_choices(decoder, n)) for n in (n_input, 1))
    return rearranging_cycles(
        decoder.weights, decoder.numbering, decoder.n_layers, prompt, word, chip_name
    )


def _step_seconds(
    decoder: MeasuredDecoder, batch: int, n_new: int, length: int, chip_name: str
) -> float:
    """All layers and the ends once, for `n_new` words."""
    layer = _layer(decoder, batch, n_new, length, chip_name)
    ends = _ends(decoder, batch, n_new, chip_name)
    seconds = decoder.n_layers * _alone(layer) + decoder.n_head_chips * _alone(ends)
    if n_new < length:
        seconds += _loop_seconds(decoder, batch, length, chip_name)
    return seconds + _transfer_seconds(decoder, batch, n_new, length, chip_name)


def _loop_seconds(decoder: MeasuredDecoder, batch: int, length: int, chip_name: str) -> float:
    """What a turn of the loop adds: its test, that of each cache operation, caches it carries.

    The operation asks whether this is the first step (custom_ops/kv_cache.cpp); a loop's cache is
    one of its inputs and results.
    """
    n_carried = 2 * batch * decoder.width * length
    if decoder.size.has_cache_operation:
        n_branches, carried_s = 1 + decoder.n_layers, 0.0
    else:
        n_branches, carried_s = 1, _carried_seconds(chip_name, n_carried)
    return carried_s + n_branches * _branch_seconds(chip_name, decoder.n_chips)


def _transfer_seconds(
    decoder: MeasuredDecoder, batch: int, n_new: int, length: int, chip_name: str
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


def _alone(timeline: ChipTimeline) -> float:
    """Seconds of what the chip does by itself: its inputs are there when it begins."""
    return timeline.local_cycles / timeline.clock_hz


def _clock_hz(chip_name: str) -> float:
    from tremula.hardware import chip

    return chip(chip_name).clock_hz


# -- programs --------------------------------------------------------------------------------------


def _layer(
    decoder: MeasuredDecoder, batch: int, n_new: int, length: int, chip_name: str
) -> ChipTimeline:
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


def _ends(decoder: MeasuredDecoder, batch: int, n_new: int, chip_name: str) -> ChipTimeline:
    import torch

    from tremula.garden.models.published.decoders import DecoderEnds

    n_words = -(-decoder.n_words // decoder.n_head_chips)
    ids = torch.zeros(batch, n_new, dtype=torch.int32)
    x = torch.zeros(batch, n_new, decoder.width, dtype=torch.half)
    return _timeline(DecoderEnds(decoder.size, n_words), (ids, ids, x), decoder, n_new, chip_name)


def _timeline(
    model: "nn.Module",
    inputs: "tuple[Tensor, ...]",
    decoder: MeasuredDecoder,
    n_new: int,
    chip_name: str,
) -> ChipTimeline:
    call = ModelCall(
        model=model.half().eval(),
        micro_batch=inputs,
        choose=lambda options: _choose(options, decoder, n_new),
    )
    built, program = compiled_call(call, chip_name).built()
    return timeline_of(built.graph, program)


def _choose(options: "Options", decoder: MeasuredDecoder, n_new: int) -> None:
    import torch

    partials, proportion = _product_choices(decoder, n_new)
    options.setAvailableMemoryProportion({"IPU0": proportion})
    options.Precision.setPartialsType(torch.half if partials is HALF else torch.float)


def _product_choices(decoder: MeasuredDecoder, n_new: int) -> tuple[Type, float]:
    """Type of partial sums and share of memory of products for a number of words."""
    proportion = decoder.prefill_proportion if n_new > 32 else decoder.proportion
    uses_halves = n_new > 1 and decoder.prefills_in_halves
    return (HALF if uses_halves else FLOAT), proportion


@cache
def _carried_seconds(chip_name: str, n_elements: int) -> float:
    """Keys and values of a step become those of the loop's next turn, on all chips at once.

    PopART's loop copies what its body returns, and copies that to the body's inputs (popx/op/
    loopx.cpp, `copyBodyOutputsToBodyOutputClones`, `copyBodyOutputsToExplicitBodyInputs`).
    """

    def build(graph: Graph, sequence: Sequence) -> Program | None:
        names = ("returned", "copied", "in")
        tensors = [graph.add_variable(HALF, [n_elements], name) for name in names]
        for tensor in tensors:
            poputil.map_tensor_linearly(graph, tensor)
        for source, target in pairwise(tensors):
            sequence.add(Copy(source, target))
        return None

    timing = time_program(chip_name, 1, build)
    return timing.cycles / timing.clock_hz


@cache
def _branch_seconds(chip_name: str, n_chips: int) -> float:
    """A branch: one program runs on all chips, so its condition goes to every tile."""
    target = IPUModel(chip_name, n_chips).create_target()
    graph = Graph(target)
    condition = graph.add_variable(INT, [], "condition", mapping=0)
    branch = If(condition, Sequence(), Sequence())
    return timeline_of(graph, Sequence(branch)).cycles / target.chip.clock_hz


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
