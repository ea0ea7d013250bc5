"""The 120 ATen operations that 92 models of all kinds need, by family, with a small call of each.

Counted over the forward, backward and AdamW steps of language, vision, speech and graph models.
"""

from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.nn.functional as F

aten = torch.ops.aten
Sample = Callable[[SimpleNamespace], object]


def inputs() -> dict[str, torch.Tensor]:
    """What the samples compute with."""
    random = torch.Generator().manual_seed(7)

    def floats(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    return {
        "a": floats(4, 6),
        "b": floats(6),
        "p": floats(4, 6).abs() + 0.1,
        "i": torch.randint(-9, 9, (4, 6), generator=random),
        "m": floats(4, 6) > 0,
        "n": floats(6) > 0,
        "t": floats(2, 3, 4),
        "u": floats(2, 4, 5),
        "image": floats(2, 4, 6, 6),
        "weights": floats(4, 4, 3, 3),
        "volume": floats(1, 2, 4, 4, 4),
        "scale": floats(4),
        "shift": floats(4),
        "mean": floats(4),
        "variance": floats(4).abs() + 0.5,
        "table": floats(9, 5),
        "rows": torch.tensor([[1, 8, 0], [3, 3, 2]]),
        "places": torch.tensor([[0, 2, 1, 3, 0, 1], [3, 1, 2, 0, 2, 2]]),
        "updates": floats(2, 6),
    }


def _is_drawn(result: torch.Tensor, is_valid: torch.Tensor) -> torch.Tensor:
    """What is certain of random values: that all are valid, and that they differ."""
    differ = (result != result.flatten()[0]).any()
    return torch.stack([is_valid.all(), differ])


def _dropout(p: SimpleNamespace) -> list[torch.Tensor]:
    out, kept = aten.native_dropout(p.image, 0.5, True)
    return [torch.where(kept, out - 2 * p.image, out).abs().amax() < 1e-6, kept.any()]


def _attention_gradient(p: SimpleNamespace) -> object:
    q, k, v = (x.detach().requires_grad_(True) for x in (p.t, p.t + 1, p.t * 2))
    out = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)
    return torch.autograd.grad(out, (q, k, v), p.t[None])


def _weight_norm_gradient(p: SimpleNamespace) -> object:
    g = p.scale.reshape(4, 1, 1, 1)
    norms = p.weights.flatten(1).norm(dim=1).reshape(4, 1, 1, 1)
    return aten._weight_norm_interface_backward(p.weights + 1, p.weights, g, norms, 0)


