"""The place of each block that a model opens, by the execution strategy of its options."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tremula.base.context_values import set_inside
from tremula.frontends.poptorch.enums import AutoStage
from tremula.frontends.poptorch.options.strategies import (
    ExecutionStrategy,
    PhasedExecution,
    ShardedExecution,
)
from tremula.ir.step import BlockPlace


class BlockPlacer:
    """Chip, stage and phase of blocks, in the order in which a model opens them."""

    def __init__(self, strategy: ExecutionStrategy):
        self._strategy = strategy
        self._numbers: dict[str, int] = {}  # of names, in the order of their first block
        self._places: dict[tuple[str, int | None], BlockPlace] = {}
        self._is_ordered = strategy.auto is None and not isinstance(strategy, ShardedExecution)

    def place(self, name: str, ipu_id: int | None) -> BlockPlace:
        """The place of a block with a name and, perhaps, a chip of its choice."""
        key = name, ipu_id
        if key not in self._places:
            stage, chip, phase = self._row(name, ipu_id)
            is_phased = isinstance(self._strategy, PhasedExecution)
            order = phase if is_phased else stage
            self._places[key] = BlockPlace(
                chip,
                self._pipeline_stage(chip),
                phase if is_phased else None,
                order if self._is_ordered else None,
            )
        return self._places[key]

    def _pipeline_stage(self, chip: int) -> int:
        """Stages of a pipeline grow by one where the chip changes."""
        last = next(reversed(self._places.values()), None)
        if last is None or last.stage is None:
            return 0
        return last.stage + (chip != last.chip)

    def _row(self, name: str, ipu_id: int | None) -> tuple[int, int, int]:
        """The stage as the strategy numbers them, the chip and the phase."""
        strategy = self._strategy
        if strategy.auto is AutoStage.SameAsIpu:
            assert ipu_id is not None, (
                f"poptorch.AutoStage.SameAsIpu was selected but no IPU ID was provided for block "
                f"{name!r}: give it an ipu_id, or choose poptorch.AutoStage.AutoIncrement"
            )
            return ipu_id, ipu_id, 0
        if strategy.auto is AutoStage.AutoIncrement:
            # 0 is the implicit block before the first one.
            stage = self._numbers.setdefault(name, len(self._numbers) + 1)
            return stage, stage if ipu_id is None else ipu_id, 0
        stage = strategy.stage_index(name)
        chosen = strategy.stages[stage].chosen_ipu
        assert chosen is None or ipu_id in (None, chosen), (
            f"block {name!r} requests IPU {ipu_id}, but its stage is on IPU {chosen}"
        )
        if chosen is None:
            chosen = strategy.default_ipu(stage) if ipu_id is None else ipu_id
        return stage, chosen, strategy.phase_index(stage)


_placer: ContextVar[BlockPlacer | None] = ContextVar("block_placer", default=None)


@contextmanager
def placing_blocks(strategy: ExecutionStrategy) -> Iterator[None]:
    """Inside, blocks that this thread's models open get places by a strategy."""
    with set_inside(_placer, BlockPlacer(strategy)):
        yield


def place_of(name: str, ipu_id: int | None) -> BlockPlace | None:
    """The place of a block; None where no model is being compiled."""
    placer = _placer.get()
    return None if placer is None else placer.place(name, ipu_id)
