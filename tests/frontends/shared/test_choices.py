"""Memory and type of partial sums of one product: its plan is another, its gradients' plans too."""

import numpy as np
import pytest
import torch

import popart
import popxl
from popxl import ops
from tests.frontends.popart.sessions.models import ran
from tests.frontends.shared.two_convolutions import (
    arrays_of,
    device,
    multiconv_in_training,
    multiconv_of_popart,
    of_popart,
    of_popxl,
    popart_in_training,
)
from tremula.frontends.popxl.fp8_utils import host_pow2scale_cast_to_fp8
from tremula.ir.origin import Choices

HALVES = arrays_of(np.float16, (2, 16, 10, 10), (32, 16, 3, 3), (32, 32, 3, 3))
SECOND = ("convolution_default_1", "convolution_backward_default", "_backward_default/weights")
# In so little memory, a product cannot be computed at once.
LITTLE = 0.002
CHOICES = [
    (Choices(available_memory=LITTLE), ("Amp<half,float>", "HorizontalMac<half,float>")),
    (Choices(partials_type="half"), ("Amp<half,float>", "Amp<half,half>")),
]
MAKERS = [of_popart, multiconv_of_popart, popart_in_training, multiconv_in_training, of_popxl]


def codelets_of(executable):
    """The codelets of each product in order, by the name of its operation."""
    result = {}
    for step in executable.steps:
        name, _, kind = step.name.rpartition("/")
        if kind == "Convolve":
            tables = executable.compute_sets[step.compute_set].tables
            used = {executable.codelets[table.codelet].spec.name for table in tables}
            result.setdefault(name, []).extend(n.split("ConvPartial")[1] for n in used)
    return result


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("second", "names"), CHOICES)
def test_a_convolution_says_how_it_is_planned(make, second, names):
    """The second convolution and both its gradients have other plans; the first one has not."""
    plain, expected = make({}, Choices(), HALVES)
    executable, results = make({}, second, HALVES)
    before, after = codelets_of(plain), codelets_of(executable)
    changed = {name: after[name] for name in before if before[name] != after[name]}
    assert len(changed) == (1 if make in {of_popart, multiconv_of_popart} else 3)
    assert all(name.endswith(SECOND) for name in changed)
    assert len(before) > len(changed)
    for name, codelets in changed.items():
        assert ({*before[name]}, {*codelets}) == ({names[0]}, {names[1]})
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(
            one.astype(float), other.astype(float), rtol=5e-3, atol=5e-3 * np.abs(other).max()
        )


# -- every product of PopXL ------------------------------------------------------------------------


def small(*shape):
    return np.random.default_rng(5).integers(-2, 3, shape).astype(np.float32)


def eighths(values):
    return popxl.variable(host_pow2scale_cast_to_fp8(values, popxl.float8_143, 0, False))


def halves(values):
    return popxl.variable(values.astype(np.float16))


IMAGES, WEIGHTS, ROWS = small(2, 32, 8, 8), small(32, 32, 3, 3), small(96, 96)
LIST = {"available_memory_proportions": [LITTLE]}
PRODUCTS = {
    "conv": (ops.conv, halves, (IMAGES, WEIGHTS), LIST),
    "conv_transpose": (ops.conv_transpose, halves, (IMAGES, WEIGHTS), LIST),
    "conv_pow2scaled": (ops.conv_pow2scaled, eighths, (IMAGES, WEIGHTS), LIST),
    "conv_transpose_pow2scaled": (ops.conv_transpose_pow2scaled, eighths, (IMAGES, WEIGHTS), LIST),
    "matmul": (ops.matmul, halves, (ROWS, ROWS), {"available_memory_proportion": LITTLE}),
    "matmul_pow2scaled": (
        ops.matmul_pow2scaled, eighths, (ROWS, ROWS), {"available_memory_proportion": 2 * LITTLE},
    ),
}  # fmt: skip


