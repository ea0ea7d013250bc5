"""Random operations on tiles, and reproducible ones: distributions, equal bits, independence."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tremula.ir.capture.capture import capture
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.types import narrow, tile_type
from tremula.ir.passes import COMMON_PASSES, TILE_PASSES, apply
from tremula.ir.passes.random_bits import Draws, Keys, initial_state, reproducible
from tremula.ir.run.tile_run import run_on_tiles
from tremula.poplar.target import IPUModel
from tremula.runtime.engine import Engine

aten = torch.ops.aten
N = 2000


def drawn(x: Tensor, p: Tensor, h: Tensor) -> dict[str, Tensor]:
    """One of each operation, by name."""
    kept, mask = aten.native_dropout(x, 0.25, True)
    half_kept, half_mask = aten.native_dropout(h, 0.5, True)
    same, all_kept = aten.native_dropout(x, 0.25, False)
    return {
        "rand": torch.rand(4, 500), "randn": torch.randn(N), "rand_like": torch.rand_like(x),
        "randn_like": torch.randn_like(x), "randint": torch.randint(3, 9, (N,)),
        "randint_high": torch.randint(9, (N,)), "randint_like": torch.randint_like(x, 7),
        "randint_like_low": torch.randint_like(x, 2, 7), "randperm": torch.randperm(200),
        "uniform": aten.uniform(x, -1.0, 3.0), "normal_": aten.normal_functional(x, 2.0, 3.0),
        "exponential": aten.exponential(x, 2.0), "bernoulli": torch.bernoulli(p),
        "bernoulli.p": aten.bernoulli.p(x, 0.3), "kept": kept, "mask": mask, "same": same,
        "all_kept": all_kept, "multinomial": torch.multinomial(p, 3),
        "replaced": torch.multinomial(p, 50, replacement=True), "half": torch.rand_like(h),
        "half_kept": half_kept, "half_mask": half_mask, "normal": torch.normal(p, p),
        "normal_size": torch.normal(1.0, 2.0, (N,)), "by_deviation": torch.normal(0.0, p),
    }  # fmt: skip


NAMES = list(drawn(torch.ones(N), torch.rand(20, 50), torch.ones(N).half()))
FLOATS = {"randn", "randn_like", "normal_", "exponential", "normal", "normal_size", "by_deviation"}


@pytest.fixture(scope="module")
def inputs() -> list[Tensor]:
    p = torch.rand(20, 50, generator=torch.Generator().manual_seed(1))
    return [torch.ones(N), p, torch.ones(N).half()]


def flat(*inputs: Tensor) -> list[Tensor]:
    return list(drawn(*inputs).values())


def check_alike(result: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Shapes are equal; means and deviations differ by little more than chance allows."""
    for name, right in wanted.items():
        got, right = result[name].double(), right.double()
        assert got.shape == right.shape, name
        error = 6 * (right.std() + 1e-9) / right.numel() ** 0.5
        assert abs(got.mean() - right.mean()) < 1.5 * error, name
        assert abs(got.std() - right.std()) < 2 * error, name


def check_ranges(result: dict[str, Tensor]) -> None:
    for name, low, high in (
        ("rand", 0, 1),
        ("rand_like", 0, 1),
        ("half", 0, 1),
        ("uniform", -1, 3),
    ):
        assert result[name].min() >= low, name
        assert result[name].max() < high, name
    for name, low, high in (("randint", 3, 8), ("randint_high", 0, 8), ("randint_like_low", 2, 6)):
        assert (result[name].min(), result[name].max()) == (low, high), name
    assert sorted(result["randperm"].tolist()) == list(range(200))
    assert torch.equal(result["kept"], result["mask"].float() / 0.75)
    assert torch.equal(result["half_kept"].float(), result["half_mask"].float() * 2)
    assert result["all_kept"].all()
    assert torch.equal(result["same"], torch.ones(N))
    assert all(len(set(row)) == 3 for row in result["multinomial"].tolist())


@pytest.mark.slow
def test_workers_draw_the_distributions(inputs):
    """Each operation has the range, mean and deviation PyTorch's has."""
    result = dict(zip(NAMES, run_on_tiles(flat, *inputs), strict=True))
    check_alike(result, drawn(*inputs))
    check_ranges(result)


def test_whole_numbers_in_place_and_poisson():
    """`random_` stays in its range; counts have the mean and the variance of their rate."""
    rates = torch.tensor([0.3, 5.0, 200.0]).reshape(3, 1).expand(3, N).contiguous()

    def function(x, rates):
        return [x.clone().random_(2, 7), x.clone().random_(5), torch.poisson(rates)]

    low, high, counts = run_on_tiles(function, torch.ones(N), rates)
    assert (low.min(), low.max(), high.min(), high.max()) == (2, 6, 0, 4)
    assert torch.equal(counts, counts.floor())
    for own, rate in zip(counts, (0.3, 5.0, 200.0), strict=True):
        assert abs(own.mean() - rate) < 6 * (rate / N) ** 0.5
        assert abs(own.var() / rate - 1) < 0.3


