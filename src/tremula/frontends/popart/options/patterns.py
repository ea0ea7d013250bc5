"""Patterns: which rewrites of a graph are on, by level, by list, by name."""

from collections.abc import Iterable

from tremula.base.errors import suggest
from tremula.frontends.popart.enums import PatternsLevel
from tremula.frontends.popart.exceptions import popart_exception

MANDATORY = tuple(
    """
    AllReduceToIdentity Atan2Arg0GradOp Atan2Arg1GradOp ConvDataGrad ConvFlipWeightsGradOp
    ConvTranspose CosGradOp CoshOp DivArg0GradOp DivArg1GradOp AbsGradOp SinGradOp ExpGradOp
    Expm1GradOp FmodArg0GradOp RandomNormalLikeOpPattern RandomUniformLikeOpPattern
    ZerosLikeOpPattern Log1pGradOp LogGradOp LoopScanOut MatMulOp MatMulLhsGradOp MatMulRhsGradOp
    MulArgGradOp PowArg0GradOp PowArg1GradOp ReciprocalGradOp ScanToLoop SqrtGradOp
    SubtractArg1GradOp
""".split()
)
DEFAULT = tuple(
    """
    AdamDecompose AdaptiveDecompose ConvFlipWeightsDoubleFlip DecomposeBinaryConstScalar ExpandCast
    InitAccumulate InPlace LambSerialisedWeight NegativeOneScale NlllWithSoftMaxGradDirect
    OpToIdentity PackedDataBlock PadSum PostNRepl PreUniRepl RemoveUnnecessaryLossGradCast
    SGD0Decompose SGD1Decompose SGD2Decompose SoftMaxGradDirect SplitGradOpToConcat SplitOp SumToAdd
    TransposeToIdentityOrReshapePattern UpsampleToResize ViewSimplifyPattern
""".split()
)
OFF_BY_DEFAULT = tuple(
    """
    LSTMOp Slice2SliceSubsample SplitGather TiedGather TiedGatherAccumulate
""".split()
)
NAMES = (*MANDATORY, *DEFAULT, *OFF_BY_DEFAULT)
_LEVELS = {
    PatternsLevel.NoPatterns: (),
    PatternsLevel.Minimal: MANDATORY,
    PatternsLevel.Default: (*MANDATORY, *DEFAULT),
    PatternsLevel.All: NAMES,
}
# Old spellings that scripts still use.
_OLD_NAMES = {
    "NlllWithSoftmaxGradDirect": "NlllWithSoftMaxGradDirect",
    "SoftmaxGradDirect": "SoftMaxGradDirect",
}


class Patterns:
    """The rewrites that are on: `Patterns(level)`, `Patterns([names])`, `patterns.SplitOp = False`.

    Each pattern is an attribute, which `isPatternEnabled` reads by name.
    """

    _enabled: dict[str, bool]
    _asserts: bool

    def __init__(self, patterns: PatternsLevel | Iterable[str] = PatternsLevel.Default):
        is_level = isinstance(patterns, PatternsLevel)
        chosen = _LEVELS[patterns] if is_level else [_known(name) for name in patterns]
        object.__setattr__(self, "_enabled", {name: name in chosen for name in NAMES})
        object.__setattr__(self, "_asserts", True)

    def isPatternEnabled(self, name: str) -> bool:
        """Whether a pattern is on."""
        return self._enabled[_known(name)]

    def enablePattern(self, name: str, enabled: bool) -> "Patterns":
        """Switch a pattern on or off."""
        self._enabled[_known(name)] = bool(enabled)
        return self

    def enableRuntimeAsserts(self, enabled: bool) -> "Patterns":
        """Whether it is an error to switch mandatory patterns off."""
        object.__setattr__(self, "_asserts", bool(enabled))
        return self

    def check(self) -> None:
        """Raise if a mandatory pattern is off, unless `enableRuntimeAsserts(False)` allows it."""
        missing = [name for name in MANDATORY if not self._enabled[name]]
        if missing and self._asserts:
            raise popart_exception(
                f"Mandatory pattern '{missing[0]}' has been disabled (and {len(missing) - 1}"
                " others). Enable it, or call enableRuntimeAsserts(False) on the patterns"
            )

    def enabled(self) -> list[str]:
        """The patterns that are on."""
        return [name for name, is_on in self._enabled.items() if is_on]

    def __setattr__(self, name: str, value: bool) -> None:
        self.enablePattern(name, value)

    def __getattr__(self, name: str) -> bool:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.isPatternEnabled(name)

    def __repr__(self) -> str:
        return "\n".join(
            f"{name}: {'on' if is_on else 'off'}" for name, is_on in self._enabled.items()
        )


def _known(name: str) -> str:
    name = _OLD_NAMES.get(name, name)
    if name not in NAMES:
        raise popart_exception(f"Unknown pattern '{name}': {suggest(str(name), NAMES)}")
    return name


def _attribute(name: str) -> property:
    return property(lambda patterns: patterns.isPatternEnabled(name), doc=f"Whether {name} is on.")


for _name in (*NAMES, *_OLD_NAMES):
    type.__setattr__(Patterns, _name, _attribute(_name))
