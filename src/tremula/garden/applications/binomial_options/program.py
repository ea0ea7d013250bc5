"""Cox, Ross and Rubinstein's binomial tree as a codelet: one vertex prices one option.

Trees differ in their number of steps, so vertices differ in their work, which grows with its
square: options are spread over tiles by that. A tree is kept as one row of values, from the leaves
down to the root; the prices of odd and of even levels are two rows of powers, computed once.

    J. C. Cox, S. A. Ross, M. Rubinstein, Option pricing: a simplified approach, 1979
"""

# Numbers of machine types compute, which pyright cannot see.
# pyright: reportOperatorIssue=false, reportArgumentType=false
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import tremula as tr
from tremula import InOut, Input, Output, Vector, Vertex, float32, int32
from tremula.base.errors import InvalidOption
from tremula.garden.models.science.balance import balanced_tiles

N_TERMS = 5  # spot, strike, interest, volatility, years


class BinomialTree(Vertex):
    """Price and delta of one option without dividends."""

    terms: Input[Vector[float32]]
    values: InOut[Vector[float32]]  # of the nodes of a level, n_steps + 1 of them
    even: InOut[Vector[float32]]  # what exercise pays at nodes of the last level, the one before …
    odd: InOut[Vector[float32]]  # … and at those between
    price: Output[float32]
    delta: Output[float32]
    sign: int32  # 1 for a call, -1 for a put  # pyright: ignore[reportInvalidTypeForm]
    is_american: int32  # pyright: ignore[reportInvalidTypeForm]

    def compute(self: Any) -> None:
        n = len(self.values) - 1
        values, even, odd = self.values, self.even, self.odd
        spot, strike, sign = self.terms[0], self.terms[1], float32(self.sign)
        dt = self.terms[4] / float32(n)
        step = self.terms[3] * math.sqrt(dt)
        up, growth = math.exp(step), math.exp(self.terms[2] * dt)
        chance = (growth - float32(1) / up) / (up - float32(1) / up)
        rise, fall = chance / growth, (float32(1) - chance) / growth
        for j in range(n + 1):
            even[j] = sign * (spot * math.exp(float32(2 * j - n) * step) - strike)
            values[j] = max(even[j], float32(0))
        for j in range(n):
            odd[j] = sign * (spot * math.exp(float32(2 * j - n + 1) * step) - strike)
        above, below = float32(0), float32(0)
        for back in range(n):
            level = n - 1 - back
            if level == 0:
                above, below = values[1], values[0]
            if self.is_american == 0:
                for j in range(level + 1):
                    values[j] = rise * values[j + 1] + fall * values[j]
            elif back % 2 == 1:
                shift = (back + 1) // 2
                for j in range(level + 1):
                    continued = rise * values[j + 1] + fall * values[j]
                    values[j] = max(continued, even[j + shift])
            else:
                shift = back // 2
                for j in range(level + 1):
                    continued = rise * values[j + 1] + fall * values[j]
                    values[j] = max(continued, odd[j + shift])
        self.price = values[0]
        self.delta = (above - below) / (spot * (up - float32(1) / up))


@dataclass(frozen=True, slots=True)
class OptionColumns:
    """Options as columns; `n_steps` of their trees may differ."""

    terms: np.ndarray  # float32[n, N_TERMS]
    sign: np.ndarray  # int32[n], 1 or -1
    is_american: np.ndarray  # int32[n]
    n_steps: np.ndarray  # int64[n]

    def __post_init__(self) -> None:
        n = len(self.terms)
        if self.terms.shape != (n, N_TERMS) or not (
            len(self.sign) == len(self.is_american) == len(self.n_steps) == n
        ):
            raise InvalidOption(
                f"options need {N_TERMS} terms each and columns of equal length, got terms "
                f"of shape {list(self.terms.shape)} and {len(self.sign)} signs.",
                hint="terms are spot, strike, interest, volatility and years",
            )
        wrong = np.flatnonzero((self.terms[:, [0, 1, 3, 4]] <= 0).any(axis=1) | (self.n_steps < 1))
        if len(wrong):
            raise InvalidOption(
                f"option {wrong[0]} has terms {self.terms[wrong[0]].tolist()} and "
                f"{self.n_steps[wrong[0]]} steps: spot, strike, volatility, years and steps must "
                "be above 0.",
                hint="leave out options that have run out",
            )

    @property
    def work(self) -> np.ndarray:
        """Nodes of each tree."""
        return self.n_steps * (self.n_steps + 1) / 2


def option_engine(
    options: OptionColumns, n_tiles: int, *, balanced: bool = True, chip: str = "bow"
) -> tr.Engine:
    """Handles: terms to write, prices and deltas to read. Unbalanced deals options out in turn."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device())
    n = len(options.terms)
    tiles = balanced_tiles(options.work, n_tiles) if balanced else np.arange(n) % n_tiles
    terms = graph.add_variable(tr.FLOAT, [n, N_TERMS], "terms")
    prices = graph.add_variable(tr.FLOAT, [n], "prices")
    deltas = graph.add_variable(tr.FLOAT, [n], "deltas")
    compute_set = graph.add_compute_set("trees")
    for i in np.argsort(-options.work, kind="stable").tolist():  # a tile's longest trees first
        n_steps, tile = int(options.n_steps[i]), int(tiles[i])
        rows = {
            name: graph.add_variable(tr.FLOAT, [size], f"{name}{i}", mapping=tile)
            for name, size in (("values", n_steps + 1), ("even", n_steps + 1), ("odd", n_steps))
        }
        own = {"terms": terms[i], "price": prices[i], "delta": deltas[i]}
        for tensor in own.values():
            graph.set_tile_mapping(tensor, tile)
        states = {"sign": int(options.sign[i]), "is_american": int(options.is_american[i])}
        graph.add_vertex(compute_set, BinomialTree, {**own, **rows, **states}, tile=tile)
    graph.create_host_write("terms", terms)
    graph.create_host_read("prices", prices)
    graph.create_host_read("deltas", deltas)
    return tr.Engine(graph, tr.Execute(compute_set))
