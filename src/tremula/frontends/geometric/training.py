"""set_aggregation_dim_size and TrainingStepper: helpers around models that train."""

import time
from collections.abc import Callable, Iterable
from copy import deepcopy

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


class TrainingStepper:
    """Trains copies of a model by PyTorch and by PopTorch, step by step, and compares them.

    The model's forward returns outputs and a loss. `run` raises if outputs, losses or parameters
    differ by more than `rtol` and `atol` (None: those of torch.testing).
    """

    def __init__(  # noqa: PLR0917 — the signature is PopTorch Geometric's
        self,
        model: nn.Module,
        lr: float = 0.001,
        optimizer: Callable[..., torch.optim.Optimizer] = Adam,
        options: Options | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        enable_fp_exception: bool = True,
        equal_nan: bool = False,
    ):
        model.train()
        self.rtol, self.atol, self.equal_nan = rtol, atol, equal_nan
        self.options = Options() if options is None else options
        if enable_fp_exception:
            self.options.Precision.enableFloatingPointExceptions(True)
        self.cpu_model, self.ipu_model = deepcopy(model), deepcopy(model)
        self.optimizer = optimizer(self.cpu_model.parameters(), lr=lr)
        ipu_optimizer = optimizer(self.ipu_model.parameters(), lr=lr)
        self.training_model = trainingModel(self.ipu_model, self.options, ipu_optimizer)
        self.inference_model = None
        self.check_parameters()

    def cpu_step(self, batch: Iterable[object]) -> tuple[object, Tensor]:
        """One step by PyTorch."""
        self.optimizer.zero_grad()
        out, loss = self.cpu_model(*batch)
        loss.backward()
        self.optimizer.step()
        return out, loss

    def ipu_step(self, batch: Iterable[object], copy_weights: bool = True) -> tuple[object, Tensor]:
        """One step by PopTorch."""
        out, loss = self.training_model(*batch)
        if copy_weights:
            self.training_model.copyWeightsToHost()
        return out, loss

    def run(
        self, num_steps: int, batch: Iterable[object], ipu_batch: Iterable[object] | None = None
    ) -> None:
        """Train both for some steps on one batch, or each on a separate one if two are passed."""
        ipu_batch = batch if ipu_batch is None else ipu_batch
        cpu_losses, ipu_losses = [], []
        for _ in range(num_steps):
            cpu_out, cpu_loss = self.cpu_step(batch)
            ipu_out, ipu_loss = self.ipu_step(ipu_batch)
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
        self.assert_close(self.inference_model(*batch), expected, "Output")
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
        self, num_steps: int, batch: Iterable[object], devices: Iterable[str] = ("ipu",)
    ) -> dict[str, float]:
        """Seconds for some steps on each of the devices "ipu" and "cpu"."""
        steps = {"ipu": lambda: self.ipu_step(batch, copy_weights=False)}
        steps["cpu"] = lambda: self.cpu_step(batch)
        results = {}
        for device in devices:
            if device not in steps:
                raise NotImplementedError(f"There is no benchmark for {device!r}: use ipu or cpu.")
            steps[device]()  # compiles
            begin = time.perf_counter()
            for _ in range(num_steps):
                steps[device]()
            results[f"{device}_time"] = time.perf_counter() - begin
        return results
