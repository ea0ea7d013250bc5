"""Execution strategies: which blocks of a model form stages and phases, on which chips."""

from collections.abc import Sequence
from typing import Self

from tremula.base.errors import suggest
from tremula.frontends.poptorch.enums import AutoStage, Liveness
from tremula.ir.locations import Phases


class Stage:
    """Blocks that run on one chip, one after the other."""

    def __init__(self, *block_ids: str):
        assert block_ids, "a Stage needs at least one block"
        for block_id in block_ids:
            assert isinstance(block_id, str), (
                f"the blocks of a Stage are named by text, got {block_id!r}"
            )
        assert len(set(block_ids)) == len(block_ids), f"a block appears twice in {block_ids}"
        self._blocks = list(block_ids)
        self.chosen_ipu: int | None = None  # None: the strategy's choice

    @property
    def blocks(self) -> list[str]:
        """The ids of the blocks."""
        return self._blocks

    def ipu(self, ipu: int) -> Self:
        """Run on this chip, not on the one the strategy would choose."""
        assert ipu >= 0, f"ipu must be 0 or more, got {ipu!r}"
        self.chosen_ipu = ipu
        return self

    def __repr__(self) -> str:
        chip = "" if self.chosen_ipu is None else f".ipu({self.chosen_ipu})"
        return f"Stage({', '.join(map(repr, self._blocks))}){chip}"


class Phase:
    """Stages that run at the same time, each on its own chip."""

    def __init__(self, *stages: "str | Stage | Sequence[str]"):
        assert stages, "a Phase needs at least one stage"
        if all(isinstance(part, str) for part in stages):
            self.stages = [Stage(*stages)]  # pyright: ignore[reportArgumentType] (all are str)
        else:
            self.stages = [_as_stage(part) for part in stages]

    def stage(self, index: int) -> Stage:
        """One of the stages."""
        assert 0 <= index < len(self.stages), f"the phase has {len(self.stages)} stages"
        return self.stages[index]

    def ipus(self, *ipus: int) -> Self:
        """The chips of the stages, one for each."""
        assert len(ipus) == len(self.stages), (
            f"the phase has {len(self.stages)} stages, but {len(ipus)} IPUs were given"
        )
        for stage, ipu in zip(self.stages, ipus, strict=True):
            stage.ipu(ipu)
        return self

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


def _as_stage(part: "str | Stage | Sequence[str]") -> Stage:
    if isinstance(part, Stage):
        return part
    if isinstance(part, str):
        return Stage(part)
    assert isinstance(part, list | tuple), f"expected a Stage or block ids, got {part!r}"
    return Stage(*part)


class ExecutionStrategy:
    """Base of all strategies: explicit stages, looked up by the id of a block."""

    auto: AutoStage | None = None
    execution_mode: int

    def __init__(self, stages: list[Stage]):
        self._stage_of_block: dict[str, int] = {}
        self.stages = stages
        for index, stage in enumerate(stages):
            for block_id in stage.blocks:
                assert block_id not in self._stage_of_block, (
                    f"block {block_id!r} has already been assigned to a stage"
                )
                self._stage_of_block[block_id] = index

    def stage(self, block_id: str) -> Stage:
        """The stage of a block."""
        return self.stages[self.stage_index(block_id)]

    def stage_index(self, block_id: str) -> int:
        """The index of the stage of a block."""
        near = suggest(str(block_id), self._stage_of_block)
        assert block_id in self._stage_of_block, f"Unknown block {block_id!r}: {near}"
        return self._stage_of_block[block_id]

    def default_ipu(self, stage_index: int) -> int:
        """The chip of a stage without an explicit one."""
        return stage_index

    def phase_index(self, stage_index: int) -> int:  # noqa: ARG002
        """The phase of a stage; strategies without phases have one."""
        return 0

    def backend_options(self) -> dict[str, bool | int]:
        """The entries of the strategy in `Options.toDict`."""
        return {"execution_mode": self.execution_mode}


_SCHEDULES = ("grouped", "interleaved", "sequential")


class _StagedExecution(ExecutionStrategy):
    def __init__(self, *args: "AutoStage | str | Stage | Sequence[str]"):
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self.auto, args = args[0], ()
        elif not args:
            self.auto = AutoStage.SameAsIpu
        assert not any(isinstance(arg, AutoStage) for arg in args), (
            "an AutoStage must be the only argument: it excludes blocks and stages"
        )
        super().__init__([_as_stage(arg) for arg in args])  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        parts = self.stages if self.auto is None else [f"AutoStage.{self.auto.name}"]
        return f"{type(self).__name__}({', '.join(map(str, parts))})"


