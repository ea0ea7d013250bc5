"""Arguments and results of models: taken apart, compared, cut into micro-batches, put together."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch

import poptorch
from tremula.frontends.poptorch.inputs import arguments as custom_parsers
from tremula.frontends.poptorch.inputs.arguments import (
    ArgsParser,
    flatten_outputs,
    micro_batch,
    n_batches_to_combine,
    parser_for,
)

Pair = namedtuple("Pair", "left right")


class Plain(torch.nn.Module):
    def forward(self, x, y=None, z=None, t=None):
        return x, y, z, t


class Variadic(torch.nn.Module):
    def forward(self, a, b, *c, y=None, z=None, t=None, u=3, v="op", **w):
        return a, b, c, y, z, t, u, v, w


class Forwarding(torch.nn.Module):
    def forward(self, *args, **kwargs):
        return args, kwargs


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


@pytest.fixture
def parsers():
    """Parsers registered by a test are forgotten after it."""
    before = dict(custom_parsers._parsers)
    yield custom_parsers._parsers
    custom_parsers._parsers.clear()
    custom_parsers._parsers.update(before)


def check(parser, first, *args, **kwargs):
    parser.parse(args, kwargs).check_same(first)
    return parser.parse_again(args, kwargs, first)


def test_forms_of_a_call_are_one():
    """Positional, named and default arguments mean the same call."""
    x, y = ones(2), ones(3)
    parser = ArgsParser(Plain())
    first = parser.parse((x, y), {})
    for args, kwargs in (((x, y, None), {}), ((x,), {"y": y}), ((), {"t": None, "y": y, "x": x})):
        again = check(parser, first, *args, **kwargs)
        assert again.tensors[0] is x
        assert again.tensors[1] is y
    assert first.rebuild([1, 2]) == ((1, 2, None, None), {})
    assert first.tensor_names() == ["x", "y"]


def test_variadic_arguments():
    """Extra positional and named arguments are kept, in their places."""
    parser = ArgsParser(Variadic())
    t = ones(2)
    first = parser.parse((2, t, t, t, t), {"t": t, "x": t, "m": t, "z": t})
    args, kwargs = first.rebuild(range(8))
    assert args == (2, 0, 1, 2, 3)
    assert kwargs == {"y": None, "z": 4, "t": 5, "u": 3, "v": "op", "x": 6, "m": 7}
    assert first.tensor_names() == ["b", "c[0]", "c[1]", "c[2]", "z", "t", "x", "m"]
    assert Variadic()(*args, **kwargs)[2] == (1, 2, 3)


def test_mismatches_of_variadic_calls():
    """Each way a later call can differ has its own text."""
    parser = ArgsParser(Variadic())
    t = ones(2)
    named = {"t": t, "x": t, "m": t, "z": t, "u": 5}
    first = parser.parse((2, t, t, t, t), named)

    def differs(text, *args, **kwargs):
        with pytest.raises(poptorch.Error, match=text) as caught:
            check(parser, first, *args, **kwargs)
        assert "destroy()" in caught.value.message

    args = (2, t, t, t, t)
    text = "Number of positional arguments mismatch: expected 5 arguments but got 4"
    differs(text, *args[:4], **named)
    differs("Value mismatch for u: expected 5 but got 3", *args, **{**named, "u": 3})
    differs("Value mismatch for a: expected 2 but got 4", 4, *args[1:], **named)
    without_z = {name: value for name, value in named.items() if name != "z"}
    text = "Type mismatch for z: expected <class 'torch.Tensor'> but got <class 'NoneType'>"
    differs(text, *args, **without_z)
    without_m = {name: value for name, value in named.items() if name != "m"}
    differs(r"Keys mismatch .*Missing arguments: m\.", *args, **without_m)
    differs(r"Keys mismatch .*Unexpected arguments: q\.", *args, **named, q=t)
    differs(r"Type mismatch for c\[1\]: expected", 2, t, t, 5, t, **named)


def test_forwarded_arguments():
    """A forward that takes anything has no defaults to fill in."""
    parser = ArgsParser(Forwarding())
    first = parser.parse((ones(1),), {"z": ones(2)})
    with pytest.raises(poptorch.Error, match=r"Missing arguments: z\."):
        check(parser, first, ones(1))
    assert first.tensor_names() == ["args[0]", "z"]


@pytest.mark.parametrize(
    ("first", "later", "text"),
    [
        (ones(1), ones(1, dtype=torch.int64),
         "Data type mismatch for x: expected torch.float32 but got torch.int64"),
        (ones(1), ones(2),
         r"Shape mismatch for x: expected torch.Size\(\[1\]\) but got torch.Size\(\[2\]\)"),
        ((ones(1), ones(1)), (ones(1),), "Length mismatch for x: expected 2 elements but got 1"),
        ((ones(1), (ones(1),)), (ones(1), (ones(3),)), r"Shape mismatch for x\[1\]\[0\]: expected"),
        ((ones(1),), [ones(1)], "Type mismatch for x: expected <class 'tuple'> but got .*list"),
        ({"a": ones(1)}, {"b": ones(1)},
         r"Keys mismatch for x: Missing arguments: a\. Unexpected arguments: b\."),
        ({"a": ones(1)}, {"a": ones(2)}, r"Shape mismatch for x\['a'\]: expected"),
        ("a", "b", "Value mismatch for x: expected a but got b"),
        (1, 1.0, "Type mismatch for x: expected <class 'int'> but got <class 'float'>"),
        (np.ones(2), np.ones(2), "Value mismatch for x"),
        (Pair(ones(1), 1), Pair(ones(1), 2), r"Value mismatch for x\[1\]: expected 1 but got 2"),
    ],
)  # fmt: skip
def test_mismatches(first, later, text):
    """A later argument of another type, length, shape or value is named and rejected."""
    parser = ArgsParser(Plain())
    with pytest.raises(poptorch.Error, match=text):
        check(parser, parser.parse((first,), {}), later)


def test_wrong_calls():
    """Missing, superfluous, doubled and unknown arguments are rejected."""
    with pytest.raises(poptorch.Error, match="Mandatory parameter b missing"):
        ArgsParser(Variadic()).parse((2,), {})
    parser = ArgsParser(Plain())
    with pytest.raises(AssertionError, match="4 positional arguments, but 5 were given"):
        parser.parse((1, 2, 3, 4, 5), {})
    with pytest.raises(TypeError, match="multiple values for argument 'x'"):
        parser.parse((1,), {"x": 2})
    with pytest.raises(TypeError, match="unexpected keyword argument 'xx': did you mean 'x'"):
        parser.parse((), {"x": 1, "xx": 2})


def test_order_of_keys():
    """Keys of dictionaries and names of arguments may come in another order later."""
    parser = ArgsParser(Forwarding())
    a, b, c = ones(1), ones(2), ones(3)
    first = parser.parse(({"a": a, "b": (b, c)},), {"p": c, "q": b})
    again = check(parser, first, {"b": (b, c), "a": a}, q=b, p=c)
    assert [tuple(t.shape) for t in again.tensors] == [(1,), (2,), (3,), (3,), (2,)]
    assert all(t is u for t, u in zip(again.originals, again.tensors, strict=True))
    args, kwargs = again.rebuild("vwxyz")
    assert args == ({"a": "v", "b": ("w", "x")},)
    assert kwargs == {"p": "y", "q": "z"}


def test_dictionaries_warn_once(capsys):
    """Dictionaries as inputs are said to have partial support, once."""
    parser = ArgsParser(Plain())
    parser.parse(({"a": ones(1)},), {})
    parser.parse(({"a": ones(1)},), {})
    assert capsys.readouterr().err.count("partial support") == 1


def test_inputs_are_cleaned(capsys):
    """Inputs are detached and made contiguous, with a warning each; originals are kept."""
    parser = ArgsParser(Plain())
    wanted = ones(2, 3).requires_grad_()
    scattered = ones(3, 2).t()
    for _ in range(2):
        parsed = parser.parse((wanted, scattered), {})
    assert not parsed.tensors[0].requires_grad
    assert parsed.tensors[1].is_contiguous()
    assert parsed.originals[0] is wanted
    assert parsed.originals[1] is scattered
    log = capsys.readouterr().err
    assert log.count("Input tensor has requires_grad=True set.") == 1
    assert log.count("not contiguous") == 1
    again = parser.parse_again((ones(2, 3), scattered), {}, parsed)
    assert again.tensors[1].is_contiguous()


def test_narrowing(capsys):
    """A warning names each input of a type the device lacks, once, and what it becomes."""
    parser = ArgsParser(Plain())
    wide = [ones(1, dtype=torch.int64), ones(1, dtype=torch.float64), ones(1, dtype=torch.bfloat16)]
    parsed = parser.parse(((wide[0], wide[1]), wide[2], ones(1, dtype=torch.int8)), {})
    for _ in range(2):
        parser.warn_about_types(parsed)
    log = capsys.readouterr().err
    assert log.count("Input x[0] has the type torch.int64") == 1
    assert log.count("converted to torch.int32") == 1
    assert log.count("converted to torch.float32") == 2
    parser.warn_about_types(parser.parse((ones(1),), {}))
    assert not capsys.readouterr().err


def test_micro_batches():
    """A call's input is cut evenly into device iterations, replica groups and accumulation."""
    opts = poptorch.Options().deviceIterations(2).replicationFactor(4)
    opts.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    opts.Training.gradientAccumulation(3)
    assert n_batches_to_combine(opts) == 12
    assert micro_batch(ones(24, 5), opts).shape == (2, 5)
    text = (
        r"Invalid batch dimension: In the input torch.Size\(\[13, 5\]\), the batch dimension "
        r"\(13\) must be a multiple of Options.deviceIterations\(2\) \* "
        r"\(Options.replicationFactor\(4\) / "
        r"Options.inputReplicaGrouping.input_group_size\(2\)\) \* "
        r"Options.Training.gradientAccumulation\(3\) = 12"
    )
    with pytest.raises(AssertionError, match=text):
        micro_batch(ones(13, 5), opts)
    with pytest.raises(AssertionError, match=r"the batch dimension \(1\)"):
        micro_batch(torch.tensor(1.0), opts)
    scalar = torch.tensor(1.0)
    assert micro_batch(scalar, poptorch.Options()) is scalar


