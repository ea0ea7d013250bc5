"""What an application is asked for (`Settings`) and what it gives back (`Findings`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an application shall run."""

    tiny: bool = True  # the form of at most a minute; otherwise the form its page speaks of
    report: Path | None = None  # where to write the analyser's report, if it is wanted
    show: Callable[[str], None] = print  # takes each line that tells what is done


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """What the machine model says about a step, or a run, of an application."""

    machine: str  # the chip, "bow"; several: "4 × bow"
    cycles: int  # of one step, or of the run where there are no steps
    bytes_on_fullest_tile: int
    rate: float  # how many of `unit` the machine does in a second
    unit: str  # "images/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an application reached."""

    results: Mapping[str, float]  # by name, with the unit in it: accuracy, error_hartree, …
    modelled: Modelled | None
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)  # loss per step, say
    picture: np.ndarray | None = None  # float[h, w], or uint8[h, w, 3]; shown on its card
