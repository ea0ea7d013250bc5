"""Monte Carlo on tiles: each worker draws its own paths and keeps sums; the host adds them up.

A path has n_dates prices. From each, four payoffs and their pathwise derivatives are summed:
the Asian call on the arithmetic mean, its Greeks; the call on the geometric mean, which is known in
closed form and serves as control variate; and the European call on the last price, with its Greeks.
"""

# Numbers of machine types compute, which pyright cannot see.
# pyright: reportOperatorIssue=false, reportArgumentType=false
import math
from typing import Any

import numpy as np

import tremula as tr
from tremula import Input, Output, Vector, Vertex, float32, int32, random_normal

# What a vertex sums up over its paths.
SUMS = (
    "asian", "asian_squared", "asian_delta", "asian_vega", "geometric", "geometric_squared",
    "asian_times_geometric", "european", "european_squared", "european_delta", "european_vega",
)  # fmt: skip


class AsianPaths(Vertex):
    """Draws paths and sums discounted payoffs; terms: spot, strike, interest, volatility, years."""

    terms: Input[Vector[float32]]
    sums: Output[Vector[float32]]
    n_paths: int32  # pyright: ignore[reportInvalidTypeForm]
    n_dates: int32  # pyright: ignore[reportInvalidTypeForm]

    def compute(self: Any) -> None:
        n = self.n_dates
        spot, strike, rate = self.terms[0], self.terms[1], self.terms[2]
        volatility, dt = self.terms[3], self.terms[4] / float32(n)
        step, drift = math.sqrt(dt), (rate - float32(0.5) * volatility * volatility) * dt
        discount = math.exp(-rate * self.terms[4])
        share, zero = float32(1) / float32(n), float32(0)
        asian, asian2, asian_delta, asian_vega = zero, zero, zero, zero
        geometric, geometric2, both = zero, zero, zero
        plain, plain2, plain_delta, plain_vega = zero, zero, zero, zero
        for _ in range(self.n_paths):
            brownian, price, total, logs, slope, last_slope = zero, spot, zero, zero, zero, zero
            for date in range(n):
                brownian += step * random_normal()
                time = float32(date + 1)
                exponent = drift * time + volatility * brownian
                price = spot * math.exp(exponent)
                last_slope = price * (brownian - volatility * dt * time)
                total += price
                logs += exponent
                slope += last_slope
            mean = total * share
            paid = discount * max(mean - strike, zero)
            counts = discount if mean > strike else zero
            asian += paid
            asian2 += paid * paid
            asian_delta += counts * mean / spot
            asian_vega += counts * slope * share
            middle = discount * max(spot * math.exp(logs * share) - strike, zero)
            geometric += middle
            geometric2 += middle * middle
            both += paid * middle
            last = discount * max(price - strike, zero)
            counts = discount if price > strike else zero
            plain += last
            plain2 += last * last
            plain_delta += counts * price / spot
            plain_vega += counts * last_slope
        self.sums[0] = asian
        self.sums[1] = asian2
        self.sums[2] = asian_delta
        self.sums[3] = asian_vega
        self.sums[4] = geometric
        self.sums[5] = geometric2
        self.sums[6] = both
        self.sums[7] = plain
        self.sums[8] = plain2
        self.sums[9] = plain_delta
        self.sums[10] = plain_vega


def path_engine(
    n_paths: int, n_dates: int, n_tiles: int, chip: str = "bow", seed: int = 7
) -> tr.Engine:
    """A vertex for each worker. Handles: terms [5] to write, sums [n_vertices, 11] to read.

    Each run draws other paths: generators continue where they were.
    """
    device = tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device()
    graph = tr.Graph(device)
    n_workers = graph.target.n_worker_contexts
    n_vertices = n_workers * n_tiles
    tiles = np.repeat(np.arange(n_tiles), n_workers)
    terms = graph.add_variable(tr.FLOAT, [5], "terms", mapping=0)
    sums = graph.add_variable(tr.FLOAT, [n_vertices, len(SUMS)], "sums")
    for tile in range(n_tiles):
        graph.set_tile_mapping(sums[n_workers * tile : n_workers * (tile + 1)], tile)
    compute_set = graph.add_compute_set("paths")
    fields = {
        "terms": terms.expand([0]).broadcast(n_vertices),
        "sums": sums,
        "n_paths": -(-n_paths // n_vertices),
        "n_dates": n_dates,
    }
    graph.add_vertices(compute_set, AsianPaths, fields, tiles=tiles)
    graph.create_host_write("terms", terms)
    graph.create_host_read("sums", sums)
    return tr.Engine(graph, tr.Execute(compute_set), {"tremula.seed": seed})