class Box:
    def __init__(self, a, b):
        self.a, self.b = a, b


class SmallBox(Box):
    pass


class BoxParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.a
        yield struct.b

    def reconstruct(self, original_structure, tensor_iterator):
        return type(original_structure)(next(tensor_iterator), next(tensor_iterator))


def test_custom_parsers(parsers):
    """Objects of a registered class, or of one derived from it, go in and out."""
    poptorch.registerCustomArgParser(Box, BoxParser())
    parser = ArgsParser(Plain())
    first = parser.parse((SmallBox(ones(1), ones(2)),), {})
    (box, *_), _ = first.rebuild([ones(1), 7 * ones(2)])
    assert type(box) is SmallBox
    assert box.b[0] == 7
    with pytest.raises(poptorch.Error, match=r"Shape mismatch for x\[1\]"):
        check(parser, first, SmallBox(ones(1), ones(3)))
    with pytest.raises(poptorch.Error, match=r"Type mismatch for x: expected .*SmallBox"):
        check(parser, first, Box(ones(1), ones(2)))


def test_lookup_of_parsers(parsers):
    """The parser of the class itself wins over that of a base registered before."""
    base, own = BoxParser(), BoxParser()
    poptorch.registerCustomArgParser(Box, base)
    assert parser_for(SmallBox(1, 2)) is base
    poptorch.registerCustomArgParser(SmallBox, own)
    assert parser_for(SmallBox(1, 2)) is own
    assert parser_for(3) is None
    with pytest.raises(poptorch.Error, match="arg_parser must inherit from ICustomArgParser"):
        poptorch.registerCustomArgParser(Box, object())


