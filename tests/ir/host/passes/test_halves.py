"""Halves on a CPU: float32 inside, half wherever tiles would store a half."""

import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.frontends.poptorch import op_db
from tests.ir.steps import captured, run_host, training_step
from tremula.frontends.poptorch.optim.rule import hyper_values
from tremula.ir.capture.bodies import record_loop
from tremula.ir.errors import FloatingPointException
from tremula.ir.host.passes.halves import WideCopies, add_bias_, narrowed, round_, rounded, widened
from tremula.ir.host.programs.program import HostProgram
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.passes.half_as_float import widen_halves
from tremula.ir.recording import active
from tremula.ir.repetition import Repetition
from tremula.ir.run.session import HostSession
from tremula.ir.run.tile_run import record_function, run_on_tiles
from tremula.ir.settings import HostSettings
from tremula.ir.step import CapturedStep

HALF = torch.float16
CONVERSION = torch.ops.aten._to_copy.default
SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 65504.0, -65504.0, 6e-8, 3e-5, math.inf, -math.inf, math.nan, 2049.0]
)


def halves(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * scale).to(HALF)


def on_host(function, *inputs):
    return run_host(captured(function, *inputs), *inputs)


def ulps(result, right):
    """The largest distance between results, in units in the last place."""
    assert result.dtype == right.dtype == HALF
    a, b = (
        t.reshape(-1).view(torch.int16).int() for t in (result.contiguous(), right.contiguous())
    )
    a, b = (torch.where(t < 0, -(t & 0x7FFF), t) for t in (a, b))
    both_nan = (result.isnan() & right.isnan()).reshape(-1)
    return int(torch.where(both_nan, 0, (a - b).abs()).max()) if a.numel() else 0


# -- conversions -----------------------------------------------------------------------------------

