"""Replicas, accumulation and device iterations: the mathematics of a step, layouts, buffers."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from poptorch import CommGroupType
from tests.sampling import in_turn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, y):
        out = self.linear(x)
        return out, nn.functional.mse_loss(out, y)


def data(n):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, generator=generator), torch.randn(n, 2, generator=generator)


def options_of(iterations=1, accumulation=1, replicas=1, reduction=None):
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    if reduction is not None:
        options.Training.accumulationAndReplicationReductionType(reduction)
    return options


def trained(options, lr=0.1, n=24):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    poptorch.trainingModel(model, options, optimizer)(*data(n))
    return model.linear.weight.detach().clone()


def by_hand(iterations, n_micro, lr=0.1, n=24, divide=True):
    """The step as 3.4 of the semantics says it: sum over micro-batches, then one update."""
    torch.manual_seed(0)
    model = Model()
    x, y = data(n)
    parts = list(zip(x.chunk(iterations * n_micro), y.chunk(iterations * n_micro), strict=True))
    for iteration in range(iterations):
        model.zero_grad()
        for part in parts[iteration * n_micro : (iteration + 1) * n_micro]:
            model(*part)[1].backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= lr * p.grad / (n_micro if divide else 1)
    return model.linear.weight.detach()


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize(("accumulation", "replicas"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_mean_of_gradients(iterations, accumulation, replicas):
    """By default gradients are averaged over accumulation and replicas, one update a step."""
    got = trained(options_of(iterations, accumulation, replicas))
    torch.testing.assert_close(got, by_hand(iterations, accumulation * replicas))


@pytest.mark.parametrize(("accumulation", "replicas"), [(2, 1), (1, 2), (2, 2)])
def test_sum_of_gradients(accumulation, replicas):
    """Sum does not divide."""
    got = trained(options_of(2, accumulation, replicas, poptorch.ReductionType.Sum))
    torch.testing.assert_close(got, by_hand(2, accumulation * replicas, divide=False))


def test_accumulation_equals_a_larger_batch():
    """Mean over two halves is the whole batch; Sum with half the learning rate is the same."""
    whole = trained(options_of())
    torch.testing.assert_close(trained(options_of(accumulation=2)), whole)
    summed = options_of(accumulation=2, reduction=poptorch.ReductionType.Sum)
    torch.testing.assert_close(trained(summed, lr=0.05), whole)


@pytest.mark.parametrize("strategy", list(poptorch.MeanReductionStrategy))
def test_mean_strategies_change_rounding_only(strategy):
    """When a mean is divided does not matter."""
    options = options_of(accumulation=2)
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
    torch.testing.assert_close(trained(options), trained(options_of(accumulation=2)))


GRADIENTS = torch.tensor([[40000.0, 0.1], [39000, 0.7], [41000, -0.3], [40008, 1.3], [17, 0.01]])


class Products(nn.Module):
    """The gradient of its weights is its input."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, dtype=dtype))

    def forward(self, x):
        return poptorch.identity_loss(self.weight * x, "sum")


@pytest.mark.parametrize(
    ("on_tiles", "dtype"), [(False, torch.float32), (False, torch.float16), (True, torch.float32)]
)
def test_a_running_mean_is_rounded_to_half(on_tiles, dtype):
    """Half accumulators hold mean + (gradient - mean) / n after each; a sum would overflow."""
    options = poptorch.Options()
    options.useIpuModel(on_tiles)
    options.Training.gradientAccumulation(len(GRADIENTS))
    model = Products(dtype)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, accum_type=torch.float16)
    training = poptorch.trainingModel(model, options, optimizer)
    training(GRADIENTS.to(dtype).flatten().reshape(len(GRADIENTS), 2))
    mean = torch.zeros(2)
    for n, gradient in enumerate(GRADIENTS.to(dtype).float(), 1):
        mean = (mean + (gradient - mean) / n).half().float()
    assert torch.equal(-model.weight.float().detach(), mean)


def test_more_options_than_processes():
    """Gradients of a mean are divided by the replicas of all processes."""
    options = options_of(replicas=2)
    options.Distributed.configureProcessId(0, 1)
    torch.testing.assert_close(trained(options), by_hand(1, 2))


