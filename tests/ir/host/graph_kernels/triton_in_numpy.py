"""The part of Triton and Gluon that generated kernels use, in NumPy: programs run one by one."""

from types import SimpleNamespace

import numpy as np


class Tile(np.ndarray):
    """Values of a program."""

    def to(self, dtype: type) -> "Tile":
        return self.astype(dtype)

    def __iadd__(self, other: object) -> "Tile":
        """A new tile: others may have the name of this one."""
        return self + other


def tile(values: object) -> Tile:
    return np.asarray(values).view(Tile)


class Pointer:
    """An array, and offsets into it."""

    def __init__(self, array: np.ndarray, offsets: object = 0):
        self.array, self.offsets = array, offsets

    def __add__(self, offsets: object) -> "Pointer":
        return Pointer(self.array, self.offsets + offsets)


def _shaped(pointer: Pointer, mask: object) -> tuple[np.ndarray, np.ndarray]:
    offsets, mask = np.broadcast_arrays(np.asarray(pointer.offsets), np.asarray(mask))
    inside = (offsets >= 0) & (offsets < pointer.array.size)
    assert np.all(inside | ~mask), "a program reads or writes outside a tensor"
    return np.where(mask, offsets, 0), mask


def _load(pointer: Pointer, mask: object = True, other: object = 0) -> Tile:
    shape = np.broadcast_shapes(np.shape(pointer.offsets), np.shape(mask))
    assert shape == np.shape(pointer.offsets), "a mask must not be larger than what it masks"
    offsets, mask = _shaped(pointer, mask)
    return tile(np.where(mask, pointer.array[offsets], np.asarray(other, pointer.array.dtype)))


def _store(pointer: Pointer, values: object, mask: object = True) -> None:
    offsets, mask = _shaped(pointer, mask)
    pointer.array[offsets[mask]] = np.broadcast_to(values, offsets.shape)[mask]


def _atomic_add(pointer: Pointer, values: object, mask: object = True, sem: str = "") -> None:
    assert sem == "relaxed"
    offsets, mask = _shaped(pointer, mask)
    np.add.at(pointer.array, offsets[mask], np.broadcast_to(values, offsets.shape)[mask])


def _dot(a: Tile, b: Tile, input_precision: str = "") -> Tile:
    assert min(*a.shape, *b.shape) >= 16, f"Triton multiplies by 16 or more, not {a.shape}"
    return tile(np.matmul(a, b))


def _reduced(function: object) -> object:
    def reduce(values: Tile, axis: int) -> object:
        result = function(values, axis)
        return tile(result) if np.ndim(result) else result.item()

    return reduce


def _reshape(values: Tile, shape: list[int]) -> Tile:
    return tile(np.reshape(values, shape))


def _arange(first: int, end: int, _layout: object = None) -> Tile:
    assert (end - first) & (end - first - 1) == 0, "ranges are powers of two"
    return tile(np.arange(first, end, dtype=np.int32))


def _broadcast_to(values: Tile, shape: list[int]) -> Tile:
    return tile(np.broadcast_to(values, shape))


def _where(condition: object, a: object, b: object) -> Tile:
    typed = a if isinstance(a, np.ndarray) else b
    kind = typed.dtype if isinstance(typed, np.ndarray) else None
    result = np.where(condition, a, b)
    both = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    return tile(result if both or kind is None else result.astype(kind))


class _Shared:
    """Shared memory of a program, and views of it."""

    def __init__(self, dtype: type, shape: list[int], _layout: object):
        self.values = np.full(shape, np.nan, dtype)

    def permute(self, order: tuple[int, ...]) -> "_Shared":
        view = object.__new__(_Shared)
        view.values = self.values.transpose(order)
        return view

    def load(self, _layout: object) -> Tile:
        return tile(self.values.copy())

    def store(self, values: Tile) -> None:
        assert values.shape == self.values.shape, "a tile fills its memory"
        self.values[...] = values


_LAYOUTS = {
    name: lambda *_args, **_named: None
    for name in (
        "NVMMADistributedLayout",
        "NVMMASharedLayout",
        "DotOperandLayout",
        "SliceLayout",
        "BlockedLayout",
        "DistributedLinearLayout",
    )
}