LAYOUTS = {
    "in order": lambda t: t,
    "transposed": lambda t: t.transpose(0, 1),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "with gaps": lambda t: t[:, ::2],
    "expanded": lambda t: t[:1].expand(5, -1, -1, -1),
    "empty": lambda t: t[:0],
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversions_are_those_of_pytorch(layout):
    """Rounding to nearest even, overflow to infinity, subnormal halves, NaN; any strides."""
    steps = torch.logspace(-9, 6, 2 * 4 * 6 * 5)
    x = LAYOUTS[layout](torch.cat([steps, -steps]).reshape(4, 4, 6, 5))
    right = x.half()
    assert torch.equal(narrowed(x), right)
    assert torch.equal(widened(right), right.float())
    assert torch.equal(rounded(x), right.float())
    assert torch.equal(round_(x.clone()), right.float())
    special = SPECIAL * 1.0
    assert torch.equal(round_(special.clone()).nan_to_num(7), special.half().float().nan_to_num(7))


@pytest.mark.parametrize("shape", [(7, 5), (3, 5, 4), (2, 5, 3, 3), (0, 5)])
def test_biases_are_added_to_rounded_products(shape):
    """As two operations on halves would do it, in order and with channels last."""
    x, bias = torch.randn(shape) * 100, halves(5).float()
    column = bias.half().reshape(-1, *[1] * (x.dim() - 2))
    right = (x.half() + column).float()
    assert torch.equal(add_bias_(x.clone(), bias), right)
    if x.dim() == 4:
        last = x.contiguous(memory_format=torch.channels_last)
        assert torch.equal(add_bias_(last.clone(), bias), right)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_large_tensors_are_converted_in_parts(n_threads):
    """Split across as many threads as PyTorch has, without gaps between the parts."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        x = torch.randn(700_001)
        assert torch.equal(rounded(x), x.half().float())
        assert torch.equal(round_(x.clone()), x.half().float())
        rows, bias = torch.randn(1001, 700), halves(700).float()
        right = (rows.half() + bias.half()).float()
        assert torch.equal(add_bias_(rows.clone(), bias), right)
    finally:
        torch.set_num_threads(before)


def test_copies_of_weights_follow_them():
    """A float32 copy is made once, and again after the half was written."""
    weight, other = halves(5), torch.ones(2)
    copies = WideCopies()
    (first, same) = copies.of([weight, other])
    assert same is other
    assert copies.of([weight])[0] is first
    weight.mul_(2)
    assert torch.equal(copies.of([weight])[0], weight.float())
    (copy,) = copies.of([weight])
    copy.add_(1e-5)
    copies.store([weight], [copy])
    assert torch.equal(copy, weight.float())
    assert torch.equal(copies.of([weight])[0], weight.float())


# -- operations: one rounding of what float32 gives ------------------------------------------------

ONE_ROUNDING = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "number": lambda x, _: x * 0.1 + 0.7,
    "tiny number": lambda x, _: x + 1e-5,
    "huge number": lambda x, _: x * 1e6,
    "maximum": torch.maximum,
    "clamp": lambda x, _: x.clamp(-0.3, 0.1),
    "relu": lambda x, _: F.relu(x),
    "where": lambda x, y: torch.where(x > y, x, y),
    "where number": lambda x, _: torch.where(x > 0, x, 0.1),
    "masked_fill": lambda x, _: x.masked_fill(x > 0, 0.1),
    "exp": lambda x, _: x.exp(),
    "tanh": lambda x, _: x.tanh(),
    "gelu": lambda x, _: F.gelu(x),
    "softmax": lambda x, _: x.softmax(-1),
    "log_softmax": lambda x, _: F.log_softmax(x, -1),
    "sum": lambda x, _: x.sum(0),
    "mean": lambda x, _: x.mean(1),
    "amax": lambda x, _: x.amax(1),
    "layer_norm": lambda x, _: F.layer_norm(x, (6,)),
    "matmul": lambda x, y: x @ y.T,
    "bmm": lambda x, y: torch.bmm(x[None], y.T[None]),
    "cat": lambda x, y: torch.cat([x, y]),
    "gather": lambda x, _: x[torch.tensor([2, 0])],
    "cumsum": lambda x, _: x.cumsum(0),
    "float inside": lambda x, y: (x.float() * y.float() + 1e-4).half(),
    "half and float": lambda x, y: x * y.float(),
    "sort": lambda x, _: x.sort(0).values,
    "topk": lambda x, _: x.topk(2).values,
    "max_pool": lambda x, _: F.max_pool2d(x[None, None], 2),
    "avg_pool": lambda x, _: F.avg_pool2d(x[None, None], 2),
    "integers": lambda x, _: x + torch.full((6,), 2049),
}
X, Y = halves(4, 6), halves(4, 6, seed=1)


@pytest.mark.parametrize("name", ONE_ROUNDING)
def test_host_gives_what_pytorch_gives_for_halves(name):
    """PyTorch computes one operation on halves in float32 too; sums may differ in their order."""
    function = ONE_ROUNDING[name]
    (result,), right = on_host(function, X, Y), function(X, Y)
    assert result.dtype == right.dtype
    if right.dtype is HALF:
        assert ulps(result, right) <= 1
    else:
        torch.testing.assert_close(result, right)


EXACT = [
    "add", "mul", "div", "number", "tiny number", "huge number", "maximum", "clamp", "relu",
    "where", "where number", "masked_fill", "amax", "cat", "gather", "float inside", "sort",
    "max_pool",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("names", [EXACT, sorted(set(ONE_ROUNDING) - set(EXACT) - {"integers"})])
def test_host_equals_tiles(names):
    """Bit for bit where nothing is summed and no function is approximated, else to 2 ulps."""

    def all_of_them(x, y):
        return [ONE_ROUNDING[name](x, y) for name in names]

    for name, host, tiles in zip(
        names, on_host(all_of_them, X, Y), run_on_tiles(all_of_them, X, Y), strict=True
    ):
        if host.dtype is HALF:
            assert ulps(host, tiles) <= (0 if names is EXACT else 2), name
        else:
            torch.testing.assert_close(host, tiles, msg=name)


IN_STEPS = {
    "addmm": lambda x, y, b: torch.addmm(b, x, y.T),
    "addmm, factors": lambda x, y, b: torch.addmm(b, x, y.T, beta=0.3, alpha=0.7),
    "baddbmm": lambda x, y, b: torch.baddbmm(b.expand(1, 4, 4), x[None], y.T[None]),
    "scaled sum": lambda x, y, _: torch.add(x, y, alpha=0.3),
    "convolution": lambda x, y, b: F.conv2d(x[None, None], y[:, None, :2, None], b),
    "convolution 1d": lambda x, y, b: F.conv1d(x[:, None], y[:, None, :3], b),
}


@pytest.mark.parametrize("name", IN_STEPS)
def test_products_are_rounded_before_biases_are_added(name):
    """Host and tiles are equal: float sums of few products of halves hardly ever differ."""
    function, bias = IN_STEPS[name], halves(4, seed=2, scale=30)
    (host,), (tiles,) = on_host(function, X, Y, bias), run_on_tiles(function, X, Y, bias)
    assert ulps(host, tiles) == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x,
        lambda x: x * 2,
        lambda x: x.sum(),
        lambda x: x[None] @ torch.ones_like(x)[:, None],
        lambda x: torch.full_like(x, 1e9),
        lambda x: x.masked_fill(x > 0, 1e9),
        lambda x: F.pad(x, (1, 1), value=1e9)[:1],
        lambda x: (x.float() * 2).half(),
    ],
)
def test_what_no_half_can_hold_is_infinite(function):
    """From 65520 on, as in half arithmetic, although float32 could hold it."""
    (result,) = on_host(function, torch.full((3,), 40000.0, dtype=HALF))
    assert result.dtype is HALF
    assert result.isinf().all()


def test_intermediate_results_overflow_too():
    """(x · 2) / 2 is infinite where x · 2 is."""
    x = torch.tensor([40000.0, 1.0], dtype=HALF)
    (result,) = on_host(lambda x: (x * 2) / 2, x)
    assert result.tolist() == [math.inf, 1.0]


def test_comparisons_are_of_halves():
    """A number is compared as the half it would be; with a float tensor, halves become floats."""
    x = torch.tensor([0.1, 0.3], dtype=HALF)
    result = on_host(lambda x: (x == 0.1, x == torch.tensor([0.1, 0.3]), x < 0.3), x)
    assert [f.tolist() for f in result] == [[True, False], [False, False], [True, False]]


@pytest.mark.parametrize(
    "function",
    [
        torch.nan_to_num,
        lambda x: torch.nextafter(x, x + 1),
        lambda x: x.view(torch.int16),
        lambda x: x.view(torch.int16).view(HALF),
        lambda x: torch.zeros(3, dtype=HALF) + x[:3],
        lambda x: torch.arange(5, dtype=HALF) * 0.5,
        lambda x: x.to(torch.int32),
        lambda x: torch.view_as_real(torch.complex(x, x + 1)),
        lambda x: torch.view_as_real(torch.view_as_complex(torch.stack([x, x * 2], 1))),
        lambda x: x.double() * 0.1,
        lambda x: torch.full((2,), 0.1, dtype=HALF),
    ],
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_what_depends_on_the_type_sees_halves(function):
    """Largest numbers, neighbours, bits, complex and new tensors are those of halves."""
    x = torch.tensor([1.5, -2.25, math.inf, 100.0], dtype=HALF)
    (result,) = on_host(function, x)
    assert torch.equal(result, function(x))


def test_a_zero_gradient_is_of_halves():
    """A sign has no gradient: PyTorch returns a special zero tensor for it."""

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(torch.sgn(x).sum(), x)[0]

    (result,) = on_host(gradient, torch.tensor([1.5, -2.25], dtype=HALF))
    assert result.dtype is HALF
    assert torch.equal(result, torch.zeros(2, dtype=HALF))


def test_random_numbers_are_halves_below_one():
    """A float32 below 1 could round to 1; a half that was drawn cannot."""
    (result,) = on_host(torch.rand_like, torch.zeros(200_000, dtype=HALF))
    assert result.dtype is HALF
    assert result.min() >= 0
    assert result.max() < 1


def test_inputs_keep_their_values():
    """A float input that the model converts is rounded in a copy."""
    x = torch.full((4,), 0.1)
    on_host(lambda x: (x.half() + 1, F.dropout(x, training=False).half() * 2), x)
    assert torch.equal(x, torch.full((4,), 0.1))


# -- whole steps -----------------------------------------------------------------------------------


class Net(nn.Module):
    """Convolution, norms with float statistics, attention, a dense layer, a loss in float."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.last, self.out = nn.LayerNorm(4), nn.Linear(4, 3)
        self.half()
        self.norm.float()

    def forward(self, x, labels):
        y = F.relu(self.norm(self.convolution(x).float()).half())
        y = y.flatten(2).transpose(1, 2)
        y = self.last(y + self.attention(y, y, y)[0]).mean(1)
        return F.cross_entropy(self.out(y).float(), labels)


def a_step():
    torch.manual_seed(0)
    model = Net()
    inputs = halves(3, 1, 6, 6), torch.tensor([0, 2, 1], dtype=torch.int32)
    return model, inputs, training_step(model, *inputs)


@pytest.mark.slow
def test_only_conversions_see_halves():
    """In a whole training step no operation computes with halves, before the pass many do."""
    step = apply(a_step()[2], HOST_PASSES)
    assert len(see_halves(step) - {CONVERSION}) > 5
    assert see_halves(widen_halves(step)) == {CONVERSION}


def see_halves(step: CapturedStep) -> set[object]:
    """The operations of a step that have an operand or a result in halves."""
    result = set()
    for node in step.graph.nodes:
        touched = [n for n in (node, *node.all_input_nodes) if "val" in n.meta]
        values = [n.meta["val"] for n in touched if isinstance(n.meta["val"], torch.Tensor)]
        if node.op == "call_function" and any(v.dtype is HALF for v in values):
            result.add(node.target)
    return result


@pytest.mark.slow
def test_a_gpu_computes_halves_itself():
    """Only on a CPU are halves computed as floats."""
    _, _, step = a_step()
    assert HostProgram(step, device=torch.device("cpu")).is_wide
    assert not HostProgram(step, device=torch.device("meta")).is_wide


class Recurrent(nn.Module):
    """An LSTM whose last output is classified: backward needs values that forward saved."""

    def __init__(self):
        super().__init__()
        self.net, self.out = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        y = self.out(self.net(x)[0][:, -1]).float()
        return F.mse_loss(y, torch.zeros_like(y))


class Looped(nn.Module):
    """A product in a loop that runs in the program."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3) * 0.3)

    def forward(self, x):
        (y,) = record_loop(active(), 3, lambda t: (t @ self.weight + 0.1,), [x])
        return y


class Dropped(nn.Module):
    """Dropout between dense layers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 64), nn.Linear(64, 2)

    def forward(self, x):
        y = self.last(F.dropout(self.first(x), 0.2)).float() * 0  # whatever was dropped
        return F.mse_loss(y, torch.zeros_like(y))


