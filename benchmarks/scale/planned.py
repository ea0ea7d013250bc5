"""The planner on GPT-2 small, ResNet-50 and BERT-Large over four chips, against public splits."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

import poptorch
from tremula.demo.classifiers import WithLoss
from tremula.explore import Candidate, Task, TrialOutcome, plan
from tremula.explore.trial import try_candidate
from tremula.garden.models.large_transformers import GPT_117M, BertForQuestions, GptWithLoss, place
from tremula.garden.models.resnet import resnet50
from tremula.hardware import system

N_MICRO_BATCHES = 64  # of an update, on all replicas together


@dataclass(frozen=True)
class Case:
    """A model to plan, and the ways in which Graphcore's examples run it."""

    task: Task
    publics: tuple[Candidate, ...]
    arrange: Callable[[nn.Module], None] | None = None  # blocks that are no cuts one after another


@dataclass(frozen=True)
class Planned:
    """Time of a sample as planned, to that of public splits, and what planning took.

    The fastest public split that fits this machine counts, or the fastest of all if none does.
    """

    time_to_public: float
    time_to_any_public: float  # whether it fits or not: above 1, memory is what it costs
    minutes: float
    memory_share: float  # of the fullest tile


def planned(case: Case) -> Planned:
    """Plan a model, and compile the public splits next to it."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        best = plan(case.task, batch=N_MICRO_BATCHES * case.task.n_samples, folder=folder).best
    minutes = (time.perf_counter() - began) / 60
    publics = [try_candidate(case.task, public, case.arrange) for public in case.publics]
    fitting = [public for public in publics if public.fits]
    fastest, fastest_of_any = (
        max(of, key=lambda outcome: outcome.samples_per_s) for of in (fitting or publics, publics)
    )
    share = max(best.n_bytes) / best.available_bytes
    return Planned(_time_to(fastest, best), _time_to(fastest_of_any, best), minutes, share)


def _time_to(public: TrialOutcome, best: TrialOutcome) -> float:
    """What does not fit is no match for what does."""
    if public.fits and not best.fits:
        return float("inf")
    return public.samples_per_s / best.samples_per_s


def _adamw(model: nn.Module) -> poptorch.optim.AdamW:
    """With sums of gradients and first moments in half."""
    return poptorch.optim.AdamW(
        model.parameters(), accum_type=torch.half, first_order_momentum_accum_type=torch.half
    )


def gpt2() -> Case:
    """Embedding and output layer on chip 0, four layers on each of the others; 128 words."""
    torch.manual_seed(0)
    model = GptWithLoss(replace(GPT_117M, n_positions=128)).half()
    words = torch.zeros(1, 128, dtype=torch.int32)
    optimizer = _adamw(model)
    task = Task(model, (words, words), system("pod4"), optimizer=optimizer)
    cuts = ("positions", "layers.4", "layers.8")
    public = Candidate(cuts, accumulation=N_MICRO_BATCHES, states_off_chip=True)

    def arrange(model: nn.Module) -> None:
        assert isinstance(model, GptWithLoss), "it is the case's own"
        place(model, (0, 4, 4, 4))

    return Case(task, (public,), arrange)


def resnet50_over_chips() -> Case:
    """A replica on each chip, or a pipeline over four, recomputed; images of 224 × 224."""
    torch.manual_seed(0)
    model = WithLoss(resnet50()).half()
    images = torch.zeros(1, 3, 224, 224, dtype=torch.half)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, accum_type=torch.half)
    labels = torch.zeros(1, dtype=torch.int32)
    task = Task(model, (images, labels), system("pod4"), optimizer=optimizer)
    # In the examples' names: layer1/2, layer2/3 and layer3/4.
    cuts = ("model.groups.0.2", "model.groups.1.3", "model.groups.2.4")
    replicas = Candidate((), 4, accumulation=N_MICRO_BATCHES // 4)
    return Case(task, (replicas, Candidate(cuts, accumulation=N_MICRO_BATCHES)))


class _Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bert = BertForQuestions()

    def forward(
        self, ids: Tensor, is_word: Tensor, kinds: Tensor, begin: Tensor, end: Tensor
    ) -> Tensor:
        scores = zip(self.bert(ids, is_word, kinds), (begin, end), strict=True)
        losses = [nn.functional.cross_entropy(score, at) for score, at in scores]
        return poptorch.identity_loss(losses[0] + losses[1], "none")


def bert_large() -> Case:
    """3, 7, 7 and 7 layers, computed again, states off the chip; sequences of 384."""
    torch.manual_seed(0)
    model = _Bert().half()
    options = poptorch.Options()
    options.Precision.setPartialsType(torch.half)
    ids, at = torch.zeros(1, 384, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    optimizer = _adamw(model)
    inputs = (ids, ids, ids, at, at)
    task = Task(model, inputs, system("pod4"), options=options, optimizer=optimizer)
    cuts = tuple(f"bert.layers.{first}" for first in (3, 10, 17))
    public = Candidate(
        cuts, accumulation=N_MICRO_BATCHES, memory_proportion=0.15, states_off_chip=True
    )
    return Case(task, (public,))
