"""The kind of case: a PopTorch model on tiles and on the host, against PyTorch in float64."""

from collections.abc import Iterable
from functools import partial
from random import Random

import torch
from torch import Tensor, nn

import poptorch
import tremula
from tools.fuzz.case import Case, IllegalCase, plain, quiet
from tools.fuzz.conditioning import Judge
from tools.fuzz.models.generate import features, generate, has_float8
from tools.fuzz.models.layers import ModelOfLayers
from tools.fuzz.models.reference import LOSSES, data_of, optimiser_of, plain_results

RECOMPUTATIONS = {"standard": 1, "norms": 2, "everything": 4}  # as PopART numbers them


class Models:
    """Models of PopTorch with random options."""

    name = "models"

    def generate(self, random: Random) -> Case:
        return plain(generate(random))

    def features(self, case: Case) -> Iterable[str]:
        return features(case)

    def check(self, case: Case) -> None:
        torch.set_num_threads(1)
        _check_legal(case)
        judge = _judge(case)
        with quiet():
            judge.compare(run(case, tiles="run", device="cpu"), "tiles")
            if case["on_host"]:
                judge.compare(run(case, tiles="lazy", device="cpu"), "host")
                if torch.cuda.is_available():
                    torch.backends.cudnn.allow_tf32 = False  # convolutions in float32, as on tiles
                    judge.compare(run(case, tiles="lazy", device="cuda"), "GPU")


def _check_legal(case: Case) -> None:
    sizes = ("n_out", "batch", "iterations", "accumulation", "replicas", "calls")
    if any(case[name] < 1 for name in sizes) or not case["shape"] or min(case["shape"]) < 1:
        raise IllegalCase("sizes")
    cuts = case["cuts"]
    if cuts != sorted(set(cuts)) or any(not 1 <= cut <= len(case["layers"]) for cut in cuts):
        raise IllegalCase("stages in order")
    n_stages = len(cuts) + 1
    if case["strategy"] == "pipelined" and case["training"] and case["accumulation"] < n_stages * 2:
        raise IllegalCase("a pipeline that fills")
    if case["strategy"] == "pipelined" and not case["training"] and case["iterations"] < n_stages:
        raise IllegalCase("a pipeline that fills")
    if case["strategy"] != "none" and n_stages < 2:
        raise IllegalCase("stages")


def _judge(case: Case) -> Judge:
    """Plain results of the case, and how far others may be off."""
    n_outputs = case["calls"] * (case["iterations"] if case["training"] else 1)
    kind = "half" if case["half"] else "float8" if has_float8(case) else "float"
    return Judge(partial(plain_results, case), kind, n_outputs)


class Wrapped(nn.Module):
    """The model as PopTorch takes it: in stages, with its loss."""

    def __init__(self, model: ModelOfLayers, case: Case):
        super().__init__()
        self.model, self.case = model, case
        self.starts = [0, *case["cuts"]] if case["strategy"] != "none" else []

    def forward(self, x: Tensor, target: Tensor | None = None) -> object:
        for number, layer in enumerate(self.model.layers):
            self._start(number)
            x = layer(x)
        self._start(len(self.model.layers))
        out = self.model.head(x.reshape(x.shape[0], -1))
        if target is None:
            return out
        loss = LOSSES[self.case["loss"]](out, target)
        return out, poptorch.identity_loss(loss, reduction="none")

    def _start(self, number: int) -> None:
        if number in self.starts:
            stage = self.starts.index(number)
            poptorch.Block.useAutoId()
            poptorch.Block.start(f"B{stage}", ipu_id=stage)


def run(case: Case, *, tiles: str, device: str) -> list[Tensor]:
    """Outputs of every call, then the weights."""
    model, (x, target) = ModelOfLayers(case), data_of(case)
    if case["half"]:
        model, x, target = model.half(), x.half(), target.half()
    chip = "c600" if has_float8(case) else "gc2"
    with tremula.configured(tiles=tiles, device=device, chip=chip, host="eager"):
        if not case["training"]:
            executor = poptorch.inferenceModel(Wrapped(model, case).eval(), options_of(case))
            outputs = [executor(x) for _ in range(case["calls"])]
        else:
            optimiser = optimiser_of(poptorch.optim, case, model.parameters())
            executor = poptorch.trainingModel(Wrapped(model, case), options_of(case), optimiser)
            outputs = [executor(x, target)[0] for _ in range(case["calls"])]
            outputs = [part for out in outputs for part in out.chunk(case["iterations"])]
            executor.copyWeightsToHost()
        weights = [p.detach().clone() for p in model.parameters()] if case["training"] else []
        executor.destroy()
    return [*outputs, *weights]


def options_of(case: Case) -> "poptorch.Options":
    options = poptorch.Options()
    options.deviceIterations(case["iterations"]).replicationFactor(case["replicas"])
    options.outputMode(poptorch.OutputMode.All).randomSeed(7)
    options.autoRoundNumIPUs(True)
    if case["training"]:
        options.Training.gradientAccumulation(case["accumulation"])
        _set_states(options, case)
        if case["recomputation"] != "none":
            number = RECOMPUTATIONS[case["recomputation"]]
            options._Popart.set("autoRecomputation", number)
    _set_strategy(options, case)
    return options


def _set_states(options: "poptorch.Options", case: Case) -> None:
    location = poptorch.TensorLocationSettings()
    if case["sharded_states"] and case["replicas"] > 1:
        location.useReplicatedTensorSharding(True)
        location.minElementsForReplicatedTensorSharding(2)
    if case["off_chip"]:
        location.useOnChipStorage(False)
        location.minElementsForOffChip(2)
    options.TensorLocations.setOptimizerLocation(location)


def _set_strategy(options: "poptorch.Options", case: Case) -> None:
    if case["strategy"] == "none":
        return
    names = [f"B{stage}" for stage in range(len(case["cuts"]) + 1)]
    strategies = {
        "pipelined": poptorch.PipelinedExecution,
        "sharded": poptorch.ShardedExecution,
    }
    if case["strategy"] in strategies:
        stages = [poptorch.Stage(name) for name in names]
        options.setExecutionStrategy(strategies[case["strategy"]](*stages))
    else:
        phases = [poptorch.Phase(name) for name in names]
        options.setExecutionStrategy(poptorch.SerialPhasedExecution(*phases))
