"""Helper of tests: a model trained or run on small chips under any schedule and options."""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from tests.ir.steps import captured
from tremula.compiler.compile import compile_graph
from tremula.compiler.program_ir import StepKind
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.passes import apply, tile_passes
from tremula.ir.passes.shard_update import Shards
from tremula.ir.repetition import Repetition
from tremula.ir.run.session import TileSession
from tremula.poplar.target import IPUModel
from tremula.runtime.engine import Engine


@dataclass
class TileRun:
    """What a call left, and what it took."""

    outputs: list[Tensor]
    weights: list[Tensor]
    cycles: int
    engine: Engine

    def n_cycles_of(self, kind: StepKind) -> int:
        """Cycles of all executions of steps of a kind, on the slowest chip."""
        report = self.engine.report()
        pairs = zip(report.steps.kind, report.steps.cycles * report.steps.executed, strict=True)
        return sum(int(cycles) for of, cycles in pairs if of is kind)


def run_on_tiles(
    model: nn.Module,
    inputs: list[Tensor],
    schedule: Schedule | None = None,
    options: LoweringOptions | None = None,
    *,
    rule: object = None,
    shards: Shards | None = None,
    recomputed: tuple[int, ...] = (),
    recomputation: str | None = None,
    n_tiles: int = 4,
) -> TileRun:
    """One call on the micro-batches that are rows of `inputs`."""
    schedule = schedule or Schedule(n_iterations=len(inputs[0]))
    options = replace(options or LoweringOptions(), is_training=rule is not None)
    activation = options.locations.activation
    stages, phases = schedule.stage_of_block, schedule.phases
    passes = tile_passes(stages, recomputed, activation, shards, recomputation, phases)
    recorded = captured(model, *(x[0] for x in inputs), rule=rule)
    step = apply(recorded, passes, "tiles")
    device = IPUModel("bow", schedule.n_chips * schedule.n_replicas, n_tiles).create_device()
    built = build_tile_program(step, device.target, schedule, options)
    engine = Engine(compile_graph(built.graph, [built.program])).load(device)
    counts = schedule.n_iterations, schedule.n_accumulation, schedule.n_replicas
    whole = captured(model, *(x[0] for x in inputs), rule=rule)
    session = TileSession(whole, built, engine, Repetition(*counts, schedule.gradient_scale))
    session.write_weights(list(model.parameters()), list(model.buffers()))
    if rule is not None:
        session.write_states(rule.initial_state(trained(model)))
    session.set_hyper([0.1] * sum(slot.kind == "hyper" for slot in step.inputs))
    result: list[Tensor] = []
    session.run(list(zip(*inputs, strict=True)), lambda _, outputs: result.extend(outputs))
    return TileRun(result, session.read_weights()[0], engine.clock.total_cycles, engine)


def trained(model: nn.Module) -> list[Tensor]:
    return [p for p in model.parameters() if p.requires_grad]
