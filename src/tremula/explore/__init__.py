"""Explore: a planner that spreads models over chips, and sweeps over chips, options and models."""

# ruff: noqa: E402 - first of all, what to install

from tremula.base.requirements import require

require("tremula.explore", "torch")

from tremula.explore.candidates import Candidate
from tremula.explore.planner import Plan, plan
from tremula.explore.space import Space, load_space
from tremula.explore.sweeps import Swept, sweep
from tremula.explore.trial import Task, TrialOutcome

__all__ = [
    "Candidate", "TrialOutcome", "Plan", "Space", "Swept", "Task", "load_space", "plan", "sweep",
]  # fmt: skip
