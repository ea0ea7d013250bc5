"""A plan for people: what is cut into how many parts, by which method, and what each term costs."""

from tremula.poplibs.poplin.product.plan import Plan


def plan_report(plan: Plan) -> str:
    """A readable account of a plan and of the planner's estimates."""
    problem, s = plan.problem, plan.splits
    kind = "weight update" if problem.is_update else "product"
    what = f"{kind}: inputs {list(problem.acts_shape)} ({problem.type}), "
    what += f"weights {list(problem.weights_shape)}, result {list(problem.out_shape)}"
    how = f"method {plan.method}, partials {plan.partials}, {s.n_tiles} of {plan.n_tiles} tiles, "
    how += f"{s.c_serial} serial steps"
    head = f"{'dimension':<18}{'size':>8}{'parts':>8}{'serial':>8}{'per tile':>10}"
    lines = [what, how, "", head]
    lines += [_row(*row) for row in _dimensions(plan)]
    lines += ["", f"{'cost':<26}{'cycles':>12}{'share':>8}"]
    total = max(plan.cycles, 1)
    lines += [f"{name:<26}{n:>12}{n / total:>8.1%}" for name, n in plan.costs.items() if n]
    lines.append(f"{'total':<26}{plan.cycles:>12}{_efficiency(plan):>8.1%} of peak")
    fits = "" if plan.bound_was_met else ": does not fit"
    lines.append(f"temporary memory {plan.temp_bytes} B of {plan.memory_bound} B per tile{fits}")
    depths = [plan.n_reduced, *plan.reduction_depths, 1]
    if plan.n_reduced > 1:
        lines.append("partial results " + " → ".join(str(d) for d in depths))
    return "\n".join(lines)


def _dimensions(plan: Plan) -> list[tuple[str, int, int, int, int]]:
    problem, s, part = plan.problem, plan.splits, plan.partition
    rows = [
        ("groups", problem.n_groups, s.g, 1, part.g[1]),
        ("batch", problem.n_batch, s.b, 1, part.b[1]),
    ]
    for d, field in enumerate(problem.fields):
        rows.append((f"field {d}", field.n_out, s.o[d], 1, part.o[d][1]))
    for d, field in enumerate(problem.fields):
        rows.append((f"kernel {d}", field.n_kernel, s.k[d], 1, part.k[d][1]))
    rows.append(("input channels", problem.n_in, s.i, 1, part.i[1]))
    rows.append(("output channels", problem.n_out, s.c, s.c_serial, part.c[1]))
    return rows


def _row(name: str, size: int, parts: int, serial: int, share: int) -> str:
    return f"{name:<18}{size:>8}{parts:>8}{serial:>8}{share:>10}"


def _efficiency(plan: Plan) -> float:
    peak = plan.chip.flops_per_cycle(plan.problem.type, plan.partials) * plan.n_tiles
    return plan.problem.n_flops / max(peak * plan.cycles, 1)
