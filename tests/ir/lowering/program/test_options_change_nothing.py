"""Locations, shards, schedules, transfers and recomputation: whatever is combined, numbers stay."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.ir.lowering.program.runs import run_on_tiles
from tests.ir.steps import captured
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.locations import Location, Locations, Phases
from tremula.ir.lowering.program.build import Schedule
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.passes.recompute import RECOMPUTATIONS
from tremula.ir.passes.shard_update import Shards
from tremula.ir.recording import active
from tremula.ir.repetition import Repetition
from tremula.ir.run.session import HostSession
from tremula.ir.settings import HostSettings

N_ITERATIONS, N_ACCUMULATION = 2, 4


class TwoBlocks(nn.Module):
    """Equal layers in two blocks, a norm between them; input and output may overlap."""

    def __init__(self, mode: str):
        super().__init__()
        torch.manual_seed(0)
        self.mode = mode
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        _start_block(0)
        x = torch.ops.tremula.overlap(x, self.mode, False)
        target = torch.ops.tremula.overlap(target, self.mode, False)
        x = torch.tanh(self.norm(self.first(x)))
        _start_block(1)
        out = torch.relu(self.second(x))
        loss = nn.functional.mse_loss(out, target)
        return torch.ops.tremula.overlap(out, self.mode, True), loss


def _start_block(number: int) -> None:
    recording = active()
    if recording is not None:
        recording.start_block(str(number), number)


LOCATIONS = st.builds(
    Location,
    is_off_chip=st.booleans(),
    least_off_chip=st.sampled_from([2, 7]),
    is_sharded=st.booleans(),
    least_sharded=st.sampled_from([1, 7]),
    uses_io_tiles=st.booleans(),
    stores_on_io_tiles=st.booleans(),
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    n_replicas = draw(st.sampled_from([1, 2, 3]))
    scale = 1 / (N_ACCUMULATION * n_replicas)
    plain = Schedule(N_ITERATIONS, N_ACCUMULATION, n_replicas, scale)
    plain = replace(plain, waits_for_all=draw(st.booleans()), has_running_mean=draw(st.booleans()))
    kind = draw(st.sampled_from(["one chip", "sharded", "pipelined", "phased"]))
    if kind == "one chip":
        return replace(plain, chip_of_block=(0, 0))
    if kind == "phased":
        phases = Phases((0, 1), *(draw(st.booleans()) for _ in range(3)))
        return replace(plain, chip_of_block=draw(st.sampled_from([(0, 0), (0, 1)])), phases=phases)
    two_chips = replace(plain, chip_of_block=(0, 1))
    if kind == "sharded":
        return two_chips
    return replace(two_chips, stage_of_block=(0, 1), stride=draw(st.sampled_from([1, 2])))


def weights_on_host(model: nn.Module, inputs: list[Tensor], rule, schedule: Schedule):
    step = captured(model, *(x[0] for x in inputs), rule=rule)
    counts = schedule.n_iterations, schedule.n_accumulation, schedule.n_replicas
    repetition = Repetition(*counts, schedule.gradient_scale)
    session = HostSession(step, repetition, HostSettings(host="eager", device="cpu"))
    session.write_weights([p.detach().clone() for p in model.parameters()], [])
    session.write_states(rule.initial_state(list(model.parameters())))
    session.set_hyper([0.1] * len(rule.hyper_names))
    outputs: list[Tensor] = []
    session.run(list(zip(*inputs, strict=True)), lambda _, result: outputs.extend(result))
    return session.read_weights()[0], outputs


HOW = st.builds(
    LoweringOptions,
    prefetch_depth=st.sampled_from([0, 1, 3]),
    outline_threshold=st.sampled_from([None, 0.0, 1.0]),
    merges_all_reduces=st.booleans(),
    merges_reduce_scatters=st.booleans(),
)
MODES = ["no_overlap", "overlap_accumulation_loop", "overlap_device_iteration_loop"]
COMBINATIONS = given(
    schedule=schedules(),
    kinds=st.tuples(LOCATIONS, LOCATIONS, LOCATIONS, LOCATIONS),
    mode=st.sampled_from(MODES),
    recomputation=st.sampled_from([None, *RECOMPUTATIONS]),
    recomputes_stages=st.booleans(),
    how=HOW,
    n_io_tiles=st.sampled_from([0, 1, 2]),
)


def tried(n_examples: int) -> settings:
    return settings(
        max_examples=n_examples,
        deadline=None,
        phases=[Phase.generate],  # what fails is small already, and costly to run again
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@pytest.mark.slow
@tried(4)
@COMBINATIONS
def test_options_change_no_number(**options):
    """Tiles under any options train the weights that the plain step trains on the host."""
    check(**options)


@pytest.mark.wide
@tried(100)
@COMBINATIONS
def test_many_options_change_no_number(**options):
    """As above, on many more combinations."""
    check(**options)


def check(schedule, kinds, mode, recomputation, recomputes_stages, how, n_io_tiles):
    is_pipeline = bool(schedule.stage_of_block)
    model = TwoBlocks("no_overlap" if is_pipeline else mode)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    rule = rule_from(optimizer, model.named_parameters())
    n_micro = N_ITERATIONS * N_ACCUMULATION * schedule.n_replicas
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(n_micro, 2, 6, generator=generator) for _ in range(2)]
    locations = Locations(*kinds)
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    held = [n for n, size in sizes.items() if locations.weight.shards(size)]
    updated = [n for n, size in sizes.items() if n in held or locations.state.shards(size)]
    is_sharded = schedule.n_replicas > 1
    result = run_on_tiles(
        model,
        inputs,
        schedule,
        replace(how, locations=locations, n_io_tiles=max(n_io_tiles, int(mode != "no_overlap"))),
        rule=rule,
        shards=Shards(schedule.n_replicas, tuple(updated), tuple(held)) if is_sharded else None,
        recomputed=schedule.stage_of_block if recomputes_stages else (),
        recomputation=None if is_pipeline else recomputation,
    )
    weights, outputs = weights_on_host(model, inputs, rule, schedule)
    for ours, theirs in zip(result.outputs, outputs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(result.weights, weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
