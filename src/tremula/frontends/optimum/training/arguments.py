"""Arguments of the trainers: those of transformers, and what only IPUs have."""

from dataclasses import dataclass, field

from transformers import Seq2SeqTrainingArguments, TrainingArguments

from tremula.frontends.optimum.errors import IncompatibleIPUConfigError

_MODES = ("sync", "async", "async_rebatched")


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@dataclass
class _IPUArguments:
    """What trainers on IPUs have besides transformers' arguments.

    The compiled step accumulates gradients, so transformers' own loop sees one step of each: the
    number given as gradient_accumulation_steps is saved as `accumulation_on_device`.
    """

    # The model lives where PopTorch puts it; transformers is not to move it.
    use_cpu: bool = field(default=True, metadata=_help("Leave the device to PopTorch."))
    gradient_accumulation_steps: int | None = field(
        default=None, metadata=_help("Micro-batches in an update; None: as in the IPUConfig.")
    )
    # Names that scripts for transformers 4 use and transformers 5 no longer has.
    evaluation_strategy: str | None = field(
        default=None, metadata=_help("The old name of eval_strategy.")
    )
    warmup_ratio: float | None = field(
        default=None, metadata=_help("The old name of warmup_steps below 1.")
    )
    overwrite_output_dir: bool = field(default=False, metadata=_help("Has no effect any more."))
    logging_dir: str | None = field(default=None, metadata=_help("Has no effect any more."))
    no_cuda: bool = field(default=False, metadata=_help("Has no effect: see use_cpu."))
    ipu_config_name: str | None = field(
        default=None, metadata=_help("Folder or published name of an IPUConfig.")
    )
    n_ipu: int | None = field(
        default=None, metadata=_help("IPUs in all: a power of two, 64 at most.")
    )
    fp32: bool = field(default=False, metadata=_help("Train in float32 instead of half."))
    loss_scaling: float = field(default=16.0, metadata=_help("Factor of the loss in half."))
    auto_loss_scaling: bool = field(
        default=False, metadata=_help("Let the loss scale follow the gradients.")
    )
    dataloader_mode: str = field(default="sync", metadata=_help("sync, async or async_rebatched."))
    compile_only: bool = field(default=False, metadata=_help("Compile, then stop."))
    ipu_config_overrides: str | None = field(
        default=None, metadata=_help("Changes of the IPUConfig, such as a=1,b=[1 2].")
    )
    pad_on_batch_axis: bool = field(
        default=False, metadata=_help("Fill a short last batch of training with its last row.")
    )
    lamb: bool = field(default=False, metadata=_help("Use LAMB instead of AdamW."))
    lamb_no_bias_correction: bool = field(
        default=False, metadata=_help("Use LAMB without bias correction.")
    )

    def __post_init__(self) -> None:
        if self.evaluation_strategy is not None:
            self.eval_strategy = self.evaluation_strategy
        if self.warmup_ratio:
            self.warmup_steps = self.warmup_ratio
        self.accumulation_on_device = self.gradient_accumulation_steps
        self.gradient_accumulation_steps = 1
        super().__post_init__()  # pyright: ignore[reportAttributeAccessIssue]
        self._check()

    def _check(self) -> None:
        if self.dataloader_mode not in _MODES:
            raise IncompatibleIPUConfigError(
                f"dataloader_mode must be one of {', '.join(_MODES)}, got {self.dataloader_mode!r}"
            )
        if self.lamb and self.lamb_no_bias_correction:
            raise IncompatibleIPUConfigError("choose one of lamb and lamb_no_bias_correction")
        if self.n_ipu is not None and self.n_ipu not in (1, 2, 4, 8, 16, 32, 64):
            raise IncompatibleIPUConfigError(
                f"n_ipu must be a power of two up to 64, got {self.n_ipu}"
            )


@dataclass
class IPUTrainingArguments(_IPUArguments, TrainingArguments):  # pyright: ignore[reportIncompatibleVariableOverride]
    """transformers' TrainingArguments with those of IPUs."""


@dataclass
class IPUSeq2SeqTrainingArguments(_IPUArguments, Seq2SeqTrainingArguments):  # pyright: ignore[reportIncompatibleVariableOverride]
    """transformers' Seq2SeqTrainingArguments with those of IPUs."""
