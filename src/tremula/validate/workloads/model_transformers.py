"""BERT-Large in inference and GPT in training, as pipelines.

What rows do not state is in the measured programs. GPT: Graphcore's example for PyTorch as CARAML
configures it (llm_benchmark_ipu.yaml). BERT: Graphcore's tutorial on fine-tuning. The row's source,
a notebook of Optimum, still holds the tutorial's progress bars (the same widgets): so its figure is
that of 16 IPUs, eight pipelines of two, which compute 96 samples of 384 words in each call.
"""

from typing import TYPE_CHECKING

from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.model_call import FAMILY, ModelCall, time_call
from tremula.validate.workloads.table import ModelledValue, workload

if TYPE_CHECKING:
    from tremula.frontends.poptorch.options.options import Options

BERT_LAYERS, BERT_REPLICAS, BERT_WORDS, BERT_SAMPLES = (11, 13), 8, 384, 96
GPT_LAYERS, GPT_WORDS, GPT_ITERATIONS, GPT_PROPORTION = (0, 4, 4, 4), 1024, 4, 0.15


@workload("BERT-Large inference", FAMILY)
def bert_inference(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Samples by the time of a call: the clock runs around it, not around the loader."""
    time = time_call(_bert(row.number("micro_batch")), chip_name)
    return ModelledValue(time.cycles, time.clock_hz, value=BERT_SAMPLES / time.seconds)


def _bert(n_samples: int) -> ModelCall:
    import torch

    from tremula.garden.models.large_transformers import BertForQuestions, place

    model = BertForQuestions().half().eval()
    place(model, BERT_LAYERS)
    words = torch.zeros(n_samples, BERT_WORDS, dtype=torch.int32)
    return ModelCall(
        model=model,
        micro_batch=(words, words, words),
        device_iterations=BERT_SAMPLES // (n_samples * BERT_REPLICAS),
        replication_factor=BERT_REPLICAS,
        is_timed_without_loader=True,
        is_pipelined=True,
        choose=_sum_in_half,
    )


@workload("GPT 117M training", FAMILY, is_large=True)
def gpt_training(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The time of a call, which has the whole global batch."""
    time = time_call(_gpt(row.number("global_batch")), chip_name)
    return ModelledValue(time.seconds * time.clock_hz, time.clock_hz)


def _gpt(n_sequences: int) -> ModelCall:
    import torch

    from poptorch.optim import AdamW
    from tremula.garden.models.large_transformers import GptWithLoss, place

    model = GptWithLoss().half().train()
    place(model, GPT_LAYERS)
    words = torch.zeros(1, GPT_WORDS, dtype=torch.int32)
    return ModelCall(
        model=model,
        micro_batch=(words, words),
        optimizer=lambda parameters: AdamW(
            parameters,
            lr=1.5e-4,
            bias_correction=False,
            accum_type=torch.half,
            first_order_momentum_accum_type=torch.half,
        ),
        device_iterations=GPT_ITERATIONS,
        gradient_accumulation=n_sequences // GPT_ITERATIONS,
        is_timed_without_loader=True,
        is_pipelined=True,
        choose=_as_caraml,
    )


def _sum_in_half(options: "Options") -> None:
    import torch

    options.Precision.setPartialsType(torch.half)


def _as_caraml(options: "Options") -> None:
    import poptorch

    _sum_in_half(options)
    options.Precision.enableStochasticRounding(True)
    options.outputMode(poptorch.OutputMode.Sum)
    share = {f"IPU{chip}": GPT_PROPORTION for chip in range(len(GPT_LAYERS))}
    options.setAvailableMemoryProportion(share)