class Shows(nn.Module):
    def forward(self, x):
        return x.clone()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (CommGroupType.Consecutive, [0, 0, 1, 1, 2, 2, 3, 3]),
        (CommGroupType.Orthogonal, [0, 2, 0, 2, 1, 3, 1, 3]),
    ],
)
def test_input_groups(kind, expected):
    """Replicas of a group read the same slice; orthogonal groups have contiguous parts."""
    options = poptorch.Options().deviceIterations(2).replicationFactor(4)
    options.inputReplicaGrouping(2, kind)
    x = torch.arange(4.0)
    assert poptorch.inferenceModel(Shows(), options)(x).tolist() == expected


def test_no_grouping():
    """Without groups replica r of iteration i reads slice i × replicas + r."""
    options = poptorch.Options().deviceIterations(2).replicationFactor(2)
    options.inputReplicaGrouping(1, CommGroupType.NoGrouping)
    assert poptorch.inferenceModel(Shows(), options)(torch.arange(4.0)).tolist() == [0, 1, 2, 3]


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1))

    def forward(self, x):
        self.total += x
        return self.total + 0


def test_written_buffers_are_not_broadcast():
    """Replicas that write a buffer need broadcastBuffers(False)."""
    options = poptorch.Options().replicationFactor(2)
    with pytest.raises(poptorch.Error, match=r"PopTorch does not support broadcasting buffers."):
        poptorch.inferenceModel(Counts(), options)(torch.ones(2))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        y = self.norm(x)
        return y, nn.functional.mse_loss(y, torch.zeros_like(y))


def test_statistics_of_batch_norms_are_of_each_replica():
    """They are not broadcast buffers: each replica has its own, and those of the first are read."""
    model = Normed()
    options = poptorch.Options().replicationFactor(2)
    x = torch.arange(16.0).reshape(8, 2) ** 1.5
    wrapped = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    wrapped(x)
    alone = Normed()
    alone(x[:4])
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(model.norm, name), getattr(alone.norm, name))


def test_every_replica_has_its_buffers():
    """With broadcastBuffers(False) each replica goes on with its own copy."""
    options = poptorch.Options().replicationFactor(2).deviceIterations(2).broadcastBuffers(False)
    model = Counts()
    wrapped = poptorch.inferenceModel(model, options)
    assert wrapped(torch.tensor([1.0, 10.0, 1.0, 10.0])).tolist() == [1, 10, 2, 20]
    assert wrapped(torch.tensor([1.0, 10.0, 1.0, 10.0])).tolist() == [3, 30, 4, 40]
    wrapped.copyWeightsToHost()
    assert model.total == 4  # those of the first replica


def test_buffers_go_on_over_iterations_and_calls():
    """In-place updates persist across device iterations and calls."""
    wrapped = poptorch.inferenceModel(Counts(), poptorch.Options().deviceIterations(3))
    assert wrapped(torch.ones(3)).tolist() == [1, 2, 3]
    assert wrapped(torch.ones(3)).tolist() == [4, 5, 6]


def test_read_only_buffers_are_shared():
    """Buffers that are never written need no broadcast."""
    layer = nn.BatchNorm1d(3).eval()
    x = torch.randn(4, 3)
    options = poptorch.Options().replicationFactor(2)
    torch.testing.assert_close(poptorch.inferenceModel(layer, options)(x), layer(x))


def test_batch_norm_per_micro_batch():
    """Statistics are those of a micro-batch; running ones advance once for each."""

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.linear = nn.Linear(3, 2)

        def forward(self, x, y):
            return nn.functional.mse_loss(self.linear(self.norm(x)), y)

    torch.manual_seed(0)
    model = Normed()
    reference = copy.deepcopy(model)
    x, y = data(24)
    poptorch.trainingModel(model, options_of(2, 2))(x, y)
    for part in x.chunk(4):
        reference.norm(part)
    assert model.norm.num_batches_tracked == 4
    torch.testing.assert_close(model.norm.running_mean, reference.norm.running_mean)
    torch.testing.assert_close(model.norm.running_var, reference.norm.running_var)


