"""What a product computes: convolution parameters, and the plain form they reduce to."""

from dataclasses import dataclass, replace
from math import gcd, prod

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, QUARTER, Type
from tremula.poplibs.registry import PoplibsError

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvParams:
    """A convolution as PopLibs describes it; one entry per field dimension in every tuple.

    The input is truncated, dilated, padded and flipped, in this order, and so is the kernel; the
    result is truncated, strided and padded. Tuples left empty mean no such transform.
    """

    type: Type
    n_batch: int
    field_shape: Sizes
    kernel_shape: Sizes
    n_in_chans: int  # per group
    n_out_chans: int  # per group
    n_groups: int = 1
    out_type: Type | None = None
    input_truncation_lower: Sizes = ()
    input_truncation_upper: Sizes = ()
    input_dilation: Sizes = ()
    padding_lower: Sizes = ()
    padding_upper: Sizes = ()
    flip_input: tuple[bool, ...] = ()
    kernel_truncation_lower: Sizes = ()
    kernel_truncation_upper: Sizes = ()
    kernel_dilation: Sizes = ()
    kernel_padding_lower: Sizes = ()
    kernel_padding_upper: Sizes = ()
    flip_kernel: tuple[bool, ...] = ()
    output_truncation_lower: Sizes = ()
    output_truncation_upper: Sizes = ()
    stride: Sizes = ()
    output_padding_lower: Sizes = ()
    output_padding_upper: Sizes = ()

    def __post_init__(self) -> None:
        rank = len(self.field_shape)
        for name, default in _DEFAULTS.items():
            value = tuple(getattr(self, name)) or (default,) * rank
            object.__setattr__(self, name, value)
        if self.out_type is None:
            object.__setattr__(self, "out_type", result_type(self.type))
        _check(self)

    @property
    def rank(self) -> int:
        """The number of field dimensions."""
        return len(self.field_shape)

    @property
    def transformed_input_shape(self) -> Sizes:
        """The field after truncation, dilation and padding."""
        return tuple(
            _dilated(n - self.input_truncation_lower[d] - self.input_truncation_upper[d],
                     self.input_dilation[d])
            + self.padding_lower[d] + self.padding_upper[d]
            for d, n in enumerate(self.field_shape)
        )  # fmt: skip

    @property
    def transformed_kernel_shape(self) -> Sizes:
        """Sizes of the kernel after truncation, dilation and padding."""
        return tuple(
            _dilated(n - self.kernel_truncation_lower[d] - self.kernel_truncation_upper[d],
                     self.kernel_dilation[d])
            + self.kernel_padding_lower[d] + self.kernel_padding_upper[d]
            for d, n in enumerate(self.kernel_shape)
        )  # fmt: skip

    @property
    def output_field_shape(self) -> Sizes:
        """The field of the result."""
        shape = []
        for d, (n, k) in enumerate(
            zip(self.transformed_input_shape, self.transformed_kernel_shape, strict=True)
        ):
            plain = n - k + 1 - self.output_truncation_lower[d] - self.output_truncation_upper[d]
            strided = -(-max(plain, 0) // self.stride[d])
            shape.append(strided + self.output_padding_lower[d] + self.output_padding_upper[d])
        return tuple(shape)

    @property
    def n_flops(self) -> int:
        """Multiplications and additions, those with padding included."""
        positions = prod(self.output_field_shape) * self.n_batch
        return (
            2
            * positions
            * prod(self.kernel_shape)
            * self.n_groups
            * (self.n_in_chans * self.n_out_chans)
        )


_DEFAULTS = {
    "input_truncation_lower": 0, "input_truncation_upper": 0, "input_dilation": 1,
    "padding_lower": 0, "padding_upper": 0, "flip_input": False,
    "kernel_truncation_lower": 0, "kernel_truncation_upper": 0, "kernel_dilation": 1,
    "kernel_padding_lower": 0, "kernel_padding_upper": 0, "flip_kernel": False,
    "output_truncation_lower": 0, "output_truncation_upper": 0, "stride": 1,
    "output_padding_lower": 0, "output_padding_upper": 0,
}  # fmt: skip
_AT_LEAST_ONE = ("input_dilation", "kernel_dilation", "stride")


def _dilated(n: int, dilation: int) -> int:
    return (n - 1) * dilation + 1 if n > 0 else 0


def _check(params: ConvParams) -> None:
    rank = params.rank
    for name in ("kernel_shape", *_DEFAULTS):
        value = getattr(params, name)
        if len(value) != rank:
            raise PoplibsError(
                f"{name} has {len(value)} entries, expected {rank}: one per field dimension of "
                f"{list(params.field_shape)}.",
                source=user_source(),
                hint="give one entry per field dimension, or none",
            )
        least = 1 if name in _AT_LEAST_ONE else 0
        if any(int(v) < least for v in value):
            raise PoplibsError(
                f"{name} is {list(value)}, expected entries of {least} or more.",
                source=user_source(),
                hint=f"use {least} or more",
            )
    for name in ("n_batch", "n_in_chans", "n_out_chans", "n_groups"):
        if getattr(params, name) < 1:
            raise PoplibsError(
                f"{name} is {getattr(params, name)}, expected 1 or more.",
                source=user_source(),
                hint="use 1 or more",
            )
    check_type(params.type, "a convolution")
    assert params.out_type is not None, "set before"
    check_result_type(params.out_type, params.type, "the result of a convolution")
    short = [
        d
        for d in range(rank)
        if params.transformed_input_shape[d] < params.transformed_kernel_shape[d]
        or params.transformed_kernel_shape[d] < 1
    ]
    if short:
        raise PoplibsError(
            f"the kernel {list(params.transformed_kernel_shape)} does not fit the padded field "
            f"{list(params.transformed_input_shape)}.",
            source=user_source(),
            hint="add padding, or use a smaller kernel",
        )


def check_type(element: Type, what: str) -> None:
    """Refuse types the matrix unit does not multiply."""
    if element not in (FLOAT, HALF, QUARTER):
        raise PoplibsError(
            f"{what} got elements of {element}, expected float, half or quarter.",
            source=user_source(),
            hint="cast the operands first: popops.cast(graph, tensor, FLOAT, sequence)",
        )


def check_result_type(element: Type, inputs: Type, what: str) -> None:
    """Refuse types a product does not give: 8-bit operands give halves, and nothing else."""
    possible = (HALF,) if inputs is QUARTER else (FLOAT, HALF)
    if element not in possible:
        raise PoplibsError(
            f"{what} of {inputs} cannot be {element}, expected "
            f"{' or '.join(str(t) for t in possible)}.",
            source=user_source(),
            hint="cast the result: popops.cast(graph, tensor, type, sequence)",
        )


def result_type(inputs: Type) -> Type:
    """The default type of a product's result."""
    return HALF if inputs is QUARTER else inputs


@dataclass(frozen=True, slots=True)
class FieldDim:
    """One field dimension: output o uses kernel k at input (o*stride + k*step - pad) / dilation.

    There is no such input, and nothing is added, if the division has a remainder or the position is
    outside [0, n_in).
    """

    n_in: int
    n_kernel: int
    n_out: int
    stride: int = 1
    step: int = 1  # of the kernel
    dilation: int = 1  # of the input
    pad: int = 0

    @property
    def output_step(self) -> int:
        """How far apart outputs are that use the same taps: those between meet no input there."""
        return self.dilation // gcd(self.dilation, self.stride)


@dataclass(frozen=True, slots=True)
class ProductProblem:
    """The plain form: one product over groups, with dimensions g, b, o (field), c, i and k.

    A forward product sums over i and k: out[b, o, g, c] = sum of acts[b, f, g, i] *
    weights[g, k, i, c]. A weight update sums over b and o: weights[g, k, i, c] = sum of
    acts[b, f, g, i] * deltas[b, o, g, c].
    """

    is_update: bool
    n_groups: int
    n_batch: int
    fields: tuple[FieldDim, ...]
    n_in: int
    n_out: int
    type: Type
    out_type: Type

    @property
    def acts_shape(self) -> Sizes:
        return (self.n_batch, *(f.n_in for f in self.fields), self.n_groups, self.n_in)

    @property
    def weights_shape(self) -> Sizes:
        return (self.n_groups, *(f.n_kernel for f in self.fields), self.n_in, self.n_out)

    @property
    def out_shape(self) -> Sizes:
        return (self.n_batch, *(f.n_out for f in self.fields), self.n_groups, self.n_out)

    @property
    def n_flops(self) -> int:
        n = prod(f.n_out * f.n_kernel for f in self.fields)
        return 2 * self.n_groups * self.n_batch * n * self.n_in * self.n_out

    @property
    def is_product(self) -> bool:
        """No kernel: a matrix product."""
        return all(f == FieldDim(f.n_in, 1, f.n_in) for f in self.fields)


def matrix_problem(
    n_groups: int, n_rows: int, n_inner: int, n_cols: int, type: Type, out_type: Type
) -> ProductProblem:
    """[g, m, k] x [g, k, n]: positions are rows, input channels k, output channels n."""
    field = FieldDim(n_rows, 1, n_rows)
    return ProductProblem(False, n_groups, 1, (field,), n_inner, n_cols, type, out_type)


def transposed_matrix_problem(
    n_groups: int, n_rows: int, n_inner: int, n_cols: int, type: Type, out_type: Type
) -> ProductProblem:
    """A product with a left operand [g, k, m]: a weight update sums over positions k."""
    field = FieldDim(n_inner, 1, n_inner)
    return ProductProblem(True, n_groups, 1, (field,), n_rows, n_cols, type, out_type)


def conv_problem(params: ConvParams, is_update: bool) -> ProductProblem:
    """The plain form of a convolution, or of the update of its weights."""
    fields = tuple(plain_field(params, d) for d in range(params.rank)) or (FieldDim(1, 1, 1),)
    assert params.out_type is not None, "set when made"
    return ProductProblem(
        is_update, params.n_groups, params.n_batch, fields, params.n_in_chans, params.n_out_chans,
        params.type, result_type(params.type) if is_update else params.out_type,
    )  # fmt: skip


def plain_field(params: ConvParams, d: int) -> FieldDim:
    """Flips become views, which swap the two paddings."""
    pads, kernel_pads = (
        (getattr(params, f"{name}_lower")[d], getattr(params, f"{name}_upper")[d])
        for name in ("padding", "kernel_padding")
    )
    pad = pads[params.flip_input[d]] - kernel_pads[params.flip_kernel[d]]
    n_in = params.field_shape[d] - (
        params.input_truncation_lower[d] + params.input_truncation_upper[d]
    )
    n_kernel = params.kernel_shape[d] - (
        params.kernel_truncation_lower[d] + params.kernel_truncation_upper[d]
    )
    n_out = params.output_field_shape[d] - (
        params.output_padding_lower[d] + params.output_padding_upper[d]
    )
    return FieldDim(
        n_in, n_kernel, n_out, params.stride[d],
        params.kernel_dilation[d] if n_kernel > 1 else 1,
        params.input_dilation[d] if n_in > 1 else 1,
        pad - params.output_truncation_lower[d],
    )  # fmt: skip


def without_strides(dim: FieldDim) -> tuple[FieldDim, slice]:
    """Without a kernel only every stride-th input is read: keep those, drop the stride."""
    last = (dim.n_out - 1) * dim.stride - dim.pad
    if dim.n_kernel > 1 or dim.dilation > 1 or dim.pad > 0 or last >= dim.n_in:
        return dim, slice(None)
    return FieldDim(dim.n_out, 1, dim.n_out), slice(-dim.pad, last + 1, dim.stride)


def deferred_dilation(params: ConvParams) -> ConvParams | None:
    """The convolution whose result, dilated, is that of `params`; None if there is none.

    A single tap without strides meets undilated inputs alone, so all other results are zero:
    PopLibs' transform `dilatePostConv`.
    """
    dims = [plain_field(params, d) for d in range(params.rank)]
    starts_here = all(dim.pad == 0 and dim.stride == 1 and dim.n_kernel == 1 for dim in dims)
    is_covered = all(
        0 <= dim.n_out - _dilated(dim.n_in, step) < step
        for dim, step in zip(dims, params.input_dilation, strict=True)
    )
    others = (name for name in _DEFAULTS if name not in ("input_dilation", "padding_upper"))
    is_plain = all(value == _DEFAULTS[name] for name in others for value in getattr(params, name))
    if max(params.input_dilation, default=1) == 1 or not (starts_here and is_covered and is_plain):
        return None
    return replace(params, input_dilation=(), padding_upper=())


def flattened(problem: ProductProblem) -> ProductProblem:
    """Batch and fields as one field dimension, if there is no kernel."""
    if not problem.is_product:
        return problem
    n = problem.n_batch * prod(f.n_out for f in problem.fields)
    return replace(problem, n_batch=1, fields=(FieldDim(n, 1, n),))


def input_gradient_params(params: ConvParams) -> ConvParams:
    """The convolution that gives the input's gradient.

    It is one of the result's gradient with transposed and flipped weights.
    """
    lower, upper, cut_lower, cut_upper = [], [], [], []
    for d in range(params.rank):
        _check_invertible(params, d)
        dim = plain_field(params, d)
        pad = (dim.n_kernel - 1) * dim.step - dim.pad
        n_spread = _dilated(dim.n_out, dim.stride)
        n_wanted = (dim.n_in - 1) * dim.dilation + 1
        more = n_wanted - (n_spread + pad - _dilated(dim.n_kernel, dim.step) + 1)
        lower.append(max(pad, 0))
        cut_lower.append(max(-pad, 0))
        upper.append(max(more, 0))
        cut_upper.append(max(-more, 0))
    return ConvParams(
        type=params.type, n_batch=params.n_batch, field_shape=params.output_field_shape,
        kernel_shape=params.kernel_shape, n_in_chans=params.n_out_chans,
        n_out_chans=params.n_in_chans, n_groups=params.n_groups, out_type=params.out_type,
        input_dilation=params.stride, stride=params.input_dilation,
        kernel_dilation=params.kernel_dilation, padding_lower=tuple(lower),
        padding_upper=tuple(upper), output_truncation_lower=tuple(cut_lower),
        output_truncation_upper=tuple(cut_upper),
    )  # fmt: skip


_INVERTIBLE = (
    "flip_input", "flip_kernel", "input_truncation_lower", "input_truncation_upper",
    "kernel_truncation_lower", "kernel_truncation_upper", "kernel_padding_lower",
    "kernel_padding_upper", "output_padding_lower", "output_padding_upper",
)  # fmt: skip


def _check_invertible(params: ConvParams, d: int) -> None:
    used = [name for name in _INVERTIBLE if getattr(params, name)[d]]
    if used:
        raise PoplibsError(
            f"input_gradient_params got {used[0]} = {list(getattr(params, used[0]))}, expected "
            "none of it.",
            source=user_source(),
            hint="slice, pad or reverse the tensors themselves, and give params without it",
        )