@pytest.mark.parametrize(("make", "trains"), [(Recurrent, 1), (Looped, 0), (Dropped, 1)])
def test_what_runs_code_of_its_own_is_near_float(make, trains):
    """Tapes of recurrent nets, bodies of loops and random draws work with halves, too."""
    torch.manual_seed(0)
    model, x = make(), torch.randn(2, 5, 3)
    result = []
    for dtype in (HALF, torch.float32):
        typed, inputs = copy.deepcopy(model).to(dtype), x.to(dtype)
        step = training_step(typed, inputs) if trains else captured(typed, inputs)
        session = HostSession(step, Repetition(), HostSettings(host="eager", device="cpu"))
        session.write_weights(list(typed.parameters()), [])
        if trains:
            session.write_states(step.rule.initial_state(list(typed.parameters())))
            session.set_hyper(hyper_values(step.rule, torch.optim.SGD(typed.parameters(), lr=0.1)))
        outputs = []
        session.run([[inputs]], lambda _number, values, to=outputs: to.extend(values))
        result.append([t.float() for t in (*outputs, *session.read_weights()[0])])
    for of_halves, of_floats in zip(*result, strict=True):
        torch.testing.assert_close(of_halves, of_floats, rtol=1e-2, atol=1e-2)


def test_an_overflow_is_blamed_on_what_was_rounded():
    """The error of a checked step names the product, not the conversion after it."""
    step = captured(lambda x: x * 2, X)
    settings = HostSettings(host="eager", device="cpu")
    session = HostSession(step, Repetition(), settings, checks_floats=True)
    session.write_weights([], [])
    with pytest.raises(FloatingPointException, match=r"mul.* overflows"):
        session.run([[torch.full_like(X, 40000.0)]], lambda *_: None)


