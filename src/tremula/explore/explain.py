"""A plan as a table, and in words: what was chosen, and why."""

from tremula.explore.planner import Plan
from tremula.explore.trial import TrialOutcome
from tremula.vision.analysis.text_views import table


def plan_table(plan: Plan) -> str:
    """One row for each candidate, the best first."""
    rows = []
    for outcome in plan.outcomes:
        if outcome.error:
            rows.append((outcome.candidate.label, "-", "-", "-", "-", "-", outcome.error[:60]))
            continue
        rows.append(
            (
                outcome.candidate.label,
                f"{outcome.samples_per_s:,.0f}",
                f"{1e3 * outcome.seconds:,.3f}",
                f"{_memory_share(outcome):.0%}",
                f"{outcome.bubble_share:.0%}",
                f"{1e3 * outcome.joules_per_sample:,.3g}",
                "fits" if outcome.fits else "too large",
            )
        )
    heads = ("candidate", "samples/s", "ms a call", "memory", "waiting", "mJ/sample", "")
    return table(heads, rows)


def stage_table(plan: Plan) -> str:
    """The stages of the best candidate: what they hold, how full and how busy their chips are."""
    best = plan.best
    first, home = "the model's first operations", best.candidate.home
    names = [first if home is None else f"{first}, and from {home}", *best.candidate.cuts]
    rows = [
        (
            chip,
            f"from {name}" if chip else name,
            f"{best.n_bytes[chip]:,} of {best.available_bytes:,}",
            f"{best.busy_share[chip]:.0%}",
        )
        for chip, name in enumerate(names)
        if chip < len(best.n_bytes)
    ]
    return table(("chip", "stage", "bytes on its fullest tile", "busy"), rows)


def explain(plan: Plan) -> str:
    """Why the best candidate is best, step by step."""
    best = plan.best
    if best.error:
        return f"Nothing could be compiled. The first reason: {best.error}"
    if not best.fits:
        return _nothing_fits(plan)
    lines = [_chosen(plan), *_why_stages(plan), *_why_recompute(plan), *_where_time_goes(best)]
    return "\n".join(lines)


def _chosen(plan: Plan) -> str:
    best, candidate = plan.best, plan.best.candidate
    spread = (
        f"{candidate.n_stages} pipeline stages, one on each chip"
        if candidate.cuts
        else "the whole model on one chip"
    )
    copies = f", {candidate.n_replicas} times side by side" if candidate.n_replicas > 1 else ""
    return (
        f"On {plan.system.name}: {spread}{copies}. By the cost model that is "
        f"{best.samples_per_s:,.0f} samples a second, {1e3 * best.joules_per_sample:,.3g} mJ each."
    )


def _why_stages(plan: Plan) -> list[str]:
    """What fewer stages, and more, would have given."""
    best, lines = plan.best, []
    n = best.candidate.n_stages
    for outcome in plan.outcomes[1:]:
        other = outcome.candidate
        if outcome.error or other.n_stages == n or f"{other.n_stages} stage" in "".join(lines):
            continue
        if not outcome.fits:
            lines.append(
                f"With {_stages(other.n_stages)} it does not fit: the fullest tile would need "
                f"{_memory_share(outcome):.0%} of its memory."
            )
        else:
            share = outcome.samples_per_s / best.samples_per_s
            lines.append(
                f"With {_stages(other.n_stages)} it fits, too, but runs at {share:.0%} of the "
                f"speed: its chips wait {outcome.bubble_share:.0%} of the time."
            )
    return lines


def _why_recompute(plan: Plan) -> list[str]:
    best = plan.best
    if not best.candidate.cuts:
        return []
    twins = [
        o
        for o in plan.outcomes[1:]
        if o.candidate.cuts == best.candidate.cuts
        and o.candidate.recomputes != best.candidate.recomputes
    ]
    if not twins or twins[0].error:
        return []
    other, does = twins[0], "computed again" if best.candidate.recomputes else "kept"
    if not other.fits:
        return [f"Activations are {does} for the backward pass: kept ones would not fit."]
    share = best.samples_per_s / other.samples_per_s - 1
    return [f"Activations are {does} for the backward pass: {share:.1%} faster than the reverse."]


def _where_time_goes(best: TrialOutcome) -> list[str]:
    lines = []
    if best.candidate.cuts:
        slowest = max(range(len(best.compute_cycles)), key=best.compute_cycles.__getitem__)
        lines.append(
            f"The slowest stage is that of chip {slowest}; on average chips wait "
            f"{best.bubble_share:.0%} of the time, to fill and empty the pipeline and for it. "
            "More accumulation makes the filling and emptying weigh less."
        )
    if best.bottleneck:
        lines.append(f"The busiest link is {best.bottleneck}.")
    return lines


def _nothing_fits(plan: Plan) -> str:
    best = plan.best
    return (
        f"Nothing that was tried fits {plan.system.name}. The nearest is {best.candidate.label}: "
        f"its fullest tile needs {_memory_share(best):.0%} of its memory. A smaller micro-batch, "
        "half precision, or more chips would help most."
    )


def _stages(n: int) -> str:
    return "1 stage" if n == 1 else f"{n} stages"


def _memory_share(outcome: TrialOutcome) -> float:
    return max(outcome.n_bytes, default=0) / max(1, outcome.available_bytes)