def _warpgroup_mma(
    a: object, b: _Shared, acc: Tile, use_acc: bool = True, is_async: bool = False
) -> object:
    """A product of Hopper's units: the first operand may be in registers."""
    left = a.values if isinstance(a, _Shared) else a
    assert left.shape[0] >= 64, "four warps have 16 rows each"
    acc = acc[0] if isinstance(acc, list) else acc
    product = np.matmul(left, b.values)
    result = tile(acc + product if use_acc else product)
    return [result] if is_async else result


def _awaited(_n_later: int, started: list[list[Tile]]) -> object:
    """Products that were started, and cannot be used before."""
    return started[0][0] if len(started) == 1 else tuple(each[0] for each in started)


def _in_threads(a: Tile, block: int, size: int) -> Tile:
    return tile(np.reshape(a, (block // 16, 2, 8, size)).sum(1))


def _regrouped(a: Tile, n: int, m: int) -> Tile:
    return tile(np.reshape(a, (n, m // 8, 4, 2)).transpose(0, 1, 3, 2).reshape(n, m))


def language(program: int, n_programs: int) -> SimpleNamespace:
    """What a kernel sees as `tl`."""
    return SimpleNamespace(
        constexpr=int, float32=np.float32, float16=np.float16, int64=np.int64, int32=np.int32,
        int1=np.bool_, program_id=lambda _axis: program, num_programs=lambda _axis: n_programs,
        cdiv=lambda a, b: -(-a // b), arange=_arange, load=_load, store=_store,
        atomic_add=_atomic_add, dot=_dot, where=_where, trans=lambda a: tile(a.T),
        zeros=lambda shape, dtype, _layout=None: tile(np.zeros(shape, dtype)), reshape=_reshape,
        broadcast_to=_broadcast_to, expand_dims=lambda a, axis: tile(np.expand_dims(a, axis)),
        sum=_reduced(np.sum), max=_reduced(np.max), min=_reduced(np.min),
        exp=np.exp, log=np.log, sqrt=np.sqrt, cos=np.cos, sin=np.sin, abs=np.abs,
        sigmoid=lambda a: 1 / (1 + np.exp(-a)),
        maximum=lambda a, b, propagate_nan=1: np.maximum(a, b),
        minimum=lambda a, b, propagate_nan=1: np.minimum(a, b),
        PropagateNan=SimpleNamespace(ALL=1),
        # of Gluon: layouts say which thread holds a value, so they do not matter here
        convert_layout=lambda a, _layout: a, permute=lambda a, order: tile(np.transpose(a, order)),
        allocate_shared_memory=_Shared, **_LAYOUTS,
    )  # fmt: skip


def run(text: str, arguments: list[np.ndarray], n_programs: int, **sizes: int) -> None:
    """Run every program of a kernel; results are added to or written in place."""
    body = text.partition("def kernel")[2]
    body = f"def kernel{body}"
    libdevice = SimpleNamespace(log1p=np.log1p, expm1=np.expm1, tanh=np.tanh, pow=np.power)
    with np.errstate(all="ignore"):  # rows beyond the last hold anything
        for program in range(n_programs):
            names = {
                "_rounded": lambda a: a,
                "_exp": np.exp,
                "_regrouped": _regrouped,
                "_grouped": lambda i: i // 8 * 8 + i % 4 * 2 + i // 4 % 2,
                "_sigmoid": lambda a: 1 / (1 + np.exp(-a)),
                "_in_threads": _in_threads,
                "_into_window": lambda hot, a, part: part + np.matmul(hot, a),
                "mma_v2": lambda a, b, part: part + np.matmul(a, b),
                "warpgroup_mma": _warpgroup_mma,
                "warpgroup_mma_wait": _awaited,
                "_down_threads": lambda a, w, b, n: tile(np.reshape(a, (w, b // w, n)).sum(1)),
                "_across_threads": lambda a, n, b: tile(
                    np.reshape(a, (n, b // 8, 4, 2)).sum(1).sum(2)
                ),
                "fence_async_shared": lambda: None,
                "gl": language(program, n_programs),
                "_softplus": lambda a: np.logaddexp(a, np.float32(0)),
                "tl": language(program, n_programs),
                "libdevice": libdevice,
            }
            exec(compile(body, "<kernel>", "exec"), names)
            names["kernel"](*(Pointer(a.reshape(-1)) for a in arguments), **sizes)