class Output(OrderedDict):
    """A dictionary with a method, as libraries return them."""

    def total(self):
        return sum(self.values())


def test_outputs(parsers):
    """Results keep their structure: nested, named, custom, constant, the same tensor twice."""
    poptorch.registerCustomArgParser(Box, BoxParser())
    t = ones(1)
    value = (t, [t, None, "text"], {"a": Pair(t, 3)}, Output(x=t), Box(t, t))
    tensors, rebuild = flatten_outputs(value)
    assert len(tensors) == 6
    assert all(tensor is t for tensor in tensors)
    first, listed, named, own, box = rebuild([1, 2, 3, 4, 5, 6])
    assert (first, listed, named) == (1, [2, None, "text"], {"a": Pair(3, 3)})
    assert type(named["a"]) is Pair
    assert type(own) is Output
    assert own.total() == 4
    assert (box.a, box.b) == (5, 6)
    assert value[3]["x"] is t


@pytest.mark.parametrize("value", [None, 5, "text", (), {}, [None]])
def test_outputs_without_tensors(value):
    """A result without tensors comes back as it is."""
    tensors, rebuild = flatten_outputs(value)
    assert tensors == []
    assert rebuild([]) == value


def test_wrong_number_of_results():
    """Putting too few tensors back is our own mistake and says so."""
    _, rebuild = flatten_outputs(ones(1))
    with pytest.raises(AssertionError, match="expected 1 tensors, got 0"):
        rebuild([])
