"""Kernels of graph networks compute what PyTorch does, by ATen and as they are printed."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn

from tests.ir.host.graph_kernels import triton_in_numpy
from tests.ir.host.graph_kernels.layers import (
    LAYERS,
    N_EDGES,
    N_NODES,
    CutFilter,
    Filter,
    Gat,
    Gate,
    Gcn,
    Gin,
    Pna,
    Sage,
    ScaledFilter,
    TallFilter,
    TallGate,
    WideFilter,
    WithLoss,
    example,
    step_of,
)
from tests.sampling import in_turn, one_in
from tremula.ir.host.graph_kernels import fuse, kernels
from tremula.ir.host.graph_kernels.fuse import fuse_graph_kernels
from tremula.ir.host.graph_kernels.printers import gluon_features
from tremula.ir.host.graph_kernels.regions import FEATURE_MAJOR, FLOAT32, TF32, FusionLimits
from tremula.ir.host.graph_kernels.segment_order import segment_order
from tremula.ir.passes.split import on_device
from tremula.ir.step import GRADIENT, OUTPUT, CapturedStep

row_kernel = torch.ops.tremula.row_kernel.default
# No products in kernels, one of them, as many as fit over edges, and over nodes too.
LIMITS = {
    "no-products": FLOAT32,
    "products": replace(FLOAT32, many_edges=1),
    "chains": replace(TF32, many_edges=1, few_nodes=0),
    "chains-of-nodes": replace(TF32, many_edges=1, few_nodes=1 << 20),
}
all_limits = pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)


def run(step: CapturedStep, model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The loss and the gradients."""
    weights = [*(p.detach() for p in model.parameters()), *model.buffers()]
    rate = torch.tensor(0.1, device=inputs[0].device)
    results = step.module().forward(*weights, *inputs, rate)
    kinds = (OUTPUT, GRADIENT)
    return [r for slot, r in zip(step.outputs, results, strict=True) if slot.kind in kinds]


def in_float64(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        wide = model.double()
        loss = wide(*(t.double() if t.is_floating_point() else t for t in inputs))
        return [loss, *torch.autograd.grad(loss, list(wide.parameters()))]
    finally:
        torch.set_default_dtype(before)
        model.float()


def in_numpy(digest: str, inputs: list[Tensor], form: str = kernels.TILES) -> list[Tensor]:
    """Runs the printed kernel, in Triton with tiles of 32 rows; sums are float32."""
    kernel = kernels._kernels[digest]
    results = [
        np.zeros(shape, np.float32) if is_summed else torch.empty(shape, dtype=dtype).numpy()
        for (shape, dtype), is_summed in zip(kernel.results, kernel.is_summed, strict=True)
    ]
    arguments = [*(tensor.contiguous().numpy() for tensor in inputs), *results]
    if form in kernel.others:
        sizes = {"BLOCK": 64, "WINDOW": 16, "num_warps": 4}
        triton_in_numpy.run(kernel.others[form], arguments, 1, **sizes)
    else:
        n_programs = 2 if kernel.sums_over_rows else -(-kernel.n_rows // 32)
        sizes = {"BLOCK": 32, "WINDOW": 16, "HOIST": False}
        triton_in_numpy.run(kernel.text, arguments, n_programs, **sizes)
    matches = zip(results, kernel.results, strict=True)
    return [torch.from_numpy(result).to(dtype) for result, (_, dtype) in matches]


def in_numpy_by_segments(digest: str, inputs: list[Tensor]) -> list[Tensor]:
    """Runs the kernel printed by segments, if there is one; five rows are many for a segment."""
    kernel = kernels._kernels[digest]
    if kernels.SEGMENTS not in kernel.others:
        return in_numpy(digest, inputs)
    results = [torch.zeros(shape) for shape, _ in kernel.results]
    arguments = [tensor.contiguous().numpy() for tensor in (*inputs, *results)]
    n_programs = results[0].shape[0] - (-kernel.n_rows // 5)
    triton_in_numpy.run(kernel.others[kernels.SEGMENTS], arguments, n_programs, BLOCK=2, LONG=5)
    return results


def case_of(layer: type[nn.Module]) -> tuple[nn.Module, tuple[Tensor, ...], list[Tensor]]:
    """A model, its inputs, and what PyTorch computes in float64."""
    torch.manual_seed(0)
    model, inputs = WithLoss(layer), example()
    return model, inputs, in_float64(model, inputs)


@pytest.fixture(scope="module", params=LAYERS, ids=lambda layer: layer.__name__)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, tuple[Tensor, ...], list[Tensor]]:
    return case_of(request.param)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "limits"), in_turn(LAYERS, LIMITS), ids=lambda x: getattr(x, "__name__", x)
)
def test_kernels_compute_what_pytorch_computes(layer: type[nn.Module], limits: str):
    """Loss and all gradients, by ATen and by the text of each kernel, against float64."""
    model, inputs, expected = case_of(layer)
    fused = fuse_graph_kernels(step_of(model, inputs), torch.device("cpu"), LIMITS[limits])
    calls = [node for node in fused.graph.nodes if node.target is row_kernel]
    assert calls, "the sums of a graph network are kernels"
    for result in (run(fused, model, inputs), run(_printed(fused, calls), model, inputs)):
        for value, right in zip(result, expected, strict=True):
            torch.testing.assert_close(value.double(), right, rtol=1e-4, atol=1e-5)


