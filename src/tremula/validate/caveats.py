"""docs/caveats.md: mechanisms that are not modelled, and how large their effect is on which rows.

Mechanisms are a table here; their effects come from the residuals of the shipped validation.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tremula.compiler.report.intervals import LogResidual, Residuals, shipped_residuals

_N_SHOWN = 4
_HEAD = (
    "Mechanisms of real machines that the cost model leaves out, and by how much measured times "
    "differ from ours on the rows that show them ([accuracy](accuracy.md) has every row). +40 % "
    "means that hardware takes 40 % longer than predicted. Rows show other errors, too, so this "
    "is an upper bound of a mechanism's effect. Made by `make docs` from the residuals that "
    "`tremula validate --residuals` writes."
)


@dataclass(frozen=True, slots=True)
class Caveat:
    """A mechanism, what is known of it, and a pattern of the rows that show it ("": no row)."""

    name: str
    what: str
    rows: str = ""


CAVEATS = (
    Caveat(
        "Convolutions with few channels",
        "Inputs that are moved or padded to fill the matrix unit are collected one by one. How "
        "SDK 1.0 ordered them, and which of its plans it took, is inferred from two rows.",
        r"conv-rnx-Conv2|conv-rn50-Conv1-",
    ),
    Caveat(
        "Convolutions of one image",
        "200 to 1600 cycles are missing: SDK 1.0 set results to zero in an extra pass, or "
        "rearranged more.",
        r"conv-.*-b1$",
    ),
    Caveat(
        "Reductions over several chips",
        "Stages and their tiles are PopLibs': all partials of an output go to the first chip, a "
        "message for each tile. How many of these are under way on paths of several links is not "
        "known; ours take too long from 8 chips on.",
        r"reduce-(w[28]|bw(2|4|8|16))",
    ),
    Caveat(
        "Memsets of Poplar",
        "A table that is updated is filled with zeros first, by one worker of a tile as far as "
        "measured times tell; tables of more than 32 KB a tile take less.",
        r"scatter_add-\d+-\d+-(16384|32768)",
    ),
    Caveat(
        "Routines whose time depends on their arguments",
        "Cosine, logarithm and the like are loops in software; one cost stands for all arguments.",
        r"schnet_block|schnet-abl",
    ),
    Caveat(
        "Work of the host beside the device",
        "Loading, collating and the call itself are one constant, after the device's work.",
        r"^schnet-(qm9|hydro|abl)",
    ),
    Caveat(
        "How much of a host's copies is hidden",
        "Inputs of PopTorch programs count as copied by one thread of each host process while the "
        "device waits. Prefetching hides some of that; how much, and the rate of the measured "
        "hosts, is not published.",
        r"^m-vit-|^m-small-poptorch",
    ),
    Caveat(
        "Decoding over 32 chips",
        "What a sync of eight machines takes, after how many words a run stopped, and in which "
        "order PopART put transfers is not known. Whose layout a weight has that a prompt and its "
        "words share is counted from the program's operations.",
        r"^m-chatglm",
    ),
    Caveat(
        "Decoding of several texts",
        "Measured time grows by 1,000 cycles a layer and text more than ours: copies and "
        "transpositions of the cache that we do not have, or have too cheap.",
        r"^m-gpt2-xl.*--[678]$",
    ),
    Caveat(
        "Remaps of PopRT",
        "DeBERTa's program copies results of products, and operands of sums, to an even layout. "
        "For which of them PopRT does so is not public, and none is modelled.",
        r"^m-deberta",
    ),
    Caveat(
        "MLPerf's BERT on eight chips a replica",
        "Attention and dense parts count as half a layer each; clipping by the norm of all "
        "gradients and updates of the optimizer from the host are not modelled.",
        r"^m-bert-large-mlperf",
    ),
    Caveat(
        "Contention of messages between chips",
        "Many messages share links; arbitration, retries and the order in which tiles send are not "
        "modelled, only rates and places in flight.",
        r"links-random|latload|multi4|bcast-bw|gather-lat-8|scatter-lat",
    ),
    Caveat(
        "Start of a broadcast",
        "Which tile sent, and what a tile does before its first word, is not published.",
        r"bcast-lat",
    ),
    Caveat(
        "Imbalance of sparse patterns",
        "Patterns are drawn at random as the measured ones were, but not the same; how PopSparse "
        "groups blocks of 4 and 16, and how many rounds a dynamic product takes, is a guess.",
        r"popsparse-(blk|static-b16|fs\d+-(dynamic|static)|dynamic-b16)",
    ),
    Caveat(
        "Products too small for their plan",
        "The smallest products wait for steps that no public estimate has.",
        r"dense-FP32-1024-(4|8|16|32)$|fs512-dense",
    ),
    Caveat(
        "Power limits",
        "A chip at its limit lowers its clock; ours never does. At its peak rate a Bow would draw "
        "more than its share of a machine's limit.",
    ),
    Caveat(
        "Conflicts of accesses to one memory element",
        "Loads and stores of a tile that meet in one element take turns on hardware; vertices are "
        "costed as if placement had kept them apart.",
    ),
    Caveat(
        "Streaming memory and gateways under load",
        "They have a rate and a latency. Refresh, banks, other tenants and the network between "
        "racks are not modelled.",
    ),
    Caveat(
        "Temperature, ageing, faulty tiles",
        "Every chip is as good as every other.",
    ),
)


def caveats_markdown(residuals: Residuals | None = None) -> str:
    """The page, from the shipped residuals by default."""
    residuals = residuals or shipped_residuals()
    lines = [
        "# What is not modelled",
        "",
        _HEAD,
        "",
        "| mechanism | rows | median | range | furthest |",
        "|---|---|---|---|---|",
    ]
    with_rows = [(one, _matching(one, residuals.rows)) for one in CAVEATS]
    lines += [_table_line(one, rows) for one, rows in with_rows if rows]
    lines += ["", *(f"* **{one.name}**: {one.what}" for one, rows in with_rows if rows)]
    lines += ["", "## Without a measurement", ""]
    lines.append("No row shows these, so their effect is not known:")
    lines += ["", *(f"* **{one.name}**: {one.what}" for one, rows in with_rows if not rows)]
    return "\n".join([*lines, "", *_unexplained(residuals)]) + "\n"


def _matching(one: Caveat, rows: Sequence[LogResidual]) -> list[LogResidual]:
    return [row for row in rows if one.rows and re.search(one.rows, row.row)]


def _table_line(one: Caveat, rows: list[LogResidual]) -> str:
    effects = [math.expm1(row.log_ratio) for row in rows]
    furthest = sorted(rows, key=lambda row: -abs(row.log_ratio))[:_N_SHOWN]
    named = ", ".join(f"{row.row} ({math.expm1(row.log_ratio):+.0%})" for row in furthest)
    spread = f"{min(effects):+.0%} … {max(effects):+.0%}"
    return f"| {one.name} | {len(rows)} | {np.median(effects):+.0%} | {spread} | {named} |"


def _unexplained(residuals: Residuals) -> list[str]:
    """Rows outside of their interval that no mechanism is about."""
    rows = []
    for row in residuals.rows:
        low, high = residuals.of_family(row.family)
        is_outside = not low <= math.exp(row.log_ratio) <= high
        if is_outside and not any(one.rows and re.search(one.rows, row.row) for one in CAVEATS):
            rows.append(row)
    rows.sort(key=lambda row: -abs(row.log_ratio))
    lines = [
        "## Unexplained",
        "",
        "Rows outside of their family's 90 % interval that none of these",
    ]
    lines[-1] += " is about:"
    listed = [f"* {row.row} ({row.family}): {math.expm1(row.log_ratio):+.0%}" for row in rows]
    return [*lines, "", *(listed or ["* none"])]