def popxl_product(name, **choices):
    """The codelets of a product, and its result."""
    function, variable, arrays, _ = PRODUCTS[name]
    ir = popxl.Ir()
    with ir.main_graph:
        scale = {"log2_scale": 0} if name.endswith("scaled") else {}
        result = function(*map(variable, arrays), **scale, **choices)
        stream = popxl.d2h_stream(result.shape, result.dtype)
        ops.host_store(stream, result)
    with popxl.Session(ir, device()) as running:
        values = running.run()[stream]
        return codelets_of(running.report().executable), values


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_product_of_popxl_takes_a_share_of_memory(name):
    """In little memory its plan is another, and its result the same."""
    plain, expected = popxl_product(name)
    planned, result = popxl_product(name, **PRODUCTS[name][-1])
    assert planned != plain
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("conv_transpose", {"partials_types": ["half"]}),
        ("conv", {"partials_types": [popxl.float16]}),
        ("matmul", {"partials_type": popxl.float16}),
    ],
)
def test_products_of_popxl_take_a_type_of_partial_sums(name, choices):
    """Codelets sum in halves."""
    for types, chosen in (("<half,float>", {}), ("<half,half>", choices)):
        codelets = popxl_product(name, **chosen)[0]
        assert all(c.endswith(types) for used in codelets.values() for c in used)


# -- PopART ----------------------------------------------------------------------------------------


def test_a_product_of_popart_says_how_it_is_planned():
    """setPartialsType and setAvailableMemoryProportion of one MatMul do not change the other."""
    rows = ROWS.astype(np.float16)

    def planned(note):
        builder = popart.Builder()
        x = builder.addInputTensor(popart.TensorInfo(rows), "x")
        w = builder.addInitializedInputTensor(rows)
        first = builder.aiOnnx.matmul([x, w])
        second = str(builder.aiOnnx.matmul([builder.aiOnnx.tanh([first]), w]))
        note(builder, second)
        running, _ = ran(builder, {"x": rows}, [second], None, device())
        return list(codelets_of(running._program.program.tiles.program().executable).values())

    plain = planned(lambda _builder, _id: None)
    summed = planned(lambda builder, y: builder.setPartialsType(y, "HALF"))
    stored = planned(lambda builder, y: builder.setAvailableMemoryProportion(y, LITTLE))
    assert plain[0] == summed[0] == stored[0]
    assert set(summed[1]) == {"Amp<half,half>"} != set(plain[1])
    assert stored[1] not in (plain[1], summed[1])


def multi(**choices):
    builder = popart.Builder()
    arrays = [small(1, 4, 6, 6), small(4, 4, 3, 3), small(6, 4, 3, 3)]
    ids = [builder.addInputTensor(popart.TensorInfo(a.astype(np.float16))) for a in arrays]
    results = [str(id) for id in builder.aiGraphcore.multiconv([ids[:2], ids[::2]], **choices)]
    inputs = {id: a.astype(np.float16) for id, a in zip(ids, arrays, strict=True)}
    running, values = ran(builder, inputs, results, None, device())
    image, *weights = map(torch.tensor, arrays)
    for id, weight in zip(results, weights, strict=True):
        expected = torch.nn.functional.conv2d(image, weight).numpy()
        np.testing.assert_array_equal(values[id], expected.astype(np.float16))
    return list(codelets_of(running._program.program.tiles.program().executable).values())


def test_convolutions_of_a_multiconv_are_planned_one_by_one():
    """A list has a value for each of them; one value is for all."""
    for types in (["half", "float"], ["float", "half"]):
        assert [{c.split(",")[1] for c in used} for used in multi(partialsTypes=types)] == [
            {f"{name}>"} for name in types
        ]
    assert all("half>" in str(used) for used in multi(partialsTypes=["half"]))


def test_choices_of_a_multiconv_are_checked():
    """Numbers of values and names of types."""
    with pytest.raises(popart.popart_exception, match="3 partialsTypes, but 2 convolutions"):
        multi(partialsTypes=["half"] * 3)
    with pytest.raises(popart.popart_exception, match="'half' or 'float'"):
        multi(partialsTypes=["int", "half"])