def test_kernels_of_two_devices_are_different():
    """A kernel whose operations make tensors on one device is not reused on another."""

    def kernel(device: str) -> kernels.RowKernel:
        graph = fx.Graph()
        zeros = graph.call_function(
            torch.ops.aten.full.default, ([4], 0.0), {"device": torch.device(device)}
        )
        graph.output([zeros])
        module = fx.GraphModule(nn.Module(), graph)
        results = (((4,), torch.float32),)
        return kernels.RowKernel("text", 4, results, (False,), False, 0, False, module)

    assert kernel("cpu").digest == kernel("cpu").digest
    assert kernel("cpu").digest != kernel("cuda:0").digest


BY_SEGMENTS = replace(LIMITS["chains"], many_summed=1)
# Layers whose sums are alone in their kernels.
alone = pytest.mark.parametrize("layer", [Gin, Gcn, Sage], ids=lambda x: x.__name__)


@pytest.mark.slow
@alone
def test_sums_by_segment_compute_what_pytorch_computes(layer: type[nn.Module]):
    """Loss and all gradients with rows in the order of their segments, against float64."""
    torch.manual_seed(0)
    model, inputs = WithLoss(layer), example()
    expected = in_float64(model, inputs)
    fused = fuse_graph_kernels(step_of(model, inputs), torch.device("cpu"), BY_SEGMENTS)
    calls = [node for node in fused.graph.nodes if node.target is row_kernel]
    texts = [kernels._kernels[node.args[0]].others.get(kernels.SEGMENTS) for node in calls]
    assert any(texts), "two layers sum by the same index"
    result = run(_printed(fused, calls, in_numpy_by_segments), model, inputs)
    for value, right in zip(result, expected, strict=True):
        torch.testing.assert_close(value.double(), right, rtol=1e-4, atol=1e-5)


def test_a_sum_beside_weights_of_edges_is_by_segments():
    """Weights of edges that others need have a kernel: sums by them store nothing else."""
    step = step_of(WithLoss(Gcn), example())
    fused = fuse_graph_kernels(step, torch.device("cpu"), BY_SEGMENTS)
    every = [kernels._kernels[n.args[0]] for n in fused.graph.nodes if n.target is row_kernel]
    narrow = [k for k in every if any(len(shape) == 1 for shape, _ in k.results)]
    assert narrow, "weights and degrees"
    assert not any(any(k.is_summed) and not all(k.is_summed) for k in narrow)


