"""Choices for a whole program that PopXL's addons offer, and what they mean here."""

from collections.abc import Mapping

import popxl
from tremula.frontends.popxl_addons.notes import notes_of


def apply_pre_alias_patterns(ir: popxl.Ir, level: str = "default") -> None:
    """Tidy graphs up before they run. Programs here run as they are, so there is nothing to do."""
    if level not in ("all", "default", "minimal", "none"):
        raise ValueError(f"level must be 'all', 'default', 'minimal' or 'none', got {level!r}")
    notes_of(ir)["pattern_level"] = level


def set_available_memory_proportion_by_ipu(
    ir: popxl.Ir, proportions: Mapping[int, float] | list[float]
) -> None:
    """The share of a chip's memory that products may take for themselves, by chip.

    The tile program's planner reads it.
    """
    pairs = dict(enumerate(proportions)) if isinstance(proportions, list) else dict(proportions)
    for ipu, share in pairs.items():
        if not 0 <= share <= 1:
            raise ValueError(f"The share of chip {ipu} must be between 0 and 1, got {share}")
    notes_of(ir)["available_memory"] = pairs
