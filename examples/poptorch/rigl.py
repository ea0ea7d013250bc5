"""RigL: a sparse layer that finds its own connections in training, and what it saves on tiles.

A network of two layers learns a function that looks at few of its 256 inputs. Its first layer has
one weight in 64 of a dense one, in blocks of 4. With a fixed random pattern nearly all of those
weights look at noise. RigL ("rigging the lottery", Evci et al. 2020) moves them: every few steps
the smallest blocks are dropped, and as many grow where the gradient of the dense weight is largest.
"""
# Run by the wide tests.

import torch
from torch import Tensor, nn

import tremula
from poptorch.sparse import SparseLinear

N_INPUTS, N_HIDDEN, N_USEFUL = 256, 64, 32
N_STEPS, UPDATE_EVERY, LAST_UPDATE = 240, 20, 180


def task(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Numbers, of which the last few decide the class: by the sign of their sum."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(n, N_INPUTS, generator=random)
    return x, x[:, -N_USEFUL:].sum(1).gt(0).long()


def dense_gradient(model: nn.Sequential, x: Tensor, wanted: Tensor) -> Tensor:
    """The gradient of the first layer's weight as if it were dense."""
    layer, *rest = model
    weight = layer.to_dense().detach().requires_grad_()
    hidden = nn.functional.linear(x, weight, layer.bias)
    loss = nn.functional.cross_entropy(nn.Sequential(*rest)(hidden), wanted)
    return torch.autograd.grad(loss, weight)[0]


def train(moves: bool) -> nn.Sequential:
    """Train from the same start, with or without moving blocks."""
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)
    layer = SparseLinear(N_INPUTS, N_HIDDEN, density=1 / 64, block=4, generator=random)
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(N_HIDDEN, 2))
    x, wanted = task(4096, seed=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(N_STEPS):
        loss = nn.functional.cross_entropy(model(x), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if moves and step % UPDATE_EVERY == 0 and step <= LAST_UPDATE:
            layer.rigl_update(dense_gradient(model, x, wanted), fraction=0.5)
            optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    return model


def accuracy(model: nn.Sequential) -> float:
    x, wanted = task(4096, seed=2)
    with torch.no_grad():
        return float((model(x).argmax(1) == wanted).float().mean())


def on_useful_inputs(layer: SparseLinear) -> float:
    """The share of blocks that look at inputs which matter."""
    first = (N_INPUTS - N_USEFUL) // layer.pattern.side
    return float((layer.pattern.columns >= first).mean())


def cycles_on_tiles(layer: nn.Module) -> int:
    """Cycles of a layer of halves for 512 rows on one Bow, without the transfers from the host."""
    report = tremula.cost_of(layer.half(), torch.zeros(512, 1024, dtype=torch.float16))
    return int(report.total_cycles - report.host_exchange.sum())


def main() -> None:
    fixed, moved = train(moves=False), train(moves=True)
    for name, model in (("fixed pattern", fixed), ("RigL", moved)):
        layer = model[0]
        print(
            f"{name:14} density {layer.density:.4f}, accuracy {accuracy(model):.2f}, "
            f"{on_useful_inputs(layer):.0%} of the blocks at inputs that matter"
        )
    assert accuracy(moved) > accuracy(fixed) + 0.05
    assert on_useful_inputs(moved[0]) > 2 * on_useful_inputs(fixed[0])
    print("RigL finds the inputs that matter")
    dense = cycles_on_tiles(nn.Linear(1024, 1024, bias=False))
    for block in (4, 16):
        sparse = cycles_on_tiles(SparseLinear(1024, 1024, 1 / 64, block, bias=False))
        print(f"1024 × 1024, one weight in 64, blocks of {block}: {dense / sparse:.1f} × as fast")


if __name__ == "__main__":
    main()
