"""PopTorch's operations: eagerly, in compiled models and on tiles, with the described errors."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.frontends.poptorch.models import (
    Model,
    assert_same_everywhere,
    flat,
    on_host,
    on_tiles,
    quiet,
)
from tremula.ir.nodes import schema_name
from tremula.ir.origin import ORIGIN
from tremula.ir.settings import configured

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


# -- losses and marks ------------------------------------------------------------------------------


def test_identity_loss_outside_of_a_model():
    """It is a reduction of CPU tensors; other reductions assert."""
    assert poptorch.identity_loss(X, "none") is X
    torch.testing.assert_close(poptorch.identity_loss(X, "sum"), X.sum())
    torch.testing.assert_close(poptorch.identity_loss(X, reduction="mean"), X.mean())
    with pytest.raises(AssertionError, match="'sum', 'mean' or 'none', got 'max'"):
        poptorch.identity_loss(X, "max")


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_identity_loss_is_what_is_minimised(reduction):
    """The marked tensor is differentiated, reduced as it says; other losses feed it."""

    class Squares(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.arange(3.0))

        def forward(self, x):
            inner = F.mse_loss(self.w * x, torch.zeros(3), reduction="none")
            return poptorch.identity_loss(inner, reduction)

    model, x = Squares(), torch.tensor([1.0, 2.0, 3.0])
    twin = Squares()
    loss = twin(x)
    loss.sum().backward()
    compiled = poptorch.trainingModel(model, quiet(), torch.optim.SGD(model.parameters(), lr=0.1))
    torch.testing.assert_close(compiled(x), loss.detach())
    compiled.copyWeightsToHost()
    torch.testing.assert_close(model.w.data, torch.arange(3.0) - 0.1 * twin.w.grad)


def test_identities():
    """nop, checkpoints, memory shares and overlap leave values and containers as they are."""

    def function(x):
        a, b = poptorch.recomputationCheckpoint(x, x + 1)
        (c,) = poptorch.recomputationCheckpoint([x * 2])
        d = poptorch.set_available_memory(x @ x.t(), 0.2)
        return poptorch.nop(a), b, c, d, poptorch.recomputationCheckpoint(x * 3)

    assert_same_everywhere(function, X, tiles=False)
    assert isinstance(poptorch.recomputationCheckpoint([X, X]), list)
    assert isinstance(poptorch.recomputationCheckpoint((X, X)), tuple)
    assert poptorch.recomputationCheckpoint(X) is X
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        poptorch.set_available_memory(X, 1.5)


def test_memory_share_is_noted():
    """In a compiled model the product that made the tensor has the share."""
    model = poptorch.inferenceModel(
        Model(lambda x, w: poptorch.set_available_memory(F.linear(x, w), 0.3))
    )
    model(X, torch.randn(5, 6))
    nodes = model.compiled_program().step.graph.nodes
    shares = [
        n.meta[ORIGIN].choices.available_memory for n in nodes if schema_name(n) == "aten::mm"
    ]
    assert shares == [0.3]


PRINTED = """\
x: (
 (0.000, 1.000, 2.000)
 (3.000, 4.000, 5.000)
)
"""


def test_print_tensor(capfd):
    """Values go to standard error each time, on the host and on tiles; gradients in training."""
    x = torch.arange(6.0).reshape(2, 3)
    for way in (on_host, on_tiles):
        capfd.readouterr()
        way(lambda x: poptorch.ipu_print_tensor(x, "x") + 1, x)
        assert capfd.readouterr().err == PRINTED

    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.0, 2.0]))

        def forward(self, x):
            y = poptorch.ipu_print_tensor(self.w * x, "y", digits=3)
            return poptorch.identity_loss(y * 2, "sum")

    model = poptorch.trainingModel(Weighted(), quiet())
    model(torch.tensor([3.0, 4.0]))
    assert capfd.readouterr().err == "y: (3.00, 8.00)\ny_gradient: (2.00, 2.00)\n"


def test_marks_are_for_tensors():
    """Operations that mark a tensor reject anything else, by PopTorch's class and text."""
    with pytest.raises(poptorch.Error, match=r"nop must take a torch\.tensor argument\. .*int"):
        poptorch.nop(1)
    with pytest.raises(poptorch.Error, match=r"only set available memory for torch\.tensor values"):
        poptorch.set_available_memory([X], 0.5)
    for value in (1, [X, 1]):
        with pytest.raises(ValueError, match="All inputs must be tensors"):
            poptorch.recomputationCheckpoint(value)


