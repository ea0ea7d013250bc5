"""How the modelled machine computes: which results stop it, and how it rounds halves."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tremula.codelets.python.random import NAN_ON_OVERFLOW, SATURATE, STOCHASTIC


@dataclass(slots=True)
class MachineState:
    """Set by programs; survives between runs until the engine is loaded again."""

    flags: dict[str, bool] = field(default_factory=dict)

    def update(self, values: Mapping[str, object]) -> None:
        self.flags.update({name: bool(value) for name, value in values.items()})

    @property
    def checks_results(self) -> bool:
        """True if some floating-point exception is enabled."""
        return any(self.flags.get(name) for name in ("inv", "div0", "oflo"))

    @property
    def rounding_mode(self) -> int:
        """The mode word of every worker; 0 is rounding to nearest, and infinity on overflow.

        A program that never says what overflow gives gets infinity, as does one that stops on
        overflow: there the infinity is what is noticed.
        """
        mode = STOCHASTIC if self.flags.get("esr") else 0
        if self.flags.get("nanoo"):
            return mode | NAN_ON_OVERFLOW
        saturates = "nanoo" in self.flags and not self.flags.get("oflo")
        return mode | SATURATE if saturates else mode
