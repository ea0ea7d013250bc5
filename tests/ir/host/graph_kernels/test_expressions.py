"""Each expression computes what its ATen operation does, and keeps zero where it says so."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload

from tests.ir.host.graph_kernels.triton_in_numpy import Tile, language, tile
from tremula.ir.host.graph_kernels.expressions import (
    ELEMENT_WISE,
    GLUON,
    TRITON,
    Dialect,
    MissingFunctionError,
    number,
)

BOOLEAN = {  # positions of operands that are booleans
    torch.ops.aten.where.self: (0,),
    torch.ops.aten.masked_fill.Scalar: (1,),
    torch.ops.aten.logical_and.default: (0, 1),
    torch.ops.aten.logical_or.default: (0, 1),
}
NUMBERS = {"threshold": 20, "beta": 1, "is_result": False}
every_expression = pytest.mark.parametrize("op", ELEMENT_WISE, ids=str)


def sample(op: OpOverload) -> list[object]:
    """Operands of both signs, so that some logarithms are NaN; 0.7 and more for numbers."""
    random = torch.Generator().manual_seed(len(str(op)))
    values: list[object] = []
    for position, argument in enumerate(op._schema.arguments):
        if argument.kwarg_only:
            break
        if "Tensor" in str(argument.type):
            drawn = torch.randn(16, generator=random)
            values.append(drawn > 0 if position in BOOLEAN.get(op, ()) else drawn)
        else:
            values.append(NUMBERS.get(argument.name, 0.7 + position))
    return values


def evaluated(op: OpOverload, values: list[object], dialect: Dialect = TRITON) -> Tile:
    """The text of an expression, run in NumPy."""
    names = {f"x{i}": tile(v.numpy()) for i, v in enumerate(values) if isinstance(v, Tensor)}
    texts = [f"x{i}" if isinstance(v, Tensor) else number(v) for i, v in enumerate(values)]
    functions = {
        "tl": language(0, 1),
        "gl": language(0, 1),
        "_exp": np.exp,
        "_sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "_softplus": lambda x: np.logaddexp(x, np.float32(0)),
        "libdevice": SimpleNamespace(log1p=np.log1p, expm1=np.expm1, tanh=np.tanh, pow=np.power),
    }
    text = ELEMENT_WISE[op].write(*texts, d=dialect)
    with np.errstate(all="ignore"):
        return eval(text, {**functions, **names})


@every_expression
@pytest.mark.parametrize("dialect", [TRITON, GLUON], ids=lambda dialect: dialect.lib)
def test_an_expression_is_its_operation(op: OpOverload, dialect: Dialect):
    """In both dialects; what calls libdevice exists in Triton alone."""
    values = sample(op)
    try:
        result = evaluated(op, values, dialect)
    except MissingFunctionError:
        assert dialect is GLUON
        assert "libdevice" in ELEMENT_WISE[op].write(*map(str, values), d=TRITON)
        return
    np.testing.assert_allclose(result, op(*values).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [op for op, row in ELEMENT_WISE.items() if row.zero_from], ids=str)
def test_zero_operands_give_zero(op: OpOverload):
    """Each operand in `zero_from`, set to zero by itself, makes the result zero."""
    for position in ELEMENT_WISE[op].zero_from:
        values = sample(op)
        values[position] = torch.zeros(16)
        assert not np.any(evaluated(op, values))
        assert not torch.any(op(*values))


@every_expression
def test_dialects_differ_in_names_only(op: OpOverload):
    """Gluon's text has no function of Triton's module but the way to treat NaN, and vice versa."""
    texts = [f"x{i}" if isinstance(v, Tensor) else str(v) for i, v in enumerate(sample(op))]
    assert "gl." not in ELEMENT_WISE[op].write(*texts, d=TRITON)
    try:
        gluon = ELEMENT_WISE[op].write(*texts, d=GLUON)
    except MissingFunctionError:
        return
    assert "tl." not in gluon.replace("tl.PropagateNan", "")
