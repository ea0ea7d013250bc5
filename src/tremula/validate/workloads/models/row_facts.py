"""What rows of whole models say in common: framework, global batch, and which table row fits."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from tremula.validate.rows import MeasuredRow

TRAINING, INFERENCE, DECODING = "whole-model training", "whole-model inference", "LLM decoding"
FRAMEWORKS = {  # how rows write them
    "popart": "popart", "poptorch": "poptorch|pytorch", "tf2": r"(tf|tensorflow)[ -]?2",
    "tf1": "tf[ -]?1|tensorflow", "paddle": "paddle", "poprt": "poprt",
}  # fmt: skip

Fact = TypeVar("Fact")


def framework_of(row: MeasuredRow) -> str:
    """The framework that a row names; "" if it names none."""
    for text in (row.details, row.workload):
        for name, pattern in FRAMEWORKS.items():
            if re.search(pattern, text, re.IGNORECASE):
                return name
    return ""


def is_before_sdk(row: MeasuredRow, release: float) -> bool:
    """Whether a row says that its release of the SDK is older than this one."""
    if re.search(rf"(pre-?|before |< ?)(poplar )?sdk ?<? ?{release}", row.details, re.IGNORECASE):
        return True
    stated = re.fullmatch(r"(\d+\.\d+)(\.\d+)*", row.sdk)
    return stated is not None and float(stated[1]) < release


def gelu_of(framework: str) -> str:
    """Which form of gelu a framework has: PyTorch's default is exact, others' an approximation."""
    return "none" if framework == "poptorch" else "tanh"


def accumulation_of(
    row: MeasuredRow, micro_batch: int, replicas: int, default: int | None = None
) -> int:
    """Micro-batches between two updates: stated, or those that make up the global batch."""
    if row.has("gradient_accumulation"):
        return row.number("gradient_accumulation")
    total = row.number("global_batch", default)
    return max(1, round(total / (micro_batch * replicas)))


def best_of(facts: Sequence[Fact], *wanted: Callable[[Fact], bool]) -> Fact:
    """The fact that fits the first wish, among those the second, and so on; none fits: all stay."""
    left = list(facts)
    for fits in wanted:
        left = [fact for fact in left if fits(fact)] or left
    return left[0]