CURLY = {"separator": " ", "open_bracket": "{", "close_bracket": "}"}
NARROW = {"digits": 3, "float_format": "scientific", "max_line_width": 12, "separator": ","}
FORMS = [
    (CURLY, "{\n {1.500 2.250}\n {3.000 4.000}\n}"),
    (NARROW, "(\n (1.50e+00,\n   2.25e+00)\n (3.00e+00,\n   4.00e+00)\n)"),
    ({"float_format": "fixed", "separator": ";"}, "(\n (1.500;2.250)\n (3.000;4.000)\n)"),
]


@pytest.mark.parametrize(("form", "text"), FORMS)
def test_layout_of_printed_tensors(form, text, capfd):
    """Rows are on separate lines without a separator; long rows continue on the next, indented."""
    x = torch.tensor([[1.5, 2.25], [3.0, 4.0]])
    on_host(lambda x: poptorch.ipu_print_tensor(x, "title", **form) + 1, x)
    assert f"title: {text}\n" in capfd.readouterr().err


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(poptorch.MatMulSerializationMode))
def test_serialized_mat_mul(mode):
    """Whatever dimension is cut, the value is that of matmul, and so are the gradients."""
    w = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(w.clone())

        def forward(self, x):
            y = poptorch.serializedMatMul(x, self.w, mode, factor=2)
            return y, poptorch.identity_loss(y * y, "sum")

    model = Product()
    torch.testing.assert_close(on_host(Product(), X)[0], X @ w)
    compiled = poptorch.trainingModel(model, quiet(), torch.optim.SGD(model.parameters(), lr=0.1))
    compiled(X)
    compiled.copyWeightsToHost()
    torch.testing.assert_close(model.w.data, w - 0.1 * 2 * X.t() @ (X @ w))


def test_serialized_mat_mul_rejects_uneven_parts():
    """A dimension that the factor does not divide is an error; a mode must be one."""
    cut = poptorch.MatMulSerializationMode.OutputChannels
    with pytest.raises(poptorch.Error, match="OutputChannels of size 4 into 3 equal parts"):
        on_host(lambda x: poptorch.serializedMatMul(x, x.t(), cut, 3), X)
    with pytest.raises(AssertionError, match="MatMulSerializationMode"):
        poptorch.serializedMatMul(X, X.t(), "none")


# -- loops and branches ----------------------------------------------------------------------------


def test_for_loop():
    """Results feed the next round, outer tensors may be used, inputs are passed by value."""

    def function(x, y):
        def body(a, b):
            a += b  # by value: x itself stays
            return [a * 0.5 + y, b - 1]

        inner = poptorch.for_loop(3, body, [x, y])
        (nested,) = poptorch.for_loop(
            2, lambda a: poptorch.for_loop(2, lambda c: c * 2 + x, [a])[0], [x + 1]
        )
        return inner, nested, x, poptorch.for_loop(0, lambda a: a + 1, [x])

    assert_same_everywhere(function, X, X + 1)
    assert isinstance(poptorch.for_loop(2, lambda a: a + 1, [X]), list)


def test_for_loop_errors():
    """Only lists of tensors, only in inference, and shapes stay."""
    with pytest.raises(ValueError, match=re.escape("(Object is not list)")):
        poptorch.for_loop(2, lambda a: a, (X,))
    text = "(Object contained in list at index 1 is not torch.tensor)"
    with pytest.raises(ValueError, match=re.escape(text)):
        poptorch.for_loop(2, lambda a, b: [a, b], [X, 3])
    with pytest.raises(poptorch.Error, match=re.escape("turns its input 0 from float32[4, 6]")):
        on_host(lambda x: poptorch.for_loop(2, lambda a: a.t(), [x])[0], X)
    with pytest.raises(poptorch.Error, match="gives 2 tensors, but takes 1"):
        on_host(lambda x: poptorch.for_loop(2, lambda a: [a, a], [x])[0], X)
    in_training("poptorch.for_loop() is only supported in inference.", lambda x: poptorch.for_loop(
        2, lambda a: a, [x])[0])  # fmt: skip
    with pytest.raises(poptorch.Error, match="writes a tensor of the model around it"):
        on_host(lambda x: poptorch.for_loop(2, lambda a: a + x.add_(1), [x + 1])[0], X)


