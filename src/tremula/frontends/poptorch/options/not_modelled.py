"""Settings that change a real machine's memory or time, but not yet the tile program."""

from tremula.frontends.poptorch.enums import SyncPattern
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.options.strategies import (
    ParallelPhasedExecution,
    SerialPhasedExecution,
)

_SETTER_OF_LOCATION = {
    "location_activation": "setActivationLocation",
    "location_weight": "setWeightLocation",
    "location_optimizer": "setOptimizerLocation",
    "location_accumulator": "setAccumulatorLocation",
}


def not_modelled(options: Options) -> list[str]:
    """What a script asked for that the tile program does without.

    Results are the same either way; memory and cycles of a report are not.
    """
    found = [
        f"{setter} (tensors off the chip or shared out over replicas)"
        for name, setter in _SETTER_OF_LOCATION.items()
        if _is_elsewhere(name, getattr(options.TensorLocations, name))
    ]
    if options.TensorLocations.exists("numIOTiles"):
        found.append("numIOTiles (tiles set aside for transfers)")
    strategy = options._execution_strategy
    if isinstance(strategy, SerialPhasedExecution | ParallelPhasedExecution):
        found.append(f"{type(strategy).__name__} (phases that leave the chip)")
    if options.sync_pattern != SyncPattern.Full:
        found.append("syncPattern")
    return found


def _is_elsewhere(name: str, location: dict[str, int]) -> bool:
    """States of the optimiser can be off the chip; nothing is shared out over replicas."""
    is_off = location.get("onChip", 1) == 0 and name != "location_optimizer"
    return is_off or location.get("useReplicatedTensorSharding", 0) == 1
