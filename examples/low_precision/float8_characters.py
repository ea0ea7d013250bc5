"""A character model in 8-bit floats: unit-scaled it trains without a scale for any tensor.

    python examples/low_precision/float8_characters.py [--steps N] [--plot FILE.svg]
    tremula exponents examples/low_precision/float8_characters.py --steps 3

Two models have the same layers. Their products are of floats; of 8-bit floats, 1.4.3 forwards and
1.5.2 for gradients; or in 1.4.3 throughout. The usual model has gradients around 2⁻¹⁴, which 1.5.2
can just hold and 1.4.3 cannot. Unit-scaled values and gradients start around one, the middle of
both formats: nothing needs a scale. The text is the documentation in Python's own library.
"""

# Arguments when run as a test: --steps 6
import argparse
import math
from itertools import product
from pathlib import Path

import torch
from torch import nn

from poptorch import float8
from tremula import scaling
from tremula.garden.models.datasets.text import characters
from tremula.garden.models.science.plots import PlotSeries, plot_svg

LENGTH, WIDTH, BATCH = 32, 64, 16


class UsualModel(nn.Module):
    """The character network with PyTorch's own layers, initialisation and loss."""

    def __init__(self, n_characters: int, formats: float8.Float8Formats | None) -> None:
        super().__init__()

        def linear(n_in: int, n_out: int) -> nn.Module:
            if formats is None:
                return nn.Linear(n_in, n_out)
            return float8.Linear(n_in, n_out, formats=formats)

        self.characters = nn.Embedding(n_characters, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.attention = nn.ModuleList([linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)])
        self.feed_forward = nn.Sequential(
            linear(WIDTH, 4 * WIDTH), nn.GELU(), linear(4 * WIDTH, WIDTH)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])
        self.head = nn.Linear(WIDTH, n_characters)

    def forward(self, ids: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.characters(ids) + self.places.weight
        heads = self.attention[0](self.norms[0](x)).reshape(*ids.shape, 3, 4, WIDTH // 4)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention[1](mixed.transpose(1, 2).reshape(x.shape))
        x = x + self.feed_forward(self.norms[1](x))
        logits = self.head(self.norms[2](x))
        return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


class UnitModel(nn.Module):
    """The unit-scaled one; its forward gives the loss."""

    def __init__(self, n_characters: int, formats: float8.Float8Formats | None) -> None:
        super().__init__()
        self.model = scaling.CharacterModel(n_characters, WIDTH, 1, 4, LENGTH, formats)

    def forward(self, ids: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.model(ids, target)[1]


def train(make: type[nn.Module], rows: torch.Tensor, formats: object, rate: float, n_steps: int):
    """The losses of training from the same start on the same batches."""
    torch.manual_seed(0)
    model = make(int(rows.max()) + 1, formats)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    losses = []
    for _ in range(n_steps):
        batch = rows[torch.randint(len(rows), (BATCH,))]
        loss = model(batch[:, :-1], batch[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--plot", type=Path, help="write the losses here, as SVG")
    args = parser.parse_args()
    rows, alphabet = characters(LENGTH + 1)
    torch.set_num_threads(1)  # matrices are small
    formats = {
        "float": None,
        "8-bit": float8.Float8Formats(),
        "1.4.3": float8.Float8Formats(gradient=float8.F143),
    }
    models = {"unit-scaled": (UnitModel, 1e-2), "usual": (UsualModel, 3e-3)}
    print(f"{len(alphabet)} characters; a loss of {math.log(len(alphabet)):.2f} is guessing")
    curves = []
    for (kind, (make, rate)), (form, layer_formats) in product(models.items(), formats.items()):
        losses = train(make, rows, layer_formats, rate, args.steps)
        name, n = f"{kind}, {form}", max(1, len(losses) // 20)
        print(f"{name:<20} first {sum(losses[:n]) / n:.2f}  last {sum(losses[-n:]) / n:.2f}")
        smooth = torch.tensor(losses).unfold(0, n, n).mean(1).tolist()
        curves.append(PlotSeries(name, [n * (k + 1) for k in range(len(smooth))], smooth))
    if args.plot:
        args.plot.write_text(plot_svg(curves, x_name="step", y_name="loss"), encoding="utf-8")


if __name__ == "__main__":
    main()