def in_training(text, function):
    model = Model(lambda x: poptorch.identity_loss(function(x), "sum"))
    model.w = nn.Parameter(torch.ones(1))
    with pytest.raises(poptorch.Error, match=re.escape(text)):
        poptorch.trainingModel(model, quiet())(X)


@pytest.mark.parametrize("number", [1.0, -1.0])
def test_cond(number):
    """The branch that the condition chooses runs; both may use tensors around them."""

    def function(x, c):
        chosen = poptorch.cond(
            c.sum() > 0, lambda a: [a + x, a * 2], [x * 3], lambda a, b: [a - b, x], [x, x + 1]
        )
        return chosen, poptorch.cond(c > 0, lambda: x + 1, [], lambda: x, [])

    assert_same_everywhere(function, X, torch.tensor([number]))


def test_cond_errors():
    """Inference only; as many outputs, of the same shapes, from both branches."""
    with pytest.raises(poptorch.Error, match="give 1 and 2 tensors"):
        on_host(lambda x: poptorch.cond(x.sum() > 0, lambda: x, [], lambda: [x, x], []), X)
    with pytest.raises(poptorch.Error, match="shapes and types must be the same"):
        on_host(lambda x: poptorch.cond(x.sum() > 0, lambda: x, [], lambda: x[0], []), X)
    with pytest.raises(ValueError, match="then_inps"):
        poptorch.cond(torch.tensor(True), lambda: X, None, lambda: X, [])
    in_training("poptorch.cond() is only supported in inference.", lambda x: poptorch.cond(
        x.sum() > 0, lambda: x, [], lambda: x, [])[0])  # fmt: skip


# -- dynamic slices --------------------------------------------------------------------------------


def test_dynamic_slice_and_update():
    """Rows from a start computed on the device; beyond the end they go on at the beginning."""

    def function(x, start):
        return (
            poptorch.dynamic_slice(x, 1, start, 3, 1),
            poptorch.dynamic_slice(x, -1, start, 4, 2),
            poptorch.dynamic_slice(x, 0, start - 4, 2, 1),
            poptorch.dynamic_update(x, torch.zeros(4, 3), 1, start, 3),
        )

    assert_same_everywhere(function, X, torch.tensor([4]))
    wrapped = poptorch.dynamic_slice(X, 1, torch.tensor(5), 2, 1)
    torch.testing.assert_close(wrapped, X[:, [5, 0]])


def test_gradients_of_dynamic_slices():
    """What was sliced or written gets its gradient, all else none."""
    x, u, start = (
        X.clone().requires_grad_(True),
        torch.ones(4, 2, requires_grad=True),
        torch.tensor(5),
    )
    poptorch.dynamic_slice(x, 1, start, 2, 1).sum().backward()
    assert x.grad[0].tolist() == [1, 0, 0, 0, 0, 1]
    x.grad = None
    (poptorch.dynamic_update(x, u, 1, torch.tensor(1), 2) * 3).sum().backward()
    assert x.grad[0].tolist() == [3, 0, 0, 3, 3, 3]
    assert u.grad.tolist() == [[3, 3]] * 4


