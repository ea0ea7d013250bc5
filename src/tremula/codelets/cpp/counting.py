"""Counting: assembly in which every basic block adds its number of instructions to a counter.

g++ puts a call at the start of each basic block (-fsanitize-coverage=trace-pc). Its assembly text
shows how many instructions each block has, so the call is renamed to one that adds that number.
"""

import re

TRACE = "__sanitizer_cov_trace_pc"
COUNTED_FLAGS = (
    "-O2", "-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-unroll-loops",
    "-fsanitize-coverage=trace-pc", "-DTREMULA_COUNTED=1",
)  # fmt: skip
_LABEL = re.compile(r"^[\w.$]+:")
_NOT_AN_INSTRUCTION = re.compile(r"^\s*(?:\.|#|//|@|$)")


def count_blocks(assembly: str) -> tuple[str, set[int]]:
    """Rewrite assembly text; also return the numbers that occur."""
    lines = assembly.split("\n")
    counts: dict[int, int] = {}  # line of a trace call → instructions of its block
    last: int | None = None
    pending = 0  # instructions seen since a label, before the block's own trace call
    is_after_label = True
    for i, line in enumerate(lines):
        if _LABEL.match(line):
            if pending and last is not None:
                counts[last] += pending  # a block without a call is entered from the one before
            pending, is_after_label = 0, True
            if not line.startswith("."):
                last = None  # a new function
        elif TRACE in line:
            counts[i], last = pending, i
            pending, is_after_label = 0, False
        elif not _NOT_AN_INSTRUCTION.match(line):
            if is_after_label or last is None:
                pending += 1
            else:
                counts[last] += 1
    if pending and last is not None:
        counts[last] += pending
    for i, count in counts.items():
        lines[i] = lines[i].replace(TRACE, f"tremula_count_{count}")
    return "\n".join(lines), set(counts.values())


def counter_source(counts: set[int]) -> str:
    """C++ text of the counter and of one function for each number."""
    functions = [f"void tremula_count_{n}() {{ counter += {n}; }}" for n in sorted(counts)]
    return "\n".join(
        [
            "#include <cstdint>",
            "static thread_local std::int64_t counter = 0;",
            'extern "C" {',
            "std::int64_t *tremula_counter() { return &counter; }",
            *functions,
            "}",
        ]
    )
