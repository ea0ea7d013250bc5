"""Numbers of an optimiser: constant or variable, for all weights or for one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tremula.base.errors import suggest
from tremula.frontends.popart.exceptions import popart_exception


class OptimizerValue:
    """A number, and whether it is part of the program or may change between steps."""

    def __init__(
        self,
        val: "float | tuple[float, bool] | list[float] | OptimizerValue" = 0.0,
        isConst: bool = True,
    ):
        if isinstance(val, OptimizerValue):
            val, isConst = val.val(), val.isConst()
        elif isinstance(val, tuple | list):
            if len(val) != 2:
                raise popart_exception(f"An optimizer value is (number, is_constant), got {val!r}")
            number, constant = val
            val, isConst = number, bool(constant)
        self._value, self._is_constant = float(val), bool(isConst)

    def val(self) -> float:
        """The number."""
        return self._value

    def isConst(self) -> bool:
        """Whether it stays what it is."""
        return self._is_constant

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptimizerValue) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"OptimizerValue({self._value:g}, isConst={self._is_constant})"


# Values by name: numbers, constant unless they say otherwise.
Hyperparameters = Mapping[str, float | tuple[float, bool] | OptimizerValue]


class OptimizerValueMap:
    """One number of an optimiser: that of all weights, and those of single ones."""

    def __init__(self, default: OptimizerValue, specific: Mapping[str, OptimizerValue]):
        self._default, self._specific = default, dict(specific)

    def get(self, id: str) -> OptimizerValue:
        """The number for a weight."""
        return self._specific.get(id, self._default)

    def getDefault(self) -> OptimizerValue:
        """The number for all other weights."""
        return self._default

    def hasSpecific(self, id: str | None = None) -> bool:
        """Whether a weight, or any, has its own number."""
        return bool(self._specific) if id is None else id in self._specific


@dataclass
class ClipNormSettings:
    """Gradients of some weights together have at most this length; no ids: those of all weights."""

    weightIds: list[str] = field(default_factory=list)
    maxNorm: float = 1.0

    @staticmethod
    def clipWeights(weightIds: Iterable[str], maxNorm: float) -> "ClipNormSettings":
        """Clip the gradients of these weights."""
        return ClipNormSettings(list(weightIds), float(maxNorm))

    @staticmethod
    def clipAllWeights(maxNorm: float) -> "ClipNormSettings":
        """Clip the gradients of all weights."""
        return ClipNormSettings([], float(maxNorm))


def read_values(
    values: Mapping[str, Any], known: Mapping[str, float], prefix: str, owner: str
) -> dict[str, OptimizerValue]:
    """Values by their plain names; `prefix` is "default" for those of all weights."""
    names = {_with_prefix(name, prefix): name for name in known}
    result = {}
    for key, value in values.items():
        if key not in names:
            raise popart_exception(
                f"{owner} does not have a value {key!r}: {suggest(str(key), names)}"
            )
        if not isinstance(value, tuple | list | OptimizerValue):
            raise popart_exception(
                f"A value in the optimizer map must be a tuple (number, is_constant): {key!r} is"
                f" {value!r}"
            )
        result[names[key]] = OptimizerValue(value)
    return result


def _with_prefix(name: str, prefix: str) -> str:
    if name == "lossScaling" or not prefix:
        return name
    return prefix + name[0].upper() + name[1:]


def check_values(values: Mapping[str, OptimizerValue], owner: str) -> None:
    """Raise for numbers that are mistakes: negative ones, and rates that are zero for ever."""
    for name, value in values.items():
        text = _spaced(name)
        if value.val() < 0:
            raise popart_exception(
                f"Negative {text} ({value.val():g}) in {owner}, bailing as this might be a user"
                " error"
            )
        if value.val() == 0 and name in ("velocityScaling", "lossScaling"):
            raise popart_exception(f"The {text} in {owner} must be positive, got 0")
        if value.val() == 0 and name == "learningRate" and value.isConst():
            raise popart_exception(
                f"Constant, zero learning rate in {owner}, bailing as this might be a user error"
            )


def _spaced(name: str) -> str:
    """The words of a name: "learning rate" of learningRate."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name)