def test_rows_in_the_order_of_their_segments():
    """Rows without a segment are last, and rows of one segment stay in order."""
    index = torch.tensor([3, 0, -1, 7, 3, 1, 0])
    order, segments, starts = segment_order(index, 4, skipped=1, wraps=False)
    assert order[: starts[-1]].tolist() == [1, 6, 0, 4]
    assert segments.tolist() == [0, 0, 3, 3, 4, 4, 4]
    assert starts.tolist() == [0, 2, 2, 2, 4]
    order, _, starts = segment_order(index, 4, skipped=-1, wraps=True)
    assert order[: starts[-1]].tolist() == [1, 6, 5, 0, 2, 4]


@pytest.fixture
def rounds_products() -> Iterator[None]:
    """Products in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


GLUON_LAYERS = tuple((kernels.GLUON, x) for x in (Pna, WideFilter, Gate, ScaledFilter))
TALL_LAYERS = (TallFilter, CutFilter, TallGate, ScaledFilter)
FEATURE_MAJOR_LAYERS = tuple((kernels.FEATURE_MAJOR_TILES, x) for x in TALL_LAYERS)
in_gluon = pytest.mark.parametrize(
    ("form", "layer"),
    one_in(2, [*GLUON_LAYERS, *FEATURE_MAJOR_LAYERS]),
    ids=lambda x: getattr(x, "__name__", x),
)
TALL_LIMITS = replace(FEATURE_MAJOR, many_edges=1, few_nodes=0)
# Edges: over fewer, a gradient of a matrix is itself small enough to be a factor of rows.
MANY = 300
EDGES = {TallFilter: MANY, CutFilter: MANY, ScaledFilter: MANY}


@pytest.mark.usefixtures("rounds_products")
@in_gluon
def test_kernels_in_gluon_compute_what_pytorch_computes(form: str, layer: type[nn.Module]):
    """Loss and all gradients by the text in Gluon of each kernel that has one."""
    torch.manual_seed(0)
    model, inputs = WithLoss(layer), example(EDGES.get(layer, N_EDGES))
    expected = in_float64(model, inputs)
    limits = TALL_LIMITS if form == kernels.FEATURE_MAJOR_TILES else LIMITS["chains"]
    fused = fuse_graph_kernels(step_of(model, inputs), torch.device("cpu"), limits)
    calls = [node for node in fused.graph.nodes if node.target is row_kernel]
    texts = [kernels._kernels[node.args[0]].others.get(form) for node in calls]
    assert any(texts), "kernels with products have such a text"
    if layer is WideFilter:
        assert any("d_r" in text for text in texts if text), "a gradient of a matrix, too"
    for node in calls:
        node.kwargs = {"form": form}
    result = run(_printed(fused, calls), model, inputs)
    for value, right in zip(result, expected, strict=True):
        torch.testing.assert_close(value.double(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("rounds_products")
@pytest.mark.parametrize("fits", [True, False])
def test_kernels_sum_all_gradients_only_where_they_can_be_feature_major(
    fits: bool, monkeypatch: pytest.MonkeyPatch
):
    """On Hopper; a step with a kernel that does not fit leaves some gradients to cuBLAS."""
    every = replace(FEATURE_MAJOR, many_edges=1)
    monkeypatch.setattr(fuse, "has_matrix_units", lambda _device: True)
    monkeypatch.setattr(fuse, "FEATURE_MAJOR", every)
    if not fits:  # into shared memory
        monkeypatch.setattr(gluon_features, "MAX_SHARED_BYTES", 0)
    step = step_of(WithLoss(CutFilter), example(MANY))
    result = fuse._limits(step, "tf32", torch.device("cpu"))
    assert result == (every if fits else TF32)


def _printed(fused: CapturedStep, calls: list, target: Callable = in_numpy) -> CapturedStep:
    for node in calls:
        node.target = target
    return fused


@pytest.mark.slow
@pytest.mark.parametrize("layer", [Filter, Gat], ids=lambda layer: layer.__name__)
def test_halves_are_rounded_when_they_are_stored(layer: type[nn.Module]):
    """Models of halves: sums and intermediate values are float32, results are halves."""
    torch.manual_seed(0)
    model, inputs = WithLoss(layer), example()
    expected = in_float64(model, inputs)
    model = model.half()
    halves = tuple(t.half() if t.is_floating_point() else t for t in inputs)
    fused = fuse_graph_kernels(step_of(model, halves), torch.device("cpu"), LIMITS["chains"])
    calls = [node for node in fused.graph.nodes if node.target is row_kernel]
    _, *gradients = run(_printed(fused, calls), model, halves)
    for value, right in zip(gradients, expected[1:], strict=True):
        assert value.dtype is torch.float16
        scale = float(right.abs().max()) + 1e-2
        torch.testing.assert_close(value.double(), right, rtol=0, atol=3e-2 * scale)


@pytest.mark.slow
def test_no_sum_into_segments_is_left_to_aten(case: tuple):
    """Every scatter_add, index_add and accumulating index_put is part of a kernel."""
    model, inputs, _ = case
    fused = fuse_graph_kernels(step_of(model, inputs), torch.device("cpu"))
    names = {str(node.target) for node in fused.graph.nodes}
    left = {"aten.scatter_add.default", "aten.index_add.default", "aten.index_put.default"}
    assert not names & left


def test_equal_layers_are_one_kernel():
    """Two layers of a model have the same text, so that it is compiled and timed once."""
    torch.manual_seed(0)
    model = WithLoss(Filter)
    fused = fuse_graph_kernels(step_of(model, example()), torch.device("cpu"))
    digests = [node.args[0] for node in fused.graph.nodes if node.target is row_kernel]
    assert len(set(digests)) < len(digests)


def test_other_steps_are_left_alone():
    """A model without sums into segments has no graph kernels."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return nn.functional.mse_loss(self.model(x), y)

    step = step_of(Loss(), (torch.randn(64, 8), torch.randn(64, 4)))
    before = str(step.graph)
    assert str(fuse_graph_kernels(step, torch.device("cpu")).graph) == before