# PyTorch itself rounds inside these more often than once.
MORE_OFTEN_IN_PYTORCH = {
    "grid_sampler_2d", "grid_sampler_3d", "matrix_exp", "nn.functional.conv_transpose3d",
    "nn.functional.grid_sample", "nn.functional.soft_margin_loss",
}  # fmt: skip
N_SHARDS = 12


def half_samples(name):
    """Calls of an operator of PyTorch's database with halves, and of their gradients."""
    op = op_db.operators()[name]
    for trained, dtypes in ((False, op.dtypes), (True, op.supported_backward_dtypes("cpu"))):
        if HALF in dtypes and HALF in op.dtypes:
            samples = op_db.sample_inputs(op, HALF, trained=trained)
            for sample in itertools.islice(samples, 4):
                result = op_db.Sample.of(op, sample)
                yield result, result.with_gradients if trained else result.forward


def difference_on_halves(name, sample, function):
    """A description of how host and PyTorch differ; empty for what cannot be compared."""
    try:
        right = function(*op_db._copies(sample.tensors))
        if op_db.why_not_counted(sample, right) or op_db._is_random(name, sample):
            return ""
        step = record_function(function, op_db._copies(sample.tensors))
    except Exception:  # noqa: BLE001 - what does not run in PyTorch or cannot be recorded
        return ""
    result = op_db.run_on_host(step, sample.tensors)
    pairs = zip(result, right, strict=True)
    return "; ".join(filter(None, (op_db._difference(a, b, 2e-2, 2e-2) for a, b in pairs)))


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", range(N_SHARDS))
def test_every_operator_of_pytorch_takes_halves(shard):
    """Forward and gradient, close to PyTorch's, which rounds some intermediate values elsewhere."""
    wrong = {}
    for name in sorted(set(op_db.operators()) - MORE_OFTEN_IN_PYTORCH)[shard::N_SHARDS]:
        for sample, function in half_samples(name):
            if result := difference_on_halves(name, sample, function):
                wrong[name] = result
    assert not wrong
