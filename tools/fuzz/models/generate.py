"""Random models of layers with random options of PopTorch."""

from random import Random

import torch

from tools.fuzz.case import Case, IllegalCase
from tools.fuzz.models.layers import MOST_ELEMENTS, make_layer, random_layer

OPTIMISERS = ("SGD", "momentum", "Adam", "AdamW", "RMSprop")
STRATEGIES = ("none", "none", "sharded", "pipelined", "phased")
TRAINING_SHARE = 0.4  # training takes four times as long as inference
MOST_LAYERS = (2, 2, 3, 3, 4, 6)
SHAPES = ([4], [6], [3, 4], [4, 3], [2, 4, 4], [1, 5, 5])


def generate(random: Random) -> Case:
    """A model, the data's sizes, and how it is compiled."""
    shape = random.choice(SHAPES)
    layers = _layers(random, tuple(shape))
    training = random.random() < TRAINING_SHARE
    n_stages = random.choice((1, 2, 2, 3)) if len(layers) > 1 else 1
    strategy = random.choice(STRATEGIES) if n_stages > 1 else "none"
    cuts = sorted(random.sample(range(1, len(layers) + 1), min(n_stages - 1, len(layers))))
    n_blocks = len(cuts) + 1
    least = 2 * n_blocks if strategy == "pipelined" and training else 1
    fills = n_blocks if strategy == "pipelined" and not training else 1
    case = {
        "seed": random.randrange(1 << 16), "shape": shape, "layers": layers,
        "n_out": random.randint(1, 3), "batch": random.randint(1, 2),
        "training": training, "calls": random.choice((1, 1, 2)),
        "half": random.random() < 0.15, "loss": random.choice(("mse", "l1", "entropy")),
        "optimiser": random.choice(OPTIMISERS),
        "iterations": max(fills, random.choice((1, 1, 2, 3))),
        "accumulation": max(least, random.choice((1, 1, 2, 4))) if training else 1,
        "replicas": random.choice((1, 1, 1, 2)),
        "strategy": strategy, "cuts": cuts,
        "recomputation": random.choice(("none", "none", "standard", "everything", "norms")),
        "sharded_states": random.random() < 0.3, "off_chip": random.random() < 0.2,
        "on_host": random.random() < 0.3,
    }  # fmt: skip
    return _with_whole_gradients(case) if has_float8(case) and training else case


def has_float8(case: Case) -> bool:
    """Whether products are of 8-bit floats, which chips of later generations multiply."""
    return any(layer["do"] == "float8" for layer in case["layers"])


def _with_whole_gradients(case: Case) -> Case:
    """Gradients are rounded to 8 bits once for all samples, as the reference does."""
    strategy = "sharded" if case["strategy"] == "pipelined" else case["strategy"]
    return {**case, "accumulation": 1, "replicas": 1, "strategy": strategy}


def _layers(random: Random, shape: tuple[int, ...]) -> list[Case]:
    layers, x = [], torch.zeros(1, *shape)
    for _ in range(random.randint(1, random.choice(MOST_LAYERS))):
        layer = random_layer(random, tuple(x.shape[1:]))
        state = torch.random.get_rng_state()
        try:
            y = make_layer(layer, tuple(x.shape[1:]))(x)
        except (IllegalCase, RuntimeError, ValueError):
            continue
        finally:
            torch.random.set_rng_state(state)
        if 0 < y[0].numel() <= MOST_ELEMENTS:
            layers.append(layer)
            x = y.detach()
    return layers


def features(case: Case) -> set[str]:
    """What a case covers, as `group:item`."""
    kind = "half" if case["half"] else "float"
    mode = "training" if case["training"] else "inference"
    result = {f"mode:{mode} {kind}", f"strategy:{case['strategy']}", "front end:poptorch"}
    for layer in case["layers"]:
        name = f"{layer['do']} {layer['kind']}" if "kind" in layer else layer["do"]
        result |= {f"layer:{name}", f"layer and mode:{name}, {mode} {kind}"}
    if case["training"]:
        names = ("optimiser", "loss", "accumulation", "recomputation", "sharded_states", "off_chip")
        result |= {f"{name}:{case[name]}" for name in names}
    return result | {f"replicas:{case['replicas']}", f"iterations:{case['iterations']}"}