def test_a_row_outside_its_table_is_not_a_number():
    """A wrong index shows in the loss instead of reading other memory."""
    model, inputs = WithLoss(Gin), list(example())
    inputs[2] = inputs[2].clone()
    inputs[2][0] = N_NODES + 5
    fused = fuse_graph_kernels(step_of(model, tuple(inputs)), torch.device("cpu"))
    calls = [node for node in fused.graph.nodes if node.target is row_kernel]
    loss = run(_printed(fused, calls), model, tuple(inputs))[0]
    assert torch.isnan(loss)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@all_limits
def test_triton_computes_what_pytorch_computes(case: tuple, limits: FusionLimits):
    """Loss and all gradients on a GPU in full float32, against float64."""
    torch.set_float32_matmul_precision("highest")
    model, inputs, expected = case
    device = torch.device("cuda")
    step = on_device(step_of(model, inputs), device)
    fused = fuse_graph_kernels(step, device, limits)
    on_gpu = tuple(tensor.to(device) for tensor in inputs)
    result = run(fused, model.to(device), on_gpu)
    model.cpu()
    for value, right in zip(result, expected, strict=True):
        torch.testing.assert_close(value.cpu().double(), right, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("skipped", "wraps"), [(-1, False), (3, False), (-1, True)])
def test_rows_are_ordered_by_counting(skipped: int, wraps: bool):
    """On a GPU counting gives the order of sorting, but for the order within a segment.

    Each result has separate memory that begins at a multiple of 16 bytes, as Inductor expects.
    """
    index = torch.randint(-4, 70, (5003,), generator=torch.Generator().manual_seed(1))
    order, segments, starts = segment_order(index, 64, skipped, wraps)
    ordered = torch.ops.tremula.segment_order.default(index.cuda(), 64, skipped, wraps)
    assert all(tensor.data_ptr() % 16 == 0 for tensor in ordered)
    assert len({tensor.untyped_storage().data_ptr() for tensor in ordered}) == len(ordered)
    result, gpu_segments, gpu_starts = (tensor.cpu() for tensor in ordered)
    torch.testing.assert_close((gpu_segments, gpu_starts), (segments, starts))
    for begin, end in itertools.pairwise(starts):
        assert sorted(result[begin:end].tolist()) == sorted(order[begin:end].tolist())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("launch", kernels._BY_SEGMENTS, ids=lambda x: f"rows-{x.block}")
