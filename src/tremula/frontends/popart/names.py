"""Prefixes of names of tensors that PopART makes: gradients, states, optimisers' numbers."""

from collections.abc import Callable

GRADIENT, UPDATED, ACCUMULATOR, STEP = "Gradient___", "UpdatedVar___", "Accum___", "Step___"
LOSS_SCALING = "lossScaling_"
_TENSORS = {
    "Gradient": GRADIENT,
    "UpdatedVar": UPDATED,
    "Accum": ACCUMULATOR,
    "Accl": "Accl___",
    "Accl1": "Accl1___",
    "Accl2": "Accl2___",
    "Accl3": "Accl3___",
    "Step": STEP,
    "AcclToReduce": "AcclRed___",
    "AcclToUpdate": "AcclUpdate___",
    "AcclFinalOut": "AcclOut___",
    "FinalReducedGrad": "FinalReducedGradient___",
    "AdamUpdater": "Updater___",
    "LambR1Sq": "LambR1Sq___",
    "LambR2Sq": "LambR2Sq___",
    "Stashed": "Stash___",
    "Restored": "Restore___",
    "LossScaling": LOSS_SCALING,
    "RandomSeed": "randomSeed___",
    "SeedModifier": "seedModifier___",
    "RemoteArg": "RemoteArg___",
    "AutomaticLossScale": "automaticLossScale___",
}
# Numbers of optimisers come for all weights, or for one of them.
_NUMBERS = """
    weightDecayScaleFactor0 scaledLearningRate0 scaledWeightDecay1 scaledLearningRate1
    dampeningScaleFactor1 scaledMomentum1 learningRate weightDecay lossScaling maxWeightNorm
    adamBeta1 adamBeta2 adamEps step
""".split()


def _prefixes() -> dict[str, str]:
    result = {f"reserved{name}Prefix": prefix for name, prefix in _TENSORS.items()}
    for number in _NUMBERS:
        title = number[0].upper() + number[1:]
        result[f"reservedDefault{title}Prefix"] = f"{number}___default___"
        result[f"reservedSpecific{title}Prefix"] = f"{number}___specific___"
    return result


def _function(name: str, prefix: str) -> Callable[[], str]:
    def reserved() -> str:
        return prefix

    reserved.__name__ = reserved.__qualname__ = name
    reserved.__doc__ = f'"{prefix}": what names of such tensors begin with.'
    return reserved


FUNCTIONS = {name: _function(name, prefix) for name, prefix in _prefixes().items()}
globals().update(FUNCTIONS)
