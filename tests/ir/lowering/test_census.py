"""The census: every operation that models need is lowered, runs on tiles, and equals ATen."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.ir.like_aten import assert_close
from tests.ir.lowering.census import FAMILIES, OVERLOADS, inputs
from tremula.ir.op_table import decomposition_of, has_lowering
from tremula.ir.recorder import Recorder
from tremula.ir.run.tile_run import run_on_tiles

N_TOGETHER = 9  # samples in one program: few programs to compile, and none too large for a tile


def groups():
    """Samples of a family, a few at a time."""
    for family, samples in FAMILIES.items():
        names = list(samples)
        for start in range(0, len(names), N_TOGETHER):
            part = names[start : start + N_TOGETHER]
            yield pytest.param(family, part, id=f"{family}: {part[0]} to {part[-1]}")


def test_there_are_120():
    """The table has the 120 operations of the census, each once."""
    names = [name for samples in FAMILIES.values() for name in samples]
    assert len(names) == len(set(names)) == 120


def test_every_overload_is_lowered_or_spelled_out():
    """Each overload that was met has a lowering, or a decomposition, ours or PyTorch's."""
    missing = []
    for overload in OVERLOADS:
        name, _, form = overload.partition(".")
        func = getattr(getattr(torch.ops.aten, name), form)
        is_taken_apart = torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), "CompositeImplicitAutograd"
        )
        if not (has_lowering(func) or decomposition_of(func) or is_taken_apart):
            missing.append(overload)
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize(("family", "names"), list(groups()))
def test_runs_on_tiles_as_in_aten(family, names, monkeypatch):
    """The operations are recorded, run on tiles, and give ATen's values."""
    samples, given = FAMILIES[family], inputs()

    def function(*tensors):
        pool = SimpleNamespace(**dict(zip(given, tensors, strict=True)))
        return tree_leaves([samples[name](pool) for name in names])

    counts = [len(tree_leaves([samples[n](SimpleNamespace(**given))])) for n in names]
    owner = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    wanted = function(*given.values())
    met = _recorded_names(monkeypatch)
    result = run_on_tiles(function, *given.values())
    fused = {"_scaled_dot_product_flash_attention_for_cpu_backward"}
    assert set(names) - fused <= met, "a sample does not call its operation"
    for name, got, right in zip(owner, result, wanted, strict=True):
        assert_close(got, right.detach(), name, rtol=2e-5, atol=1e-5)


def _recorded_names(monkeypatch):
    """The operations met while a function is recorded, filled as it is."""
    met = set()
    record = Recorder._record

    def remember(self, func, *rest):
        met.add(func._schema.name.removeprefix("aten::"))
        return record(self, func, *rest)

    monkeypatch.setattr(Recorder, "_record", remember)
    return met
