"""Random expressions, and options of the front end that runs them."""

from random import Random

import torch

from tools.fuzz.case import Case, IllegalCase
from tools.fuzz.expressions.operations import MOST_AXES, MOST_ELEMENTS, OPERATIONS, cut_of
from tools.fuzz.expressions.reference import evaluated_shapes

SHAPES = ([4], [6], [2, 3], [3, 2], [1, 4])
NOT_TRAINED = ("fp8",)  # rounding has no gradient
ONLY_FOR = {"fp8": ("popxl",)}
# What a front end can be asked for, and how often: (choices of each option).
OPTIONS: dict[str, dict[str, tuple]] = {
    "popxl": {"replicas": (1, 1, 2), "accumulation": (1, 1, 2), "recompute": (False, True),
              "nested": (False, True), "sharded": (False, True), "half": (False,) * 5 + (True,)},
    "popart": {"replicas": (1, 1, 2), "accumulation": (1, 1, 2, 4), "recompute": (False, True),
               "chips": (1, 1, 2), "pipelined": (False, True), "half": (False,) * 5 + (True,)},
    "jax": {"replicas": (1, 1, 2), "accumulation": (1, 1, 2, 3), "recompute": (False, True),
            "mapped": (False, True), "half": (False,) * 5 + (True,)},
    "keras": {"replicas": (1, 1, 2), "accumulation": (1, 1, 2), "executions": (1, 2),
              "pipelined": (False, False, True), "half": (False,) * 5 + (True,)},
}  # fmt: skip


def generate(random: Random, front_end: str) -> Case:
    """An expression over a sample and weights, data sizes, and options."""
    training = random.random() < 0.5
    case: Case = {
        "front_end": front_end, "shape": random.choice(SHAPES), "nodes": [],
        "seed": random.randrange(1 << 16), "training": training,
        "batch": random.randint(1, 2), "steps": random.choice((1, 2)),
        "momentum": random.choice((0.0, 0.0, 0.9)), "on_host": random.random() < 0.3,
        **{name: random.choice(choices) for name, choices in OPTIONS[front_end].items()},
    }  # fmt: skip
    _legal_options(case)
    for _ in range(random.randint(1, random.choice((3, 4, 8)))):
        _add_node(random, case)
    if not case["nodes"] or (training and not _is_weighted(case)):
        case["nodes"].append({"op": "scale", "ins": [len(case["nodes"])], "axis": 0, "n": 1})
    if front_end == "keras" and case["pipelined"] and cut_of(case) is None:
        case["pipelined"] = False
    return case


def _is_weighted(case: Case) -> bool:
    """Whether the last value depends on a weight."""
    weighted = [False]
    for node in case["nodes"]:
        has_weight = bool(OPERATIONS[node["op"]].weight)
        weighted.append(has_weight or any(weighted[at] for at in node["ins"]))
    return weighted[-1]


def _legal_options(case: Case) -> None:
    """Pipelines need enough micro-batches; accumulation is of training only."""
    if case.get("chips") == 1:
        case["pipelined"] = False
    if case.get("pipelined"):
        case["accumulation"] = 4 if case["training"] else 1
        case["steps"] = max(case["steps"], 2)
    if not case["training"]:
        case["accumulation"] = 1


def _add_node(random: Random, case: Case) -> None:
    shapes = evaluated_shapes(case)
    last = len(shapes) - 1
    first = last if random.random() < 0.7 else random.randrange(len(shapes))
    name = random.choice(list(OPERATIONS))
    if case["front_end"] not in ONLY_FOR.get(name, (case["front_end"],)):
        return
    if case["training"] and name in NOT_TRAINED:
        return
    ins = [first]
    if OPERATIONS[name].n_values > 1:
        ins.append(random.choice([at for at, s in enumerate(shapes) if s == shapes[first]]))
    node = {"op": name, "ins": ins, "axis": random.randrange(2), "n": random.randint(1, 4)}
    try:
        new = evaluated_shapes({**case, "nodes": [*case["nodes"], node]})[-1]
    except (IllegalCase, RuntimeError, IndexError):
        return
    n = int(torch.Size(new[1:]).numel())
    if len(new) in range(2, MOST_AXES + 1) and 0 < n <= MOST_ELEMENTS:
        case["nodes"].append(node)


def features(case: Case) -> set[str]:
    """What a case covers, as `group:item`."""
    kind = "half" if case["half"] else "float"
    mode = "training" if case["training"] else "inference"
    result = {f"front end:{case['front_end']}", f"mode:{mode} {kind}"}
    result |= {f"operation:{node['op']}, {mode} {kind}" for node in case["nodes"]}
    return result | {
        f"{name}:{case[name]}" for name in OPTIONS[case["front_end"]] if name != "half"
    }
