"""Losses on tiles against ATen, forward and backward: reductions, weights, ignored labels, CTC."""

import warnings

import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_like_aten

REDUCTIONS = ("mean", "sum", "none")
LOOSE = {"rtol": 1e-2, "atol": 1e-2}


def with_gradients(results, x):
    return [
        t
        for y in results
        for t in (y, torch.autograd.grad((y * 1.5).sum(), x, retain_graph=True)[0])
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "reductions"),
    [
        (torch.float32, REDUCTIONS),
        (torch.float16, REDUCTIONS[:1]),
        pytest.param(torch.float16, REDUCTIONS[1:], marks=pytest.mark.wide),
    ],
)
def test_labels(dtype, reductions):
    """nll_loss and cross_entropy: every reduction, weights, ignored labels, fields, one sample."""

    def function(x, labels, weight, fields, field_labels):
        x, fields = x.detach().requires_grad_(), fields.detach().requires_grad_()
        of_x, of_fields = [], []
        for how in reductions:
            of_x += [F.cross_entropy(x, labels, reduction=how)]
            of_x += [F.cross_entropy(x, labels, weight, reduction=how)]
            of_x += [F.cross_entropy(x, labels.abs() % 7, weight, ignore_index=2, reduction=how)]
            of_x += [F.nll_loss(x, labels, reduction=how)]
            of_fields += [
                F.cross_entropy(fields, field_labels, weight[:5], ignore_index=1, reduction=how)
            ]
            of_fields += [F.nll_loss(fields, field_labels, reduction=how)]
        of_x += [F.cross_entropy(x[0], labels[0]), F.cross_entropy(x, labels, label_smoothing=0.1)]
        of_x += [F.cross_entropy(x, x.detach().softmax(1))]
        return with_gradients(of_x, x) + with_gradients(of_fields, fields)

    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 7, (6,), generator=generator)
    labels[1] = -100
    floats = [
        torch.rand(*s, generator=generator).to(dtype) + 0.2 for s in ((6, 7), (7,), (2, 5, 3, 4))
    ]
    operands = (floats[0], labels, *floats[1:], torch.randint(0, 5, (2, 3, 4), generator=generator))
    assert_like_aten(function, *operands, **(LOOSE if dtype is torch.float16 else {}))


def every_loss(x, other, chances, signs, how):
    logs = F.log_softmax(x, 1)
    return [
        F.mse_loss(x, other, reduction=how), F.l1_loss(x, other, reduction=how),
        F.smooth_l1_loss(x, other, reduction=how, beta=0.7), F.huber_loss(x, other, reduction=how),
        F.binary_cross_entropy(torch.sigmoid(x), chances, reduction=how),
        F.binary_cross_entropy(torch.sigmoid(x), chances, chances + 1, reduction=how),
        F.binary_cross_entropy_with_logits(x, chances, reduction=how, pos_weight=chances[0] + 1),
        F.kl_div(logs, chances, reduction=how),
        F.kl_div(logs, F.log_softmax(other, 1), reduction=how, log_target=True),
        F.poisson_nll_loss(x, chances, reduction=how, full=True),
        F.poisson_nll_loss(x.abs(), chances, reduction=how, log_input=False),
        F.hinge_embedding_loss(x, signs, reduction=how),
        F.soft_margin_loss(x, signs, reduction=how),
        F.multilabel_soft_margin_loss(x, (chances > 0.5).to(x.dtype), reduction=how),
        F.cosine_embedding_loss(x, other, signs[:, 0], reduction=how, margin=0.1),
        F.margin_ranking_loss(x, other, signs, reduction=how, margin=0.1),
        F.triplet_margin_loss(x, other, chances, reduction=how),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "parts"),
    [
        (torch.float32, {how: slice(i, None, 3) for i, how in enumerate(REDUCTIONS)}),
        # Codelets of all would overfill a tile.
        (torch.float16, {"mean": slice(0, None, 2)}),
        (torch.float16, {"mean": slice(1, None, 2)}),
        pytest.param(torch.float32, dict.fromkeys(REDUCTIONS, slice(None)), marks=pytest.mark.wide),
    ],
    ids=["in turn", "half, even", "half, odd", "all"],
)
def test_every_loss_of_poptorch(dtype, parts):
    """Each loss function a model may train with, each reduction, value and gradient."""

    def function(x, *others):
        x = x.detach().requires_grad_()
        results = [y for how, part in parts.items() for y in every_loss(x, *others, how)[part]]
        return with_gradients([*results, F.kl_div(x, others[1], reduction="batchmean")], x)

    generator = torch.Generator().manual_seed(2)
    x, other = (torch.randn(5, 6, generator=generator).to(dtype) for _ in range(2))
    chances = torch.rand(5, 6, generator=generator).to(dtype)
    signs = (torch.rand(5, 6, generator=generator) > 0.5).to(dtype) * 2 - 1
    tolerance = (
        {"rtol": 4e-2, "atol": 4e-2} if dtype is torch.float16 else {"rtol": 5e-5, "atol": 1e-5}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kl_div advises against reduction="mean"
        assert_like_aten(function, x, other, chances, signs, **tolerance)


@pytest.mark.slow
def test_ctc():
    """ctc_loss: reductions, lengths as tensors and numbers, joined targets, one sample alone."""

    def function(x, targets, input_lengths, target_lengths, joined):
        x = x.detach().requires_grad_()
        logs = F.log_softmax(x, 2)
        lengths = (input_lengths, target_lengths)
        losses = [F.ctc_loss(logs, targets, *lengths, reduction=how) for how in REDUCTIONS]
        losses += [
            F.ctc_loss(logs, targets, (8, 7, 8), (3, 2, 4), zero_infinity=True),
            F.ctc_loss(logs, joined, *lengths, blank=1),
            torch.nn.CTCLoss()(logs, targets, *lengths),
            F.ctc_loss(logs[:, 0], targets[0], input_lengths[0], target_lengths[2]),
        ]  # fmt: skip
        direct = torch.autograd.grad(losses[1], logs, retain_graph=True)
        return [*with_gradients(losses, x), *direct, F.ctc_loss(logs.detach(), targets, *lengths)]

    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(1, 5, (3, 4), generator=generator)
    lengths = torch.tensor([8, 7, 8]), torch.tensor([3, 2, 4])
    x = torch.randn(9, 3, 5, generator=generator)
    assert_like_aten(function, x, targets, *lengths, torch.tensor([2, 3, 4, 2, 3, 0, 2, 4, 3]))


def test_impossible_ctc():
    """Labels no path can give: an infinite loss, or none with zero_infinity."""

    def function(x, targets):
        x = x.detach().requires_grad_()
        zero = F.ctc_loss(x.log_softmax(2), targets, (2,), (3,), zero_infinity=True)
        return [F.ctc_loss(x.log_softmax(2), targets, (2,), (3,)), *with_gradients([zero], x)]

    x = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(4))
    assert_like_aten(function, x, torch.tensor([[1, 2, 3]]))