def test_frozen_and_missing_parameters():
    """Parameters that need no gradient, or are in no group, never change."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].weight.requires_grad = False
    forward = model.forward
    model.forward = lambda x: poptorch.identity_loss(forward(x), "sum")
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD([*model[0].parameters(), *model[2].parameters()], lr=0.1)
    poptorch.trainingModel(model, optimizer=optimizer)(torch.ones(2, 3))
    same = {name: torch.equal(value, before[name]) for name, value in model.state_dict().items()}
    assert same == {
        "0.weight": True, "0.bias": False, "1.weight": True, "1.bias": True,
        "2.weight": False, "2.bias": False,
    }  # fmt: skip


def test_tiles_train_replicas_as_the_host():
    """Replicas, accumulation and iterations on tiles give the weights the host gives."""
    options = options_of(2, 2, 2).useIpuModel(True)
    torch.testing.assert_close(trained(options), by_hand(2, 4), rtol=1e-4, atol=1e-6)


# -- weights of replicas ---------------------------------------------------------------------------


class Scales(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values)
        self.shared = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        out = x * self.weight + self.shared
        return out, poptorch.identity_loss(out, "sum")


ONE, EVERY = poptorch.VariableRetrievalMode.OnePerGroup, poptorch.VariableRetrievalMode.AllReplicas


@pytest.mark.parametrize("on_tiles", [False, True])
@pytest.mark.parametrize(
    ("kind", "size", "n_groups", "expected"),
    [
        (CommGroupType.NoGrouping, 0, 4, [1, 2, 3, 4]),
        (CommGroupType.Consecutive, 2, 2, [1, 1, 2, 2]),
        (CommGroupType.Orthogonal, 2, 2, [1, 2, 1, 2]),
    ],
)
def test_groups_of_replicas_have_weights(kind, size, n_groups, expected, on_tiles):
    """Each group of replicas computes with its slice of a grouped parameter."""
    model = Scales(torch.arange(1.0, n_groups + 1).reshape(n_groups, 1))
    options = poptorch.Options().replicationFactor(4).useIpuModel(on_tiles)
    wrapped = poptorch.inferenceModel(model, options)
    wrapped.weight.replicaGrouping(kind, size, ONE)
    assert wrapped(torch.ones(4))[0].tolist() == expected
    wrapped.copyWeightsToHost()
    assert model.weight.flatten().tolist() == list(range(1, n_groups + 1))


@pytest.mark.parametrize("on_tiles", [False, True])
@pytest.mark.parametrize(
    ("kind", "x"),
    [
        (CommGroupType.Consecutive, [1.0, 3.0, 10.0, 30.0]),
        (CommGroupType.Orthogonal, [1.0, 10.0, 3.0, 30.0]),
    ],
)
def test_groups_train_apart(kind, x, on_tiles):
    """A grouped parameter is trained by its group's sum over all replicas, others by the mean."""
    model = Scales(torch.tensor([[1.0], [2.0]]))
    options = poptorch.Options().replicationFactor(4).useIpuModel(on_tiles)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    wrapped = poptorch.trainingModel(model, options, optimizer)
    wrapped.weight.replicaGrouping(kind, 2, ONE)
    wrapped(torch.tensor(x))
    assert model.weight.flatten().tolist() == [1 - 1, 2 - 10]
    assert model.shared.tolist() == [-1.0]
    state = optimizer.state_dict()["ipu_state"]
    assert sorted(state["Accl1___weight"].flatten().tolist()) == [1, 1, 10, 10]
    assert state["Accl1___shared"].tolist() == [1.0]
    wrapped(torch.tensor(x))
    assert model.weight.flatten().tolist() == [1 - 1 - 1.5, 2 - 10 - 15]


SHAPES = [
    (kind, size, n_replicas)
    for kind in (CommGroupType.Consecutive, CommGroupType.Orthogonal)
    for n_replicas in (2, 6)
    for size in (1, 2, 3, 6)
    if n_replicas % size == 0
] + [(CommGroupType.NoGrouping, 0, 4), (CommGroupType.All, 0, 4)]