START = torch.tensor(1)
NO_TENSOR = "{} must be a torch.tensor. <class 'int'> is not supported."
SLICE_START = NO_TENSOR.format("Slice start argument to dynamic_slice")
UPDATE_START = NO_TENSOR.format("Slice start argument to dynamic_update")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1, 0.5, 1, 2.0, 1.0), "dynamic_slice must take a torch.tensor input. <class 'int'> is"),
        ((X, 0.5, 1, 2.0, 1.0), "Dimension must be an integer."),
        ((X, 5, 1, 2.0, 1.0), SLICE_START),
        ((X, 5, torch.tensor(1.0), 2.0, 1.0), "Size must be an integer."),
        ((X, 5, torch.tensor(1.0), 7, 1.0), "Step must be an integer."),
        ((X, 5, torch.tensor(1.0), 7, 0), "one of the 2 that the tensor has, got 5"),
        ((X, 0, torch.tensor(1.0), 7, 0), "must be one whole number, got torch.float32[]"),
        ((X, 0, START, 7, 0), "Size of dynamic_slice must be between 1 and 4, got 7"),
        ((X, 0, START, 2, 0), "Step of dynamic_slice must be above 0, got 0"),
    ],
)
def test_dynamic_slice_errors(arguments, text):
    """Types are checked first, from the first argument to the last, then whether they fit."""
    with pytest.raises(poptorch.Error, match=re.escape(text)):
        poptorch.dynamic_slice(*arguments)


LONG = torch.zeros(4, 3, 1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1, 1, 0.5, 1, 2.0), "dynamic_update must take a torch.tensor input. <class 'int'> is"),
        ((X, 1, 0.5, 1, 2.0), "Dimension must be an integer."),
        ((X, 1, 5, 1, 2.0), UPDATE_START),
        ((X, 1, 5, START, 2.0), NO_TENSOR.format("Src argument to dynamic_update")),
        ((X, LONG, 5, START, 2.0), "Size must be an integer."),
        ((X, LONG, 5, START, 2), "tensors must have same dimensionality. (2) vs (3)"),
        ((X, LONG[0], 5, START, 2), "must have same dtype. (torch.float32 vs torch.int64)"),
        ((X, X, 5, START, 2), "one of the 2 that the tensor has, got 5"),
        ((X, X[:, :3], 1, START, 2), "must have shape [4, 2], got [4, 3]"),
    ],
)
def test_dynamic_update_errors(arguments, text):
    """The source has the type and the shape of what it replaces; types are checked first."""
    with pytest.raises(poptorch.Error, match=re.escape(text)):
        poptorch.dynamic_update(*arguments)


# -- sequences and points --------------------------------------------------------------------------


def test_ctc_beam_search():
    """The likeliest labels of short sequences, on the host and on tiles."""
    logits = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([5, 3], dtype=torch.int32)

    def function(x, lengths):
        return poptorch.ctc_beam_search_decoder(
            torch.log_softmax(x, -1), lengths, blank=0, beam_width=60, top_paths=2
        )

    assert_same_everywhere(function, logits, lengths)
    probabilities, counts, paths = function(logits, lengths)
    assert (probabilities.shape, counts.shape, paths.shape) == ((2, 2), (2, 2), (2, 2, 5))
    certain = torch.full((4, 1, 3), -20.0)
    for step, label in enumerate([1, 1, 0, 1]):  # 1 1 _ 1 reads 1 1
        certain[step, 0, label] = 0.0
    result = poptorch.ctc_beam_search_decoder(certain, torch.tensor([4], dtype=torch.int32))
    assert result[2][0, 0, : result[1][0, 0]].tolist() == [1, 1]
    with pytest.raises(poptorch.Error, match=re.escape("needs probs [T, N, C] and lengths [N]")):
        poptorch.ctc_beam_search_decoder(X, lengths)


def test_farthest_points():
    """The first point, then always the one farthest from those taken, in each cloud."""
    line = torch.tensor([[0.0], [1.0], [10.0], [4.0], [0.0], [5.0], [2.0]])
    assert poptorch.fps(line, [0, 4, 7], 0.75).tolist() == [0, 2, 3, 4, 5, 6]
    assert poptorch.fps(line, [0, 7], 0.2, random_start=True).shape == (2,)
    points = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    assert_same_everywhere(lambda p: poptorch.fps(p, [0, 8, 20], ratio=0.5), points)
    with pytest.raises(ValueError, match="ptr must hold growing places"):
        poptorch.fps(line, [0, 4, 4])
    with pytest.raises(ValueError, match="ratio must be above 0"):
        poptorch.fps(line, [0, 7], 0.0)