# -- reproducible randomness -----------------------------------------------------------------------


def recorded(function, inputs: list[Tensor]):
    model = nn.Identity()
    step = capture(model, lambda value: (list(function(*value)), None), inputs)
    return apply(step, COMMON_PASSES)


class OnTiles:
    """A step as a tile program that can be run again and again."""

    def __init__(self, step, inputs: list[Tensor], state: Tensor):
        self.device = IPUModel("bow", tiles_per_ipu=8).create_device()
        step = apply(step, TILE_PASSES)
        built = build_tile_program(step, self.device.target, Schedule())
        self.engine = Engine(built.graph, [built.program])
        self.engine.load(self.device)
        self.engine.write_tensor("buffer:rng", state.numpy())
        for handle, value in zip(built.inputs, inputs, strict=True):
            self.engine.connect_stream(handle, narrow(value).reshape(-1))
        self.results = []
        for (_, handle), node in zip(built.outputs, step.results(), strict=False):
            fake = node.meta["val"]
            values = np.zeros(tuple(fake.shape), tile_type(fake.dtype).dtype)
            self.engine.connect_stream(handle, values.reshape(-1))
            self.results.append(values)

    def run(self) -> list[np.ndarray]:
        self.engine.run()
        return [values.copy() for values in self.results]


@pytest.mark.slow
def test_host_and_tiles_draw_the_same(inputs):
    """Uniform numbers, bits and whole numbers agree bit by bit, step by step; normals to 1e-6."""
    step = reproducible(recorded(flat, inputs))
    host, state = step.module(), initial_state(42)
    on_tiles = OnTiles(step, inputs, state)
    previous: dict[str, Tensor] = {}
    for number in range(2):
        *wanted, state = host(state, *inputs)
        assert state.tolist() == [42, number + 1]
        result = on_tiles.run()
        for name, got, right in zip(NAMES, result, wanted, strict=False):
            tolerance = 2e-6 if name in FLOATS else 0
            right = right.numpy().astype(np.float64)
            np.testing.assert_allclose(got.astype(np.float64), right, tolerance, tolerance, name)
        values = dict(zip(NAMES, wanted, strict=False))
        check_alike(values, drawn(*inputs))
        check_ranges(values)
        assert not previous or not torch.equal(values["rand"], previous["rand"])
        previous = values
    assert on_tiles.engine.read_tensor("buffer:rng").tolist() == [42, 2]


def test_the_state_is_a_buffer():
    """It comes after the other buffers, is returned, and is absent if nothing is drawn."""
    x = torch.ones(5)
    step = reproducible(recorded(lambda x: [x + torch.rand_like(x)], [x]))
    assert [(s.kind, s.name) for s in step.inputs] == [("buffer", "rng"), ("input", "input_0")]
    assert (step.outputs[-1].kind, step.outputs[-1].name) == ("buffer", "rng")
    plain = recorded(lambda x: [x + 1], [x])
    assert reproducible(plain) is plain


def test_unknown_distributions_are_refused():
    """An operation without an arithmetic form is named."""
    step = recorded(lambda x: [torch.poisson(x)], [torch.ones(5)])
    with pytest.raises(UnsupportedOperations, match="aten::poisson cannot be drawn reproducibly"):
        reproducible(step)


def stream(seed: int, step: int = 0, draw: int = 0, n: int = 1 << 17) -> np.ndarray:
    draws = Draws(Keys.of(torch.tensor([seed, step], dtype=torch.int32)), draw)
    return draws.bits((n,), torch.device("cpu")).numpy().view(np.uint32)


def as_float(bits: np.ndarray) -> np.ndarray:
    return bits / 2.0**32 - 0.5


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """In standard errors."""
    return float(np.corrcoef(as_float(a), as_float(b))[0, 1] * len(a) ** 0.5)


def test_streams_are_even_and_independent():
    """Mean, variance, bits and pairs are those of chance; so are seeds, steps, draws and lags."""
    bits = stream(42)
    values, n = as_float(bits), len(bits)
    assert abs(values.mean()) * (12 * n) ** 0.5 < 4
    assert abs(values.var() * 12 - 1) < 0.01
    ones = (bits[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert np.abs(ones.mean(axis=0) - 0.5).max() * 2 * n**0.5 < 5
    others = [stream(43), stream(42, 1), stream(42, 0, 1), stream(-42), stream(42, 2**20)]
    others += [np.roll(bits, lag) for lag in (1, 2, 3, 16, 256, 4096)]
    for other in others:
        assert abs(correlation(bits, other)) < 5
        cells = np.bincount((bits >> 28) * 16 + (other >> 28), minlength=256)
        chi = ((cells - n / 256) ** 2 / (n / 256)).sum()
        assert abs(chi - 255) / (2 * 255) ** 0.5 < 5
    assert len(np.unique(bits)) == n  # one draw repeats nothing