POINTWISE: dict[str, Sample] = {
    "add": lambda p: [aten.add.Tensor(p.a, p.b, alpha=2), aten.add.Scalar(p.i, 1.5)],
    "sub": lambda p: aten.sub.Tensor(p.a, p.b),
    "mul": lambda p: [aten.mul.Tensor(p.a, p.b), aten.mul.Scalar(p.a, 3)],
    "div": lambda p: [aten.div.Tensor(p.i, p.b), aten.div.Scalar(p.a, 3)],
    "pow": lambda p: [
        aten.pow.Tensor_Scalar(p.a, 3), aten.pow.Scalar(2, p.a), aten.pow.Tensor_Tensor(p.p, p.b),
    ],
    "fmod": lambda p: aten.fmod.Scalar(p.a, 0.7),
    "minimum": lambda p: aten.minimum(p.a, p.b),
    "clamp": lambda p: [aten.clamp(p.a, -0.5, 0.5), aten.clamp.Tensor(p.a, p.b, p.b + 1)],
    "where": lambda p: aten.where.self(p.m, p.a, p.b),
    "eq": lambda p: [aten.eq.Tensor(p.i, p.b), aten.eq.Scalar(p.i, 0)],
    "ne": lambda p: [aten.ne.Tensor(p.i, p.b), aten.ne.Scalar(p.i, 0)],
    "lt": lambda p: aten.lt.Scalar(p.i, 0),
    "le": lambda p: [aten.le.Tensor(p.a, p.b), aten.le.Scalar(p.i, 0)],
    "gt": lambda p: [aten.gt.Tensor(p.a, p.b), aten.gt.Scalar(p.i, 0)],
    "ge": lambda p: aten.ge.Scalar(p.i, 0),
    "bitwise_and": lambda p: aten.bitwise_and.Tensor(p.m, p.n),
    "bitwise_or": lambda p: aten.bitwise_or.Tensor(p.m, p.n),
}  # fmt: skip
VIEWS: dict[str, Sample] = {
    "view": lambda p: aten.view(p.t, [6, 4]),
    "permute": lambda p: aten.permute(p.t, [2, 0, 1]),
    "expand": lambda p: aten.expand(p.b, [4, 6]),
    "unsqueeze": lambda p: aten.unsqueeze(p.a, 1),
    "squeeze": lambda p: aten.squeeze.dims(p.t[:1], [0]),
    "slice": lambda p: aten.slice.Tensor(p.t, 1, 1, 3),
    "select": lambda p: aten.select.int(p.t, 1, -1),
    "cat": lambda p: aten.cat([p.a, p.a], 1),
    "split_with_sizes": lambda p: aten.split_with_sizes(p.a, [1, 3]),
    "split": lambda p: aten.split.Tensor(p.a, 3, 1),
    "unbind": lambda p: aten.unbind.int(p.t, 1),
    "repeat": lambda p: aten.repeat(p.a, [2, 1, 2]),
    "flip": lambda p: aten.flip(p.t, [0, 2]),
    "as_strided": lambda p: aten.as_strided(p.t, [3, 2], [4, 1], 2),
    "clone": lambda p: aten.clone(p.t),
    "copy": lambda p: aten.copy(p.a, p.b),
    "_to_copy": lambda p: aten._to_copy(p.a, dtype=torch.float16),
    "constant_pad_nd": lambda p: aten.constant_pad_nd(p.t, [1, 2, 0, 1], 0.5),
    "slice_scatter": lambda p: aten.slice_scatter(p.a, p.p[:2], 0, 1, 3),
    "as_strided_scatter": lambda p: aten.as_strided_scatter(p.a, p.p[:2, :2], [2, 2], [6, 2], 1),
    "new_empty_strided": lambda p: aten.new_empty_strided(p.a, [2, 3], [1, 2]) * 0,
}
PRODUCTS: dict[str, Sample] = {
    "mm": lambda p: aten.mm(p.a, p.p.t()),
    "bmm": lambda p: aten.bmm(p.t, p.u),
    "addmm": lambda p: aten.addmm(p.scale, p.a, p.p.t()),
    "convolution": lambda p: aten.convolution(
        p.image, p.weights, p.scale, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
    ),
    "convolution_backward": lambda p: aten.convolution_backward(
        p.image, p.image + 1, p.weights, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3
    ),
}
UNARY: dict[str, Sample] = {
    "neg": lambda p: aten.neg(p.a),
    "exp": lambda p: aten.exp(p.a),
    "log": lambda p: aten.log(p.p),
    "log1p": lambda p: aten.log1p(p.p),
    "sqrt": lambda p: aten.sqrt(p.p),
    "rsqrt": lambda p: aten.rsqrt(p.p),
    "reciprocal": lambda p: aten.reciprocal(p.p),
    "abs": lambda p: aten.abs(p.a),
    "sign": lambda p: aten.sign(p.i),
    "sin": lambda p: aten.sin(p.a),
    "cos": lambda p: aten.cos(p.a),
    "atan": lambda p: aten.atan(p.a),
    "tanh": lambda p: aten.tanh(p.a),
    "sigmoid": lambda p: aten.sigmoid(p.a),
    "erf": lambda p: aten.erf(p.a),
    "gelu": lambda p: [aten.gelu(p.a), aten.gelu(p.a, approximate="tanh")],
    "relu": lambda p: aten.relu(p.a),
    "leaky_relu": lambda p: aten.leaky_relu(p.a, 0.1),
    "elu": lambda p: aten.elu(p.a, 0.5),
    "hardtanh": lambda p: aten.hardtanh(p.a, -0.4, 0.3),
    "floor": lambda p: aten.floor(p.a),
    "ceil": lambda p: aten.ceil(p.a),
    "isnan": lambda p: aten.isnan(p.a),
    "logical_not": lambda p: aten.logical_not(p.i),
    "bitwise_not": lambda p: aten.bitwise_not(p.m),
}
REDUCTIONS: dict[str, Sample] = {
    "sum": lambda p: aten.sum.dim_IntList(p.t, [0, 2], True),
    "mean": lambda p: [aten.mean.dim(p.t, [1]), aten.mean(p.a)],
    "prod": lambda p: [aten.prod.dim_int(p.t, 1), aten.prod(p.b)],
    "amax": lambda p: aten.amax(p.t, [2]),
    "max": lambda p: [*aten.max.dim(p.a, 1), aten.max(p.a)],
    "any": lambda p: [aten.any.dim(p.m, 0), aten.any.dims(p.m, [1]), aten.any(p.m)],
    "argmax": lambda p: [aten.argmax(p.a), aten.argmax(p.a, 1)],
    "cumsum": lambda p: aten.cumsum(p.a, 1),
    "cumprod": lambda p: aten.cumprod(p.a, 0),
    "sort": lambda p: aten.sort(p.a, 1, True),
    "topk": lambda p: aten.topk(p.a, 2, 0),
    "linalg_vector_norm": lambda p: aten.linalg_vector_norm(p.a, 2, [1]),
    "_softmax": lambda p: aten._softmax(p.t, 1, False),
    "_log_softmax": lambda p: aten._log_softmax(p.a, -1, False),
}
CREATE: dict[str, Sample] = {
    "full": lambda p: aten.full([2, 3], 1.5),
    "full_like": lambda p: aten.full_like(p.a, 2),
    "scalar_tensor": lambda p: aten.scalar_tensor(2.5),
    "arange": lambda p: aten.arange.start_step(1, 9, 2),
    "empty": lambda p: aten.empty.memory_format([3, 2]) * 0,
    "empty_permuted": lambda p: aten.empty_permuted([3, 2], [1, 0]) * 0,
    "rand": lambda p: _is_drawn(r := aten.rand([8, 8]), (r >= 0) & (r < 1)),
    "randn_like": lambda p: _is_drawn(r := aten.randn_like(p.image), r.abs() < 9),
    "bernoulli": lambda p: _is_drawn(r := aten.bernoulli.p(p.image, 0.5), (r == 0) | (r == 1)),
    "native_dropout": _dropout,
    "exponential": lambda p: _is_drawn(r := aten.exponential(p.image, 2.0), r >= 0),
}
NORMS: dict[str, Sample] = {
    "native_layer_norm": lambda p: aten.native_layer_norm(p.a, [6], p.b, p.b + 1, 1e-5),
    "native_group_norm": lambda p: aten.native_group_norm(
        p.image, p.scale, p.shift, 2, 4, 36, 2, 1e-5
    ),
    "native_batch_norm": lambda p: aten.native_batch_norm(
        p.image, p.scale, p.shift, None, None, True, 0.1, 1e-5
    ),
    "_native_batch_norm_legit_no_training": lambda p: aten._native_batch_norm_legit_no_training(
        p.image, p.scale, p.shift, p.mean, p.variance, 0.1, 1e-5
    )[0],
    "_native_batch_norm_legit_functional": lambda p: aten._native_batch_norm_legit_functional(
        p.image, p.scale, p.shift, p.mean, p.variance, True, 0.1, 1e-5
    ),
    "_native_batch_norm_legit": lambda p: aten._native_batch_norm_legit.no_stats(
        p.image, p.scale, p.shift, True, 0.1, 1e-5
    ),
    "_weight_norm_interface_backward": _weight_norm_gradient,
}
LOOKUPS: dict[str, Sample] = {
    "embedding": lambda p: aten.embedding(p.table, p.rows),
    "index": lambda p: aten.index.Tensor(p.table, [p.rows, p.rows[:1] % 5]),
    "index_select": lambda p: aten.index_select(p.table, 0, p.rows[0]),
    "index_put": lambda p: [
        aten.index_put(p.table, [p.rows[0]], p.table[:3], False),
        aten.index_put(p.table, [p.rows[1]], p.table[:3], True),
    ],
    "gather": lambda p: aten.gather(p.a, 0, p.places),
    "scatter": lambda p: [
        aten.scatter.src(p.a, 0, p.places, p.updates), aten.scatter.value(p.a, 0, p.places, 1.5),
    ],
    "scatter_add": lambda p: aten.scatter_add(p.a, 0, p.places, p.updates),
    "scatter_reduce": lambda p: aten.scatter_reduce.two(p.a, 0, p.places, p.updates, "amax"),
}  # fmt: skip
POOLS: dict[str, Sample] = {
    "max_pool2d_with_indices": lambda p: aten.max_pool2d_with_indices(p.image, [2, 2], [2, 2]),
    "max_pool2d_with_indices_backward": lambda p: aten.max_pool2d_with_indices_backward(
        p.image[:, :, :3, :3], p.image, [2, 2], [2, 2], [0, 0], [1, 1], False,
        aten.max_pool2d_with_indices(p.image, [2, 2], [2, 2])[1],
    ),
    "max_pool3d_with_indices": lambda p: aten.max_pool3d_with_indices(p.volume, [2, 2, 2]),
    "max_pool3d_with_indices_backward": lambda p: aten.max_pool3d_with_indices_backward(
        p.volume[:, :, :2, :2, :2], p.volume, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False,
        aten.max_pool3d_with_indices(p.volume, [2, 2, 2])[1],
    ),
    "avg_pool2d": lambda p: aten.avg_pool2d(p.image, [2, 2], [2, 2]),
    "avg_pool2d_backward": lambda p: aten.avg_pool2d_backward(
        p.image[:, :, :3, :3], p.image, [2, 2], [2, 2], [0, 0], False, True, None
    ),
    "avg_pool3d": lambda p: aten.avg_pool3d(p.volume, [2, 2, 2]),
    "avg_pool3d_backward": lambda p: aten.avg_pool3d_backward(
        p.volume[:, :, :2, :2, :2], p.volume, [2] * 3, [2] * 3, [0] * 3, False, True, None
    ),
    "upsample_nearest2d": lambda p: aten.upsample_nearest2d.vec(p.image, [12, 12], None),
    "upsample_nearest2d_backward": lambda p: aten.upsample_nearest2d_backward(
        p.image, [6, 6], [2, 4, 3, 3]
    ),
    "upsample_bilinear2d": lambda p: aten.upsample_bilinear2d.vec(p.image, [9, 9], False, None),
}  # fmt: skip
# Attention is recorded as its products and softmax, so the fused operation never appears.
ATTENTION: dict[str, Sample] = {
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_gradient,
}
FAMILIES: dict[str, dict[str, Sample]] = {
    "pointwise binary and ternary": POINTWISE,
    "views": VIEWS,
    "products": PRODUCTS,
    "pointwise unary": UNARY,
    "reductions": REDUCTIONS,
    "create": CREATE,
    "norms": NORMS,
    "lookups": LOOKUPS,
    "pools": POOLS,
    "attention": ATTENTION,
}