def test_nearest():
    """The nearest point of the same batch, with batches as lists or tensors."""
    x = torch.tensor([[0.0, 0.0], [5.0, 5.0], [9.0, 9.0]])
    y = torch.tensor([[8.0, 8.0], [1.0, 0.0], [4.0, 6.0]])
    assert poptorch.nearest(x, y).tolist() == [1, 2, 0]
    assert poptorch.nearest(x, y, [0, 0, 1], [0, 1, 1]).tolist() == [0, 0, 2]
    batches = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])

    def function(x, y, a, b):
        return poptorch.nearest(x, y, a, b), poptorch.nearest(x, y, [0, 0, 1], [0, 0, 1])

    assert_same_everywhere(function, x, y, *batches)
    with pytest.raises(ValueError, match="'batch_x' is not sorted"):
        poptorch.nearest(x, y, [1, 0, 0], [0, 0, 1])
    with pytest.raises(ValueError, match=re.escape("do not occur in 'batch_y': [2]")):
        poptorch.nearest(x, y, [0, 1, 2], [0, 0, 1])


# -- code on the CPU -------------------------------------------------------------------------------


class WithCpuLayer(nn.Module):
    """Its second layer runs on the CPU and cannot be recorded."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)
        self.cpu = poptorch.CPU(self.on_cpu, "MyCpuOp")
        self.n_calls = 0

    def on_cpu(self, x, scale):
        self.n_calls += 1
        values = torch.from_numpy(x.numpy() * scale)
        return self.second(values) if self.n_calls < 0 else values

    def forward(self, x):
        return self.cpu(self.first(x), 2.0) + 1


def test_cpu_layer():
    """Python code runs on the CPU each time the model does, on the host and on tiles."""
    model = WithCpuLayer()
    with torch.no_grad():
        wanted = model(X)
    for way in (on_host, on_tiles):
        before = model.n_calls
        torch.testing.assert_close(way(model, X), wanted)
        assert model.n_calls == before + 2  # once for shapes, once for values


def test_cpu_module_keeps_its_weights():
    """A module under poptorch.CPU computes with its own weights, also while it is recorded."""
    layer = nn.Linear(6, 2)
    model = Model(poptorch.CPU(layer, "linear"))
    model.layer = layer
    torch.testing.assert_close(on_host(model, X), layer(X).detach())
    in_training("poptorch.CPU() is only supported in inference.", poptorch.CPU(layer, "linear"))


# -- backends --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_loops_and_prints_with_inductor(capfd):
    """These operations work inside a step that PyTorch's compiler compiles."""
    body = lambda a: a * 2 + 1  # noqa: E731
    with configured(host="inductor", device="cpu"):
        model = poptorch.inferenceModel(
            Model(lambda x: poptorch.ipu_print_tensor(poptorch.for_loop(2, body, [x])[0], "out"))
        )
        result = model(X)
    torch.testing.assert_close(result, (X * 2 + 1) * 2 + 1)
    assert "out: (" in capfd.readouterr().err
    assert len(flat(result)) == 1


# -- recomputation in a pipeline -------------------------------------------------------------------


class Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            if number % 2 == 0:
                poptorch.Block.start(f"stage{number}", ipu_id=number // 2)
            x = torch.tanh(layer(x))
        return poptorch.identity_loss(x.square(), "mean")


@pytest.mark.slow
def test_pipelines_compute_their_stages_again():
    """A pipeline trained on tiles recomputes its first stage and gives what the host gives."""
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(2))
    result = []
    for tiles in ("lazy", "run"):
        model = Pipeline()
        options = quiet()
        options.Training.gradientAccumulation(3)
        with configured(tiles=tiles, host="eager", device="cpu"):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            compiled = poptorch.trainingModel(model, options, optimizer)
            compiled(x)
            compiled.copyWeightsToHost()
        assert compiled.tile_program().recomputed_stages == (0, 1)
        result.append([p.detach().clone() for p in model.parameters()])
    for on_the_host, by_tiles in zip(*result, strict=True):
        torch.testing.assert_close(by_tiles, on_the_host, rtol=1e-4, atol=1e-6)
    options = quiet()
    options._Popart.set("autoRecomputation", 0)
    options.Training.gradientAccumulation(3)
    with configured(tiles="lazy", host="eager", device="cpu"):
        compiled = poptorch.trainingModel(Pipeline(), options)
        compiled(x)
    assert compiled.tile_program().recomputed_stages == ()
