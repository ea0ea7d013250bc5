"""Explore: a planner that spreads models over chips, and sweeps over chips, options and models."""

from tremula.explore.candidates import Candidate
from tremula.explore.planner import Plan, plan
from tremula.explore.trial import Outcome, Task

__all__ = ["Candidate", "Outcome", "Plan", "Task", "plan"]
