"""IPUTrainer: transformers' Trainer, whose step is compiled."""

import copy
import functools
import os
from collections.abc import Callable, Sized
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import Seq2SeqTrainer, Trainer, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput

import poptorch
from poptorch import optim
from tremula.frontends.optimum.errors import IncompatibleIPUConfigError
from tremula.frontends.optimum.generation.mixin import IPUGenerationMixin
from tremula.frontends.optimum.ipu_config import IPUConfig
from tremula.frontends.optimum.models.pipelined import PipelineMixin, to_pipelined
from tremula.frontends.optimum.training.arguments import (
    IPUSeq2SeqTrainingArguments,
    IPUTrainingArguments,
)
from tremula.frontends.optimum.training.executors import (
    ITEMS,
    ComputedLoss,
    Predictor,
    items_per_micro_batch,
)

Arguments = IPUTrainingArguments | IPUSeq2SeqTrainingArguments


class _IPUSteps(Trainer):
    """What both trainers share: batches of a call's size, the compiled step, predictions."""

    args: Arguments  # pyright: ignore[reportIncompatibleVariableOverride]
    _training_model: "poptorch.PoplarExecutor | None" = None

    def __init__(
        self,
        model: nn.Module | None = None,
        ipu_config: IPUConfig | None = None,
        args: Arguments | None = None,
        *rest: Any,  # noqa: ANN401 - arguments of Trainer
        model_init: Callable[[], nn.Module] | None = None,
        force_to_pipelined: bool = False,
        tokenizer: object = None,
        **kwargs: Any,  # noqa: ANN401 - likewise
    ):
        args = self._own_arguments(args)
        self.ipu_config = _chosen_config(model, ipu_config, args)
        if model is None and model_init is None:
            raise RuntimeError(f"{type(self).__name__} needs a model or a model_init function")
        spread = functools.partial(self._spread, args=args, force=force_to_pipelined)
        if model is not None:
            model = spread(model)
        if model_init is not None:
            kwargs["model_init"] = lambda *trial: spread(model_init(*trial))
        if tokenizer is not None:  # its name before transformers 5
            kwargs.setdefault("processing_class", tokenizer)
        self._clip_at, args.max_grad_norm = args.max_grad_norm, 0.0  # the compiled step clips
        super().__init__(model, args, *rest, **kwargs)  # pyright: ignore[reportArgumentType]
        self._predictor: Predictor | None = None

    @staticmethod
    def _own_arguments(args: Arguments | None) -> Arguments:
        if args is None:
            return IPUTrainingArguments("tmp_trainer")
        if not isinstance(args, Arguments):
            raise TypeError(
                f"args must be IPUTrainingArguments, got {type(args).__name__}: "
                "from optimum.graphcore import IPUTrainingArguments"
            )
        return args

    def _spread(self, model: nn.Module, *, args: Arguments, force: bool) -> nn.Module:
        """The model over IPUs, in the precision of the arguments."""
        spread = to_pipelined(model, self.ipu_config.train(), force)
        if isinstance(spread, PipelineMixin):
            spread.parallelize(**self.ipu_config.value("parallelize_kwargs", for_inference=False))
        # The loop of transformers asks for it at every step, and looking at weights fetches them.
        vars(spread)["zero_grad"] = _has_no_gradients
        return spread.float() if args.fp32 else spread.half()

    # -- batches: a call takes several micro-batches -----------------------------------------------

    def _combined(self, n_rows: int, *, for_inference: bool = False) -> int:
        return n_rows * self.ipu_config.batch_size_factor(for_inference)

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Rows of one call."""
        return self._combined(args.per_device_train_batch_size)

    def _get_dataloader(
        self,
        dataset: Dataset,
        description: str,
        batch_size: int,
        *args: Any,  # noqa: ANN401
        is_training: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> DataLoader:
        if is_training:
            self._check_rows(dataset, self._combined(batch_size))
        batch_size = self._combined(batch_size, for_inference=not is_training)
        saved = self.args.dataloader_drop_last
        # Every call takes the same number of rows: a short rest is left out, or filled.
        self.args.dataloader_drop_last = is_training and not self.args.pad_on_batch_axis
        try:
            return super()._get_dataloader(
                dataset, description, batch_size, *args, is_training=is_training, **kwargs
            )
        finally:
            self.args.dataloader_drop_last = saved

    def _check_rows(self, dataset: Dataset, n_wanted: int) -> None:
        n_rows = len(dataset) if isinstance(dataset, Sized) else n_wanted
        if n_rows < n_wanted and not self.args.pad_on_batch_axis:
            raise IncompatibleIPUConfigError(
                f"one call takes {n_wanted} rows (per_device_train_batch_size "
                f"{self.args.per_device_train_batch_size} × {self.ipu_config.batch_size_factor()} "
                f"micro-batches), but the data set has {n_rows}",
                hint="lower gradient_accumulation_steps, replication_factor or device_iterations "
                "of the IPUConfig, or set pad_on_batch_axis",
            )

    # -- training ----------------------------------------------------------------------------------

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW or LAMB of PopTorch over transformers' groups of weights."""
        if self.optimizer is None:
            self.optimizer = self._new_optimizer(model or self._own_model)
        _never_steps(self.optimizer)
        return self.optimizer

    @property
    def _own_model(self) -> nn.Module:
        assert isinstance(self.model, nn.Module), "the constructor has seen to it"
        return self.model

    @property
    def _inner_optimizer(self) -> Any:  # noqa: ANN401 - PopTorch's have more methods than others
        """The optimiser itself: accelerate wraps it."""
        return getattr(self.optimizer, "optimizer", self.optimizer)

    def _new_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        args = self.args
        decaying = set(self.get_decay_parameter_names(model))
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        groups = [
            {"params": [p for n, p in named if n in decaying], "weight_decay": args.weight_decay},
            {"params": [p for n, p in named if n not in decaying], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        common: dict[str, Any] = {
            "lr": args.learning_rate,
            "betas": (args.adam_beta1, args.adam_beta2),
            "eps": args.adam_epsilon,
        }
        if not args.fp32:
            common |= {
                "loss_scaling": args.loss_scaling,
                "accum_type": torch.float16,
                "first_order_momentum_accum_type": torch.float16,
                "second_order_momentum_accum_type": torch.float32,
            }
        if args.lamb or args.lamb_no_bias_correction:
            has_correction = not args.lamb_no_bias_correction
            return optim.LAMB(groups, bias_correction=has_correction, **common)
        if self._clip_at:
            common["max_grad_norm"] = self._clip_at
        return optim.AdamW(groups, bias_correction=True, **common)

    def _compiled_training(self) -> "poptorch.PoplarExecutor":
        if self._training_model is None:
            options = self.ipu_config.to_options(compile_only=self.args.compile_only)
            if self.args.fp32:
                options.Precision.enableStochasticRounding(False)
                options.Precision.setPartialsType(torch.float32)
            options.outputMode(poptorch.OutputMode.All)  # of the loss alone, to average it
            trained = ComputedLoss(self._own_model.train(), self.compute_loss)
            self._training_model = poptorch.trainingModel(trained, options, self._inner_optimizer)
        return self._training_model

    def training_step(
        self,
        model: nn.Module,  # noqa: ARG002
        inputs: dict[str, Tensor | Any],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Forward, backward and update of every micro-batch in `inputs`, compiled."""
        executor = self._compiled_training()
        if not self._own_model.training:  # an evaluation has been in between
            executor.model.train()
        batch = {k: v for k, v in self._prepare_inputs(inputs).items() if isinstance(v, Tensor)}
        if self.args.pad_on_batch_axis:
            batch = padded(batch, self._combined(self.args.per_device_train_batch_size))
        if num_items_in_batch is not None:
            shifts = bool(getattr(self, "_loss_shifts_labels", False))
            batch[ITEMS] = items_per_micro_batch(batch["labels"], self.ipu_config, shifts=shifts)
        if self.args.compile_only:
            executor.compile(**batch)
            raise SystemExit(0)
        if executor.isCompiled():
            executor.setOptimizer(self._inner_optimizer)
        return executor(**batch).float().mean()

    def _get_grad_norm(self, model: nn.Module, grad_norm: object = None) -> None:
        """Gradients stay on the device: there is no norm to log."""

    def copy_weights_to_host(self) -> None:
        if self._training_model is not None and self._training_model.isCompiled():
            self._training_model.copyWeightsToHostIfNeeded()

    # -- predicting --------------------------------------------------------------------------------

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:  # noqa: ANN401
        """As in transformers, with the weights that training has reached."""
        self.copy_weights_to_host()
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> tuple[Any, Any, Any]:
        """As in transformers, compiled; a short last batch runs as it is."""
        n_rows = self._combined(self.args.per_device_eval_batch_size, for_inference=True)
        tensors = [v for v in inputs.values() if isinstance(v, Tensor)]
        values = (model, inputs, prediction_loss_only, ignore_keys)
        if any(len(tensor) != n_rows for tensor in tensors):
            return super().prediction_step(*values, **kwargs)
        predictor = self._compiled_prediction(model)
        vars(model)["forward"] = predictor.forward  # transformers calls the model
        try:
            return super().prediction_step(*values, **kwargs)
        finally:
            del vars(model)["forward"]

    def _compiled_prediction(self, model: nn.Module) -> Predictor:
        if self._predictor is None:
            options = functools.partial(self.ipu_config.to_options, for_inference=True)
            self._predictor = Predictor(model.eval(), options, self.ipu_config)
        return self._predictor

    # -- files -------------------------------------------------------------------------------------

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write weights, configuration and `ipu_config.json`."""
        self.copy_weights_to_host()
        super().save_model(output_dir, _internal_call)
        self.ipu_config.save_pretrained(output_dir or self.args.output_dir or os.curdir)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """The weights as transformers names them: tables in one piece, no marks of IPUs."""
        model = self.model
        if not isinstance(model, PipelineMixin) or state_dict is not None:
            super()._save(output_dir, state_dict)
            return
        self.model = _unmarked(model)
        try:
            super()._save(output_dir, None)
        finally:
            self.model = model

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """As in transformers; the learning rate is the schedule's, not that of the last step."""
        super()._load_optimizer_and_scheduler(checkpoint)
        optimizer = self._inner_optimizer
        if checkpoint is None or not getattr(optimizer, "is_poptorch_optimizer", False):
            return
        on_device = optimizer.get_state_dict()["ipu_param"] or {}
        for name, value in on_device.items():
            if name.startswith("learningRate"):
                value.fill_(optimizer.param_groups[0]["lr"])

    def release(self) -> None:
        """Give the devices back; the weights stay."""
        if self._training_model is not None:
            self._training_model.destroy()
            self._training_model = None
        if self._predictor is not None:
            self._predictor.release()
            self._predictor = None


class IPUTrainer(_IPUSteps):
    """transformers' Trainer with a compiled step: `IPUTrainer(model, ipu_config, args, …)`."""


class IPUSeq2SeqTrainer(_IPUSteps, Seq2SeqTrainer):
    """transformers' Seq2SeqTrainer with a compiled step; predictions may be generated."""

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor | Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> tuple[Any, Any, Any]:
        """Generated words come from the model's own `generate`, whose step is compiled."""
        values = (model, inputs, prediction_loss_only, ignore_keys)
        if prediction_loss_only or not getattr(self.args, "predict_with_generate", False):
            return super().prediction_step(*values, **kwargs)
        return Seq2SeqTrainer.prediction_step(self, *values, **kwargs)


def _chosen_config(
    model: nn.Module | None, ipu_config: IPUConfig | None, args: Arguments
) -> IPUConfig:
    """The configuration argument, or that of arguments or model, with the arguments' changes."""
    if ipu_config is None and args.ipu_config_name is not None:
        ipu_config = IPUConfig.from_pretrained(args.ipu_config_name)
    if ipu_config is None and isinstance(model, PipelineMixin):
        ipu_config = model.ipu_config
    if ipu_config is None:
        raise IncompatibleIPUConfigError(
            "the trainer has no IPUConfig",
            hint="IPUTrainer(model, IPUConfig(layers_per_ipu=[-1]), args), or name one as "
            "ipu_config_name",
        )
    chosen = ipu_config.clone().train()
    if args.ipu_config_overrides:
        chosen.update_from_string(args.ipu_config_overrides)
    if args.accumulation_on_device is not None:
        chosen.gradient_accumulation_steps = args.accumulation_on_device
    if args.auto_loss_scaling:
        chosen.auto_loss_scaling = True
    if args.n_ipu is not None:
        chosen.replication_factor = _replicas(args.n_ipu, chosen.ipus_per_replica)
    return chosen


def _replicas(n_ipus: int, n_per_replica: int) -> int:
    if n_ipus % n_per_replica:
        raise IncompatibleIPUConfigError(
            f"n_ipu={n_ipus} is not a multiple of the {n_per_replica} IPUs of a replica"
        )
    return n_ipus // n_per_replica


def _has_no_gradients(set_to_none: bool = True) -> None:
    """Gradients are inside the compiled step: there is nothing to forget."""


def _never_steps(optimizer: torch.optim.Optimizer) -> None:
    """The compiled step updates the weights; the loop of transformers still calls `step`."""

    def step(_self: object, *_args: object, **_kwargs: object) -> None:
        """Nothing: the weights are new already."""

    optimizer.step = MethodType(step, optimizer)  # schedules wrap a method


def _unmarked(model: PipelineMixin) -> Any:  # noqa: ANN401
    """A copy of a pipelined model, in its original class."""
    twin: Any = copy.deepcopy(model).deparallelize()
    ours = (PipelineMixin, IPUGenerationMixin)
    twin.__class__ = next(
        kind
        for kind in type(model).__mro__
        if issubclass(kind, nn.Module) and not issubclass(kind, ours)
    )
    return twin


def padded(batch: dict[str, Tensor], n_rows: int) -> dict[str, Tensor]:
    """Tensors of `n_rows` rows: the last row is repeated, its labels do not count."""
    n_missing = n_rows - len(next(iter(batch.values())))
    if n_missing <= 0:
        return batch
    result = {}
    for name, tensor in batch.items():
        rest = tensor[-1:].expand(n_missing, *tensor.shape[1:])
        if name == "labels" and not tensor.is_floating_point():
            rest = torch.full_like(rest, -100)
        result[name] = torch.cat([tensor, rest])
    return result