@alone
def test_triton_sums_segment_by_segment(
    layer: type[nn.Module], launch: kernels.KernelLaunch, monkeypatch: pytest.MonkeyPatch
):
    """Every launch of a kernel by segments, on a GPU, against float64."""
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    model, inputs = WithLoss(layer), example()
    expected = in_float64(model, inputs)
    device = torch.device("cuda")
    fused = fuse_graph_kernels(on_device(step_of(model, inputs), device), device, BY_SEGMENTS)
    digests = {node.args[0] for node in fused.graph.nodes if node.target is row_kernel}
    every = [kernels._kernels[digest] for digest in digests]
    cut = [kernel for kernel in every if kernels.SEGMENTS in kernel.others]
    assert cut, "two layers sum by the same index"
    monkeypatch.setattr(kernels, "_LONG", 4)  # most segments have more rows
    for kernel in cut:
        kernel.launch = launch
    on_gpu = tuple(tensor.to(device) for tensor in inputs)
    result = run(fused, model.to(device), on_gpu)
    for kernel in cut:
        kernel.launch = None
    model.cpu()
    for value, right in zip(result, expected, strict=True):
        torch.testing.assert_close(value.cpu().double(), right, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.usefixtures("rounds_products")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["tf32", "bfloat16"])
@pytest.mark.parametrize(
    ("launch", "layer"),
    [
        *itertools.product(kernels._IN_GLUON, (Pna, WideFilter, Gate, ScaledFilter)),
        *itertools.product(kernels._FEATURE_MAJOR, TALL_LAYERS),
    ],
    ids=lambda x: getattr(x, "__name__", None) or f"{x.form}-{x.block}-{x.n_warps}",
)
def test_gluon_computes_what_pytorch_computes(
    layer: type[nn.Module], launch: kernels.KernelLaunch, dtype: torch.dtype
):
    """Every launch of a kernel in Gluon, in TF32 and in bfloat16, against float64."""
    if torch.cuda.get_device_capability()[0] != kernels._HOPPER:
        pytest.skip("needs a GPU of Hopper's kind")
    torch.manual_seed(0)
    model, inputs = WithLoss(layer), example(EDGES.get(layer, N_EDGES))
    expected = in_float64(model, inputs)
    device = torch.device("cuda")
    model = model.to(dtype)
    halves = tuple(t.to(dtype) if t.is_floating_point() else t for t in inputs)
    step = on_device(step_of(model, halves), device)
    limits = TALL_LIMITS if launch.form == kernels.FEATURE_MAJOR_TILES else LIMITS["chains"]
    fused = fuse_graph_kernels(step, device, limits)
    digests = {node.args[0] for node in fused.graph.nodes if node.target is row_kernel}
    cut = [kernels._kernels[d] for d in digests if launch.form in kernels._kernels[d].others]
    assert cut, "kernels with products have such a text"
    for kernel in cut:
        kernel.launch = launch
    result = run(fused, model.to(device), tuple(tensor.to(device) for tensor in halves))
    for kernel in cut:
        kernel.launch = None
    most = 5e-3 if dtype is torch.float32 else 0.25  # a root in Pna makes small errors large
    for value, right in zip(result, expected, strict=True):
        size = right.detach().norm() + 1e-3
        assert float((value.cpu().double() - right.detach()).norm() / size) < most