@pytest.mark.parametrize(
    ("shape", "reduction"),
    in_turn(SHAPES, [poptorch.ReductionType.Mean, poptorch.ReductionType.Sum]),
)
def test_grouped_gradients_have_the_reduction_of_all(shape, reduction):
    """A slice moves by its group's gradients, summed or divided by accumulation x replicas."""
    kind, size, n_replicas = shape
    group_of = _groups_by_hand(kind, size, n_replicas)
    n_groups, n_accumulation = max(group_of) + 1, 2
    is_whole = kind is CommGroupType.All
    model = Scales(torch.ones(1) if is_whole else torch.ones(n_groups, 1))
    options = poptorch.Options().replicationFactor(n_replicas).autoRoundNumIPUs()
    options.Training.gradientAccumulation(n_accumulation)
    options.Training.accumulationAndReplicationReductionType(reduction)
    wrapped = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=1.0))
    wrapped.weight.replicaGrouping(kind, size, ONE)
    x = torch.arange(1.0, n_accumulation * n_replicas + 1)
    wrapped(x)
    is_mean = reduction is poptorch.ReductionType.Mean
    divisor = len(x) if is_mean else 1
    moved = torch.zeros(n_groups)
    for number, value in enumerate(x):  # [accumulation][replica]
        moved[group_of[number % n_replicas]] += value / divisor
    torch.testing.assert_close(model.weight.detach().flatten(), 1 - moved)
    torch.testing.assert_close(model.shared.detach(), -torch.tensor([len(x) / divisor]))


def _groups_by_hand(kind, size, n_replicas):
    """The group of each replica."""
    if kind is CommGroupType.All:
        return [0] * n_replicas
    if kind is CommGroupType.NoGrouping:
        return list(range(n_replicas))
    if kind is CommGroupType.Consecutive:
        return [replica // size for replica in range(n_replicas)]
    return [replica % (n_replicas // size) for replica in range(n_replicas)]


def test_groups_scale_their_loss_alike():
    """Automatic loss scaling leaves float weights of groups as they are without it."""
    weights = []
    for is_automatic in (False, True):
        model = Scales(torch.tensor([[1.0], [2.0]]))
        options = poptorch.Options().replicationFactor(4).deviceIterations(3)
        options.Training.setAutomaticLossScaling(is_automatic)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wrapped = poptorch.trainingModel(model, options, optimizer)
        wrapped.weight.replicaGrouping(CommGroupType.Consecutive, 2, ONE)
        wrapped(torch.arange(1.0, 13.0))
        weights.append(model.weight.detach().clone())
    torch.testing.assert_close(*weights)


def test_parameters_of_modules_inside_are_grouped():
    """A parameter deep in a model in training can be grouped as well."""
    model = nn.Sequential(Scales(torch.tensor([[1.0], [2.0]])))
    options = poptorch.Options().replicationFactor(2).outputMode(poptorch.OutputMode.All)
    wrapped = poptorch.trainingModel(model, options)
    wrapped.model[0].weight.replicaGrouping(CommGroupType.NoGrouping, 0, ONE)
    assert wrapped(torch.ones(2))[0].tolist() == [1.0, 2.0]


def test_all_replicas_return_their_weights():
    """AllReplicas gives a slice for each replica, which can be uploaded again."""
    model = Scales(torch.tensor([[1.0], [2.0]]))
    wrapped = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(4))
    wrapped.weight.replicaGrouping(CommGroupType.Consecutive, 2, EVERY)
    wrapped.compile(torch.ones(4))
    wrapped.copyWeightsToHost()
    assert model.weight.flatten().tolist() == [1, 1, 2, 2]
    wrapped.copyWeightsToDevice()
    assert wrapped(torch.ones(4))[0].tolist() == [1, 1, 2, 2]


def test_groupings_that_do_not_fit():
    """The number of slices and the size of groups must fit the replicas."""
    options = poptorch.Options().replicationFactor(4)
    cases = [
        (2, 3, r"number of groups \(2\), got 3"),
        (3, 4, "not a factor of the replication factor"),
    ]
    for size, n_slices, text in cases:
        wrapped = poptorch.inferenceModel(Scales(torch.ones(n_slices, 1)), options)
        wrapped.weight.replicaGrouping(CommGroupType.Consecutive, size, ONE)
        with pytest.raises(poptorch.Error, match=text):
            wrapped(torch.ones(4))
    wrapped = poptorch.inferenceModel(Scales(torch.ones(1)), options)
    wrapped(torch.ones(4))
    with pytest.raises(poptorch.Error, match="must be called before compiling"):
        wrapped.weight.replicaGrouping(CommGroupType.NoGrouping, 0, ONE)
