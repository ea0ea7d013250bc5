"""set_aggregation_dim_size and TrainingStepper: helpers around models that train."""

import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from tremula.frontends.poptorch.executor.entry import inferenceModel, trainingModel
from tremula.frontends.poptorch.optim.optimizers import Adam
from tremula.frontends.poptorch.options.options import Options


def set_aggregation_dim_size(model: nn.Module, dim_size: int) -> None:
    """Let every message passing layer aggregate to `dim_size` rows.

    It must be at least the number of nodes of a batch.
    """

    def set_dim_size(_module: nn.Module, inputs: tuple) -> dict[str, object]:
        arguments = inputs[-1]
        arguments["dim_size"] = dim_size
        return arguments

    for module in model.modules():
        if isinstance(module, MessagePassing):
            module.register_aggregate_forward_pre_hook(set_dim_size)


MakeOptimizer = Callable[..., torch.optim.Optimizer]
_NOTHING_TO_TRAIN = "Training model was not created: the model has no parameters."


class TrainingStepper:
    """Trains copies of a model by PyTorch and by PopTorch, step by step, and compares them.

    The model's forward returns outputs and a loss. `run` raises if outputs, losses or parameters
    differ by more than `rtol` and `atol` (None: those of torch.testing).
    """

    def __init__(  # noqa: PLR0917 — the signature is PopTorch Geometric's
        self,
        model: nn.Module,
        lr: float = 0.001,
        optimizer: MakeOptimizer = Adam,
        options: Options | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        enable_fp_exception: bool = True,
        equal_nan: bool = False,
    ):
        model.train()
        self.lr, self.rtol, self.atol, self.equal_nan = lr, rtol, atol, equal_nan
        self.enable_fp_exception = enable_fp_exception
        self.options = Options() if options is None else options
        self.optimizer = self.training_model = self.inference_model = None
        self.setup_cpu(model, optimizer)
        self.setup_ipu(model, optimizer)
        self.check_parameters()

    def setup_cpu(self, model: nn.Module, optimizer: MakeOptimizer) -> None:
        """Copy the model for PyTorch; one without parameters can only be run for inference."""
        self.cpu_model = deepcopy(model)
        parameters = list(self.cpu_model.parameters())
        self.optimizer = optimizer(parameters, lr=self.lr) if parameters else None

    def setup_ipu(self, model: nn.Module, optimizer: MakeOptimizer) -> None:
        """Copy the model for PopTorch, with its options."""
        self.ipu_model = deepcopy(model)
        if self.enable_fp_exception:
            self.options.Precision.enableFloatingPointExceptions(True)
        parameters = list(self.ipu_model.parameters())
        if parameters:
            ipu_optimizer = optimizer(parameters, lr=self.lr)
            self.training_model = trainingModel(self.ipu_model, self.options, ipu_optimizer)

    def cpu_step(self, batch: Iterable[object]) -> tuple[object, Tensor]:
        """One step by PyTorch."""
        assert self.optimizer is not None, _NOTHING_TO_TRAIN
        self.optimizer.zero_grad()
        out, loss = self.cpu_model(*batch)
        loss.backward()
        self.optimizer.step()
        return out, loss

    def ipu_step(self, batch: Iterable[object], copy_weights: bool = True) -> tuple[object, Tensor]:
        """One step by PopTorch."""
        assert self.training_model is not None, _NOTHING_TO_TRAIN
        out, loss = self.training_model(*batch)
        if copy_weights:
            self.training_model.copyWeightsToHost()
        return out, loss

    def run(self, *args: Any) -> None:  # noqa: ANN401 — `run(num_steps, batch)`, or two batches
        """Train both for some steps on one batch, or each on a separate one: `run(n, cpu, ipu)`.

        Outputs on separate batches may differ in length, as a padded one is longer: their common
        rows are compared.
        """
        if len(args) not in (2, 3):
            raise TypeError(f"run takes a number of steps and one or two batches: got {len(args)}.")
        num_steps, batch, *others = args
        ipu_batch = others[0] if others else batch
        cpu_losses, ipu_losses = [], []
        self.cpu_model.train()
        for _ in range(num_steps):
            cpu_out, cpu_loss = self.cpu_step(batch)
            ipu_out, ipu_loss = self.ipu_step(ipu_batch)
            if others:
                ipu_out, cpu_out = _common_rows(ipu_out, cpu_out)
            self.assert_close(ipu_out, cpu_out, "Output")
            self.check_parameters()
            cpu_losses.append(cpu_loss.detach())
            ipu_losses.append(ipu_loss)
        if num_steps:
            self.assert_close(torch.stack(ipu_losses), torch.stack(cpu_losses), "loss")

    def run_inference(self, batch: Iterable[object]) -> None:
        """Compare what both compute without training."""
        self.cpu_model.eval()
        if self.inference_model is None:
            self.ipu_model.eval()
            self.inference_model = inferenceModel(self.ipu_model, self.options)
        with torch.no_grad():
            expected = self.cpu_model(*batch)
        self.assert_close(self.inference_model(*batch), expected, "inference")
        self.cpu_model.train()

    def check_parameters(self) -> None:
        """Raise if a parameter differs."""
        ours = dict(self.ipu_model.named_parameters())
        for name, expected in self.cpu_model.named_parameters():
            self.assert_close(ours[name], expected, name)

    def assert_close(self, actual: object, expected: object, id: str) -> None:
        """Raise, with a name, if two results differ."""
        torch.testing.assert_close(
            actual,
            expected,
            rtol=self.rtol,
            atol=self.atol,
            equal_nan=self.equal_nan,
            msg=lambda text: f"{id} was not equal:\n\n{text}\n",
        )

    def benchmark(
        self, num_steps: int, batch: Iterable[object], devices: str | Iterable[str] = "ipu"
    ) -> dict[str, float]:
        """Seconds for some steps on each of the devices "ipu" and "cpu", or on one of them."""
        steps = {"ipu": lambda: self.ipu_step(batch, copy_weights=False)}
        steps["cpu"] = lambda: self.cpu_step(batch)
        results = {}
        for device in [devices] if isinstance(devices, str) else devices:
            if device not in steps:
                raise NotImplementedError(f"There is no benchmark for {device!r}: use ipu or cpu.")
            steps[device]()  # compiles
            begin = time.perf_counter()
            for _ in range(num_steps):
                steps[device]()
            results[f"{device}_time"] = time.perf_counter() - begin
        return results


def _common_rows(actual: object, expected: object) -> tuple[object, object]:
    """Two results without the rows that only one of them has; those in tuples one by one."""
    if isinstance(actual, Tensor) and isinstance(expected, Tensor) and actual.dim():
        n_rows = min(len(actual), len(expected))
        return actual[:n_rows], expected[:n_rows]
    if isinstance(actual, tuple | list) and isinstance(expected, tuple | list):
        pairs = [_common_rows(*pair) for pair in zip(actual, expected, strict=True)]
        return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    return actual, expected