class ShardedExecution(_StagedExecution):
    """The model is cut over chips; one of them computes at a time."""

    execution_mode = 1


class PipelinedExecution(_StagedExecution):
    """The model is cut over chips, which compute different micro-batches at the same time."""

    execution_mode = 0
    schedule = "grouped"

    def useSchedule(self, schedule: str) -> Self:  # noqa: N802
        """How chips take turns in training; an addition of Tremula, with TensorFlow's names.

        "grouped": in each iteration a chip computes a forward and a backward stage. "interleaved":
        it turns from one to the other, so that about half as many micro-batches are under way.
        "sequential": one micro-batch at a time, as with ShardedExecution.
        """
        assert schedule in _SCHEDULES, (
            f"a schedule is one of {', '.join(_SCHEDULES)}, got {schedule!r}"
        )
        self.schedule = schedule
        return self


class PhasedExecution(ExecutionStrategy):
    """Base of strategies with phases."""

    execution_mode = 2
    liveness = Liveness.AlwaysLive

    def __init__(self, *phases: "Phase | Stage | str | Sequence[Stage | str | Phase]"):
        if len(phases) == 1 and isinstance(phases[0], list | tuple) and _holds_phases(phases[0]):
            phases = tuple(phases[0])
        assert phases, f"{type(self).__name__} needs at least one phase"
        assert not any(isinstance(phase, AutoStage) for phase in phases), (
            f"{type(self).__name__} has no automatic mode: name the phases"
        )
        self.phases = [_as_phase(phase) for phase in phases]
        self._place = [
            (p, s) for p, phase in enumerate(self.phases) for s in range(len(phase.stages))
        ]
        self._separate_backward_phase = False
        super().__init__([stage for phase in self.phases for stage in phase.stages])

    def phase(self, index: int) -> Phase:
        """One of the phases."""
        assert 0 <= index < len(self.phases), f"there are {len(self.phases)} phases"
        return self.phases[index]

    def useSeparateBackwardPhase(self, use: bool = True) -> Self:  # noqa: N802
        """Whether the backward pass starts a separate phase."""
        self._separate_backward_phase = bool(use)
        return self

    def phases_of(self, blocks: tuple[int, ...]) -> Phases:
        """The phases of a program whose blocks have these numbers."""
        return Phases(
            blocks,
            leaves_after_forward=self.liveness != Liveness.AlwaysLive,
            leaves_after_each=self.liveness == Liveness.OffChipAfterEachPhase,
            has_separate_backward=self._separate_backward_phase,
        )

    def phase_index(self, stage_index: int) -> int:
        return self._place[stage_index][0]

    def default_ipu(self, stage_index: int) -> int:
        return self._place[stage_index][1]

    def backend_options(self) -> dict[str, bool | int]:
        return {
            **super().backend_options(),
            "separate_backward_phase": self._separate_backward_phase,
            "tensors_liveness": int(self.liveness),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.phases))})"


class SerialPhasedExecution(PhasedExecution):
    """Phases run one after the other on the same chips; tensors wait off the chip."""

    def setTensorsLiveness(self, liveness: Liveness) -> Self:  # noqa: N802
        """When tensors leave the chip."""
        assert isinstance(liveness, Liveness), f"expected a poptorch.Liveness, got {liveness!r}"
        self.liveness = liveness
        return self

    def backend_options(self) -> dict[str, bool | int]:
        return {**super().backend_options(), "serial_phases_execution": True}


class ParallelPhasedExecution(PhasedExecution):
    """Even phases run on even chips, odd ones on odd chips, so that their transfers overlap."""

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> Self:  # noqa: N802
        """Whether tensors leave the chip between the forward and the backward pass."""
        self.liveness = Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive
        return self

    def default_ipu(self, stage_index: int) -> int:
        phase, stage = self._place[stage_index]
        return 2 * stage + phase % 2

    def backend_options(self) -> dict[str, bool | int]:
        return {**super().backend_options(), "serial_phases_execution": False}


def _holds_phases(parts: Sequence[object]) -> bool:
    return any(isinstance(part, Phase | list | tuple) for part in parts)


def _as_phase(part: "Phase | Stage | str | Sequence[Stage | str | Phase]") -> Phase:
    if isinstance(part, Phase):
        return part
    if isinstance(part, Stage | str):
        return Phase(part)
    assert isinstance(part, list | tuple), f"expected a Phase, stages or block ids, got {part!r}"
    return Phase(*part)  # pyright: ignore[reportArgumentType] (a Phase in it is rejected there)
