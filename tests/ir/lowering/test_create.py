"""Tensors made of nothing against ATen, and that most of them take no room."""

import torch

from tests.ir.like_aten import assert_like_aten
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.run.tile_run import capture_function
from tremula.poplar.target import IPUModel


def test_constants():
    """Filled, counted and diagonal tensors have ATen's values and types."""

    def function(x):
        return [
            torch.full((2, 3), 1.5), torch.full((2,), 3), torch.full((2,), True),
            torch.full_like(x, 2), torch.zeros(3), torch.zeros_like(x), torch.ones(2, 2),
            torch.ones_like(x, dtype=torch.int32), x.new_full((2,), 3.0), x.new_zeros(2, 2),
            x.new_ones(3), torch.scalar_tensor(2.0), torch.zeros(2).fill_(3.0), torch.tensor(4.0),
            torch.tensor([1, 2]), torch.arange(5), torch.arange(1, 10, 2.5), torch.arange(9, 3, -2),
            torch.arange(3, 9, dtype=torch.float16), torch.linspace(0, 1, 7), torch.eye(3),
            torch.eye(2, 3), torch.tril_indices(3, 4), torch.triu_indices(3, 4, 1),
            torch.full((2,), 2**40).clamp(max=7), torch.ops.aten.fill(x, x[0, 0]),
            torch.hamming_window(6, True, 0.5), torch.kaiser_window(6, periodic=False),
            torch.blackman_window(4), torch.bartlett_window(4).half(), torch.fft.rfftfreq(6, 0.5),
        ]  # fmt: skip

    assert_like_aten(function, torch.randn(3, 4))


def test_empty_tensors_hold_zeros():
    """What ATen leaves undefined is 0 on tiles, whatever its strides."""

    def function(x):
        made = (
            torch.empty(2, 3), torch.empty_like(x), x.new_empty(2),
            torch.empty_strided((2, 2), (1, 2)), x.new_empty_strided((2, 2), (1, 2)),
            torch.empty_permuted((2, 3), (1, 0)),
        )  # fmt: skip
        return [
            torch.where(torch.ones_like(m, dtype=torch.bool), torch.zeros_like(m), m) for m in made
        ]

    assert_like_aten(function, torch.randn(3, 4))


def test_a_filled_tensor_is_one_constant():
    """full takes the room of one element, and adds no vertices."""
    step = capture_function(lambda x: [x[0], torch.full((1000, 1000), 2.0)[0, :2]], [torch.ones(2)])
    built = build_tile_program(
        step, IPUModel("bow", tiles_per_ipu=4).create_device().target, Schedule()
    )
    sizes = [
        type.n_bytes * torch.Size(shape).numel()
        for type, shape in zip(
            built.graph.state.variables.types, built.graph.state.variables.shapes, strict=True
        )
    ]
    assert max(sizes) < 1000
    assert not built.graph.state.compute_sets