# Every overload that was met, but for assertions and shapes that depend on data.
OVERLOADS = """
mul.Tensor add.Tensor div.Tensor sum.dim_IntList alias.default clone.default where.self
expand.default sub.Tensor unsqueeze.default scalar_tensor.default full_like.default view.default
permute.default squeeze.dims neg.default exp.default mm.default ne.Scalar gather.default
full.default addmm.default pow.Scalar sqrt.default _to_copy.default div.Scalar
_log_softmax.default detach.default view_copy.default slice.Tensor scatter.value ge.Scalar
index_put.default arange.start_step bitwise_not.default _softmax.default eq.Scalar bmm.default
bitwise_and.Tensor clamp.default slice_copy.Tensor select.int lt.Scalar embedding.default
cat.default native_layer_norm.default select_copy.int index.Tensor mul.Scalar
slice_scatter.default gelu.default empty.memory_format convolution.default bernoulli.p
convolution_backward.default erf.default le.Scalar mean.dim mean.default pow.Tensor_Scalar
relu.default tanh.default permute_copy.default abs.default native_dropout.default
scatter_add.default copy.default le.Tensor split_with_sizes.default sigmoid.default
minimum.default _native_batch_norm_legit_no_training.default
_native_batch_norm_legit_functional.default log.default index_select.default gt.Scalar
log1p.default detach_copy.default empty_permuted.default repeat.default split_copy.Tensor
eq.Tensor constant_pad_nd.default lift_fresh_copy.default linalg_vector_norm.default
max_pool2d_with_indices.default max_pool2d_with_indices_backward.default rand.default cos.default
cumsum.default native_group_norm.default scatter_reduce.two sin.default native_batch_norm.default
add.Scalar as_strided_scatter.default leaky_relu.default sign.default logical_not.default
ne.Tensor rsqrt.default as_strided_copy.default new_empty_strided.default flip.default
floor.default unbind_copy.int argmax.default amax.default fmod.Scalar avg_pool2d.default
avg_pool2d_backward.default _native_batch_norm_legit.no_stats as_strided.default any.dims
sort.default any.dim scatter.src _weight_norm_interface_backward.default topk.default
upsample_nearest2d.vec hardtanh.default bitwise_or.Tensor cumprod.default prod.dim_int
isnan.default clamp.Tensor reciprocal.default elu.default atan.default pow.Tensor_Tensor
exponential.default max.dim ceil.default upsample_bilinear2d.vec gt.Tensor
upsample_nearest2d_backward.default randn_like.default max_pool3d_with_indices.default
avg_pool3d.default avg_pool3d_backward.default max_pool3d_with_indices_backward.default
""".split()
