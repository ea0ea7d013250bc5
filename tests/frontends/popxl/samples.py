"""A call of every operation with arrays, and what PyTorch computes for them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

import popxl
from popxl import ops


@dataclass(frozen=True)
class Sample:
    """An operation on arrays: `build` in PopXL, `reference` in PyTorch."""

    name: str
    arrays: tuple[np.ndarray, ...]
    build: Callable
    reference: Callable
    has_gradient: bool = True

    @property
    def differentiable(self) -> tuple[int, ...]:
        kinds = [array.dtype.kind for array in self.arrays]
        return tuple(i for i, kind in enumerate(kinds) if kind == "f") if self.has_gradient else ()


_rng = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return (np.abs(normal(*shape)) + 0.5).astype(np.float32)


def whole(n: int, *shape: int) -> np.ndarray:
    return _rng.integers(0, n, shape).astype(np.int32)


def distinct(*shape: int) -> np.ndarray:
    """Numbers of which no two are near, so that an order is certain."""
    n = int(np.prod(shape))
    return (_rng.permutation(n).reshape(shape) / n - 0.4).astype(np.float32)


def unary(name: str, reference: Callable, x: np.ndarray | None = None, **kwargs) -> Sample:
    array = normal(3, 4) if x is None else x
    return Sample(name, (array,), lambda t: getattr(ops, name)(t, **kwargs), reference)


def binary(name: str, reference: Callable, y: np.ndarray | None = None, **kwargs) -> Sample:
    second = normal(4) if y is None else y
    return Sample(name, (positive(3, 4), second), getattr(ops, name), reference, **kwargs)


def update(name: str, arrays: tuple, reference: Callable, *args, **kwargs) -> Sample:
    build = lambda *ts: getattr(ops.var_updates, name)(*ts, *args, **kwargs)  # noqa: E731
    return Sample(name, arrays, build, reference, has_gradient=False)


def reduction(name: str, reference: Callable, x: np.ndarray | None = None) -> Sample:
    array = positive(3, 4, 2) if x is None else x
    return Sample(name, (array,), lambda t: getattr(ops, name)(t, axis=(0, 2)), reference)


def in_place(name: str, reference: Callable, **kwargs) -> Sample:
    build = lambda t: getattr(ops, name)(t, **kwargs)  # noqa: E731
    return Sample(name, (normal(3, 4),), build, reference, has_gradient=False)


def _nll(p: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.nll_loss(torch.log(p), labels.long())


def _probabilities(*shape: int) -> np.ndarray:
    x = np.exp(normal(*shape))
    return (x / x.sum(-1, keepdims=True)).astype(np.float32)


def _adam(m, v, w):
    step = (m / (1 - 0.9**1)) / (torch.sqrt(v / (1 - 0.99**1)) + 1e-5)
    return step + 0.01 * w


def _medians(x: torch.Tensor) -> torch.Tensor:
    return x.permute(1, 0, 2).reshape(4, -1).median(1).values


ELEMENTWISE = [
    binary("add", torch.add), binary("sub", torch.sub), binary("mul", torch.mul),
    binary("div", torch.div, positive(4)), binary("fmod", torch.fmod, positive(4)),
    binary("pow", torch.pow),
    unary("abs", torch.abs), unary("negate", torch.neg), unary("sign", torch.sign),
    unary("floor", torch.floor), unary("ceil", torch.ceil), unary("exp", torch.exp),
    unary("sqrt", torch.sqrt, positive(3, 4)), unary("log", torch.log, positive(3, 4)),
    unary("log2", torch.log2, positive(3, 4)), unary("sin", torch.sin), unary("cos", torch.cos),
    unary("tanh", torch.tanh), unary("relu", torch.relu), unary("swish", functional.silu),
    unary("gelu", lambda x: functional.gelu(x, approximate="tanh")),
    unary("geluerf", functional.gelu), unary("softmax", lambda x: torch.softmax(x, 1), axis=1),
    unary("clip", lambda x: x.clamp(-0.5, 0.7), min=-0.5, max=0.7),
    unary("clamp", lambda x: x.clamp(-0.5, 0.7), min=-0.5, max=0.7),
    unary("identity", torch.clone), unary("rename", torch.clone, output_name="other"),
    unary("cast", lambda x: x.to(torch.int32), data_type=popxl.int32),
    unary("isnan", torch.isnan, np.array([1, np.nan], np.float32)),
    unary("isinf", torch.isinf, np.array([1, -np.inf], np.float32)),
    unary("isfinite", torch.isfinite, np.array([1, np.inf], np.float32)),
    Sample("detach", (normal(3),), ops.detach, torch.clone, has_gradient=False),
    Sample("detach_", (normal(3),), ops.detach_, torch.clone, has_gradient=False),
    Sample("equal", (whole(2, 3), whole(2, 3)), ops.equal, torch.eq),
    Sample("greater", (normal(3), normal(3)), ops.greater, torch.gt, has_gradient=False),
    Sample("logical_and", (whole(2, 4) > 0, whole(2, 4) > 0), ops.logical_and, torch.logical_and),
    Sample("logical_or", (whole(2, 4) > 0, whole(2, 4) > 0), ops.logical_or, torch.logical_or),
    Sample("logical_not", (whole(2, 4) > 0,), ops.logical_not, torch.logical_not),
    Sample("where", (whole(2, 3, 4) > 0, normal(3, 4), normal(4)), ops.where, torch.where),
    Sample("maximum", (normal(3), normal(3), normal(3)), ops.maximum,
           lambda a, b, c: torch.maximum(torch.maximum(a, b), c)),
    Sample("scaled_add", (normal(3), normal(3)), lambda a, b: ops.scaled_add(a, b, 0.5, 2.0),
           lambda a, b: 0.5 * a + 2.0 * b),
    Sample("scaled_add_", (normal(3), normal(3)), lambda a, b: ops.scaled_add_(a, b, 0.5, 2.0),
           lambda a, b: 0.5 * a + 2.0 * b, has_gradient=False),
    Sample("add_", (normal(3), normal(3)), ops.add_, torch.add, has_gradient=False),
    in_place("exp_", torch.exp), in_place("relu_", torch.relu), in_place("swish_", functional.silu),
    in_place("gelu_", lambda x: functional.gelu(x, approximate="tanh")),
    in_place("geluerf_", functional.gelu),
    Sample("increment_mod", (whole(5, 4),), lambda t: ops.increment_mod(t, 2, 5),
           lambda x: (x + 2) % 5),
    Sample("increment_mod_", (whole(5, 4),), lambda t: ops.increment_mod_(t, 2, 5),
           lambda x: (x + 2) % 5),
]  # fmt: skip

SHAPES = [
    unary("reshape", lambda x: x.reshape(2, 6), shape=(2, -1)), unary("flatten", torch.flatten),
    unary("transpose", lambda x: x.T), unary("squeeze", torch.squeeze, normal(3, 1, 2)),
    in_place("reshape_", lambda x: x.reshape(2, 6), shape=(2, 6)),
    in_place("flatten_", torch.flatten), in_place("transpose_", lambda x: x.T),
    Sample("concat", (normal(2, 3), normal(4, 3)), lambda a, b: ops.concat([a, b]),
           lambda a, b: torch.cat([a, b])),
    Sample("concat_", (normal(2, 3), normal(4, 3)), lambda a, b: ops.concat_([a, b]),
           lambda a, b: torch.cat([a, b])),
    Sample("split", (normal(6, 2),), lambda t: ops.split(t, 3), lambda x: list(torch.split(x, 2))),
    Sample("slice", (normal(6, 4),), lambda t: ops.slice(t, [4, 1], [0, 3], [-2, 1]),
           lambda x: x[1:5].flip(0)[::2, 1:3]),
    Sample("slice_", (normal(6, 4),), lambda t: ops.slice_(t, 1, 3, axis=1), lambda x: x[:, 1:3]),
    unary("subsample", lambda x: x[::2, ::3], strides=[2, 3]),
    unary("io_tile_copy", torch.clone),
    Sample("ipu_copy", (normal(3),), lambda t: ops.ipu_copy(t, 1, 0), torch.clone),
    unary("print_tensor", torch.clone, print_self=False),
]  # fmt: skip

REDUCTIONS = [
    reduction("sum", lambda x: x.sum((0, 2))), reduction("mean", lambda x: x.mean((0, 2))),
    reduction("l1", lambda x: x.abs().sum((0, 2))),
    reduction("l2", lambda x: (x * x).sum((0, 2)).sqrt()),
    reduction("sumsquare", lambda x: (x * x).sum((0, 2))),
    reduction("logsum", lambda x: x.sum((0, 2)).log()),
    reduction("logsumexp", lambda x: x.logsumexp((0, 2))),
    reduction("max", lambda x: x.amax((0, 2)), distinct(3, 4, 2)),
    reduction("min", lambda x: x.amin((0, 2)), distinct(3, 4, 2)),
    reduction("prod", lambda x: x.prod(2).prod(0)),
    reduction("median", _medians, distinct(3, 4, 2)),
    unary("argmax", lambda x: x.argmax(1).int(), distinct(3, 4), dim=1),
    unary("argmin", lambda x: x.argmin(0).int(), distinct(3, 4)),
    unary("cumsum", lambda x: x.cumsum(1), dim=1),
    unary("lamb_square", lambda x: (x * x).sum()),
]  # fmt: skip

PRODUCTS = [
    Sample("matmul", (normal(2, 3, 4), normal(4, 5)), ops.matmul, torch.matmul),
    Sample("conv", (normal(2, 4, 5, 5), normal(6, 2, 3, 3)),
           lambda t, w: ops.conv(t, w, (2, 1), (1, 0, 1, 2), (1, 2), 2),
           lambda x, w: functional.conv2d(functional.pad(x, (0, 2, 1, 1)), w, None, (2, 1), 0,
                                          (1, 2), 2)),
    Sample("conv_transpose", (normal(2, 4, 3, 3), normal(4, 2, 3, 3)),
           lambda t, w: ops.conv_transpose(t, w, (2, 2), (1, 1, 1, 1), output_padding=(1, 1)),
           lambda x, w: functional.conv_transpose2d(x, w, None, 2, 1, 1)),
    Sample("average_pool", (normal(2, 3, 6, 6),),
           lambda t: ops.average_pool(t, (3, 3), (2, 2), (1, 1, 1, 1)),
           lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    Sample("max_pool", (distinct(2, 3, 6, 6),), lambda t: ops.max_pool(t, (2, 2), (2, 2)),
           lambda x: functional.max_pool2d(x, 2, 2)),
]  # fmt: skip

NORMS = [
    Sample("group_norm", (normal(2, 4, 3), normal(4), normal(4)),
           lambda t, w, b: ops.group_norm(t, w, b, 2),
           lambda x, w, b: functional.group_norm(x, 2, w, b)),
    Sample("layer_norm", (normal(3, 4), normal(4), normal(4)), ops.layer_norm,
           lambda x, w, b: functional.layer_norm(x, (4,), w, b)),
    Sample("batch_norm_inference", (normal(2, 3, 4), normal(3), normal(3), normal(3), positive(3)),
           ops.batch_norm_inference,
           lambda x, s, b, m, v: (s[:, None] * (x - m[:, None]) / (v[:, None] + 1e-5).sqrt()
                                  + b[:, None])),
    Sample("nll_loss", (_probabilities(4, 3), whole(3, 4)), ops.nll_loss, _nll),
    Sample("nll_loss_with_softmax_grad", (_probabilities(4, 3), whole(3, 4)),
           ops.nll_loss_with_softmax_grad,
           lambda p, y: [_nll(p, y), (p - functional.one_hot(y.long(), 3)) / 4],
           has_gradient=False),
]  # fmt: skip

INDEXING = [
    Sample("gather", (normal(5, 3), whole(5, 2, 2)), ops.gather, lambda x, i: x[i.long()]),
    Sample("tied_gather", (normal(5, 3), whole(5, 2)), ops.tied_gather, lambda x, i: x[i.long()]),
    Sample("groupedgather", (normal(2, 5, 3), whole(5, 2, 4)),
           lambda t, i: ops.groupedgather(t, i, 1, 2),
           lambda x, i: torch.stack([x[g][i[g].long()] for g in range(2)])),
    Sample("scatter", (normal(5, 3), np.array([3, 1], np.int32), normal(2, 3)), ops.scatter,
           lambda x, i, v: x.index_copy(0, i.long(), v)),
    Sample("grouped_scatter_reduce", (normal(2, 4, 3), whole(3, 2, 4)),
           lambda t, i: ops.grouped_scatter_reduce(t, i, "sum", axis=1, axis_size=3, group_size=2),
           lambda x, i: torch.stack([torch.zeros(3, 3).index_add(0, i[g], x[g]) for g in (0, 1)])),
    Sample("scatter_reduce", (normal(4, 3), whole(3, 4)),
           lambda t, i: ops.scatter_reduce(t, i, "sum", axis_size=3),
           lambda x, i: torch.zeros(3, 3).index_add(0, i.long(), x)),
    Sample("dynamic_slice", (normal(6, 3), np.array([2], np.int32)),
           lambda t, i: ops.dynamic_slice(t, i, [0], [2], True), lambda x, _i: x[2:4]),
    Sample("dynamic_update", (normal(6, 3), np.array([2], np.int32), normal(2, 3)),
           lambda t, i, u: ops.dynamic_update(t, i, u, [0], [2], True),
           lambda x, _i, u: torch.cat([x[:2], u, x[4:]])),
    Sample("dynamic_update_", (normal(6, 3), np.array([2], np.int32), normal(2, 3)),
           lambda t, i, u: ops.dynamic_update_(t, i, u, [0], [2], True),
           lambda x, _i, u: torch.cat([x[:2], u, x[4:]]), has_gradient=False),
    Sample("onehot", (whole(4, 3), np.array([0.5, 2.0], np.float32)),
           lambda t, v: ops.onehot(t, 4, v, -1),
           lambda i, v: torch.where(functional.one_hot(i.long(), 4).bool(), v[1], v[0])),
    Sample("topk", (distinct(3, 5),), lambda t: ops.topk(t, 2, 1, True, True)[0],
           lambda x: x.topk(2, 1).values),
    Sample("histogram", (distinct(20),), lambda t: ops.histogram(t, [0.0, 0.3], False),
           lambda x: torch.stack([(x < 0).sum(), ((x >= 0) & (x < 0.3)).sum(), (x >= 0.3).sum()]),
           has_gradient=False),
    Sample("interpolate", (normal(1, 2, 3, 3),),
           lambda t: ops.interpolate(t, (1.0, 1.0, 2.0, 2.0), "linear"),
           lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear")),
]  # fmt: skip


def _rounded(x: np.ndarray, dtype: popxl.dtype, log2_scale: int = 0) -> np.ndarray:
    """The nearest 8-bit floats."""
    there, back = (getattr(popxl.fp8_utils, f"host_pow2scale_cast_{w}_fp8") for w in ("to", "from"))
    return back(there(np.asarray(x), dtype, log2_scale), popxl.float32, -log2_scale)


def _halves(result: torch.Tensor) -> torch.Tensor:
    return result.half()


def _small(*shape: int) -> np.ndarray:
    """Integers, which 8-bit floats hold exactly, and so do sums of their products."""
    return _rng.integers(-3, 4, shape).astype(np.float32)


def _to_fp8(t: popxl.Tensor) -> popxl.Tensor:
    return ops.pow2scale_cast_to_fp8(t, 0, popxl.float8_143)


def _region_mean(x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
    """A region from (0, 0) to (2, 2) in four bins, each the middle of four pixels."""
    assert rois.tolist() == [[0, 0, 2, 2]]
    middle = functional.avg_pool2d(x, 2, 1)
    return middle[:, :, :2, :2]


FLOAT8 = [
    Sample("pow2scale_cast_to_fp8", (normal(4, 5),),
           lambda t: ops.pow2scale_cast_from_fp8(
               ops.pow2scale_cast_to_fp8(t, 3, popxl.float8_143), -3, popxl.float32),
           lambda x: torch.from_numpy(_rounded(x, popxl.float8_143, 3)), has_gradient=False),
    Sample("pow2scale_cast_from_fp8", (normal(4, 5),),
           lambda t: ops.pow2scale_cast_from_fp8(
               ops.pow2scale_cast_to_fp8(t, -1, popxl.float8_152), 1, popxl.float16),
           lambda x: _halves(torch.from_numpy(_rounded(x, popxl.float8_152, -1))),
           has_gradient=False),
    Sample("matmul_pow2scaled", (_small(4, 6), _small(6, 5)),
           lambda a, b: ops.matmul_pow2scaled(_to_fp8(a), _to_fp8(b), -1),
           lambda a, b: _halves(a @ b / 2), has_gradient=False),
    Sample("conv_pow2scaled", (_small(1, 2, 4, 4), _small(2, 2, 3, 3)),
           lambda t, w: ops.conv_pow2scaled(_to_fp8(t), _to_fp8(w), 1),
           lambda x, w: _halves(2 * functional.conv2d(x, w)), has_gradient=False),
    Sample("conv_transpose_pow2scaled", (_small(1, 2, 3, 3), _small(2, 2, 2, 2)),
           lambda t, w: ops.conv_transpose_pow2scaled(_to_fp8(t), _to_fp8(w), 0),
           lambda x, w: _halves(functional.conv_transpose2d(x, w)), has_gradient=False),
    Sample("roi_align", (normal(1, 2, 4, 4), np.float32([[0, 0, 2, 2]])),
           lambda t, rois: ops.roi_align(t, ops.detach(rois), popxl.constant([0]), (2, 2), 1.0, 1),
           _region_mean),
]  # fmt: skip

_T = np.array(0.0, np.float32)
UPDATES = [
    update("accumulate_", (normal(3), normal(3)), lambda t, x: t + 0.5 * x, 0.5),
    update("accumulate_square_", (normal(3), normal(3)), lambda t, x: t + 0.5 * x * x, 0.5),
    update("accumulate_mean_", (normal(3), normal(3)), lambda t, x: 0.75 * t + x / 4, 3.0),
    update("accumulate_moving_average_", (normal(3), normal(3)), lambda t, x: 0.9 * t + 0.1 * x,
           0.9),
    update("accumulate_moving_average_square_", (normal(3), normal(3)),
           lambda t, x: 0.9 * t + 0.1 * x * x, 0.9),
    update("sparse_accumulate_", (normal(5, 2), normal(2, 2), np.array([4, 1], np.int32)),
           lambda t, x, i: t.index_add(0, i.long(), x)),
    update("accumulator_scale_", (normal(3),), lambda t: 0.5 * t, 0.5),
    update("accumulator_zero_", (normal(3),), torch.zeros_like),
    update("copy_var_update_", (normal(3), normal(3)), lambda _t, x: x),
    Sample("adam_updater", (normal(3), positive(3), normal(3), _T),
           lambda m, v, w, t: ops.var_updates.adam_updater(m, v, w, t, 0.01, 0.9, 0.99, 1e-5),
           lambda m, v, w, _t: _adam(m, v, w), has_gradient=False),
    Sample("lamb_updater", (normal(3), positive(3), normal(3), _T),
           lambda m, v, w, t: ops.var_updates.lamb_updater(m, v, w, t, 0.01, 0.9, 0.99, 1e-5),
           lambda m, v, w, _t: _adam(m, v, w), has_gradient=False),
    Sample("adamax_updater", (normal(3), positive(3), _T),
           lambda m, v, t: ops.var_updates.adamax_updater(m, v, None, t, None, 0.9, 1e-5),
           lambda m, v, _t: m / 0.1 / (v + 1e-5), has_gradient=False),
    Sample("adam_var_update", (normal(3), normal(3), np.float32([4.0]), np.float32([9.0])),
           lambda t, x, a, b: ops.var_updates.adam_var_update(t, x, a, b, 0.1),
           lambda t, x, _a, _b: t - 0.1 * 2 / 3 * x, has_gradient=False),
]  # fmt: skip

SAMPLES = [
    *ELEMENTWISE, *SHAPES, *REDUCTIONS, *PRODUCTS, *NORMS, *INDEXING, *FLOAT8, *UPDATES,
]  # fmt: skip
# Operations that their own tests compute: with streams, graphs, remote memory, replicas, seeds.
TESTED_ELSEWHERE = """
    call call_with_info repeat repeat_with_info conditional conditional_with_info
    host_load host_store remote_load remote_load_ remote_store remote_code_load init
    random_uniform random_normal split_random_seed dropout shaped_dropout
    all_reduce all_reduce_identical_inputs
    all_reduce_identical_grad_inputs replicated_all_gather replicated_all_reduce
    replicated_all_reduce_ replicated_reduce_scatter replica_sharded_slice replicated_slice
    pow2scale_then_cast cast_then_pow2scale
""".split()
