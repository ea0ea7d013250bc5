"""IPUTrainer against transformers' Trainer: the same losses, evaluations and checkpoints."""

from pathlib import Path

import pytest
import torch
from transformers import (
    BertForSequenceClassification,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from optimum.graphcore import (
    IncompatibleIPUConfigError,
    IPUConfig,
    IPUSeq2SeqTrainer,
    IPUSeq2SeqTrainingArguments,
    IPUTrainer,
    IPUTrainingArguments,
)
from tremula.garden.models.tiny_families import tiny_family_model
from tremula.garden.models.tiny_transformers import tiny_config

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
N_STEPS = 20
COMMON = {
    "max_steps": N_STEPS, "logging_steps": 1, "learning_rate": 1e-2, "warmup_steps": 5,
    "per_device_train_batch_size": 4, "weight_decay": 0.1, "seed": 3, "report_to": [],
    "disable_tqdm": True, "save_strategy": "no",
}  # fmt: skip


def sentences(n: int = 64, *, is_causal: bool = False) -> list[dict]:
    draw = torch.Generator().manual_seed(0)
    rows = []
    for i in range(n):
        ids = torch.randint(3, 60, (8,), generator=draw)
        labels = ids.clone() if is_causal else int(ids[0] > 30)
        if is_causal:
            labels[: i % 4] = -100  # rows count differently many words
        rows.append({"input_ids": ids, "attention_mask": torch.ones(8).long(), "labels": labels})
    return rows


def model_of(kind):
    torch.manual_seed(0)
    return kind(tiny_config(kind.config_class))


def theirs(folder, kind=BertForSequenceClassification, *, is_causal=False, **changes):
    """Arguments with all rows in one micro-batch: transformers adds up the losses of several."""
    same_rows = {"per_device_train_batch_size": 8}
    arguments = TrainingArguments(str(folder), use_cpu=True, **(COMMON | same_rows | changes))
    rows = sentences(is_causal=is_causal)
    return Trainer(model_of(kind), arguments, train_dataset=rows, eval_dataset=rows[:13])


def ours(folder, kind=BertForSequenceClassification, *, is_causal=False, config=None, **changes):
    arguments = IPUTrainingArguments(str(folder), **({"fp32": True} | COMMON | changes))
    rows = sentences(is_causal=is_causal)
    return IPUTrainer(
        model_of(kind),
        config or IPUConfig(gradient_accumulation_steps=2),
        arguments,
        train_dataset=rows,
        eval_dataset=rows[:13],
    )


def losses(trainer) -> list[float]:
    return [record["loss"] for record in trainer.state.log_history if "loss" in record]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "is_causal", "changes"),
    [
        (BertForSequenceClassification, False, {}),
        pytest.param(
            BertForSequenceClassification,
            False,
            {"label_smoothing_factor": 0.1, "max_steps": 4},
            marks=pytest.mark.wide,
        ),
        (GPT2LMHeadModel, True, {"max_grad_norm": 0.3}),
    ],
)
def test_losses_and_evaluation_equal_transformers(tmp_path, kind, is_causal, changes):
    """Twenty steps with warm-up, decay, clipping and accumulation: every loss to 1e-4."""
    result = []
    for make in (theirs, ours):
        trainer = make(tmp_path, kind, is_causal=is_causal, **changes)
        trainer.train()
        result.append((losses(trainer), trainer.evaluate()["eval_loss"]))
    assert len(result[1][0]) == changes.get("max_steps", N_STEPS)
    assert result[1][0] == pytest.approx(result[0][0], abs=1e-4)
    assert result[1][1] == pytest.approx(result[0][1], abs=1e-4)


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_was_not_interrupted(tmp_path):
    """Weights, momenta, learning rate and the order of rows go on from a checkpoint."""
    whole = ours(tmp_path / "whole", max_steps=6, save_strategy="steps", save_steps=3)
    whole.train()
    again = ours(tmp_path / "again", max_steps=6)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert losses(again)[-3:] == pytest.approx(losses(whole)[3:], abs=1e-6)
    whole.copy_weights_to_host()
    again.copy_weights_to_host()
    for own, other in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_saved_models_are_those_of_transformers(tmp_path):
    """What is saved loads as a plain model; the IPUConfig is beside it."""
    trainer = ours(tmp_path, max_steps=2, config=IPUConfig(embedding_serialization_factor=2))
    trainer.train()
    trainer.train()  # again, from where it is
    trainer.save_model()
    plain = BertForSequenceClassification.from_pretrained(tmp_path).eval()
    rows = [{k: torch.as_tensor(v)[None] for k, v in row.items()} for row in sentences(2)]
    for row in rows:
        expected = trainer.model.eval()(**row).logits
        torch.testing.assert_close(plain(**row).logits, expected, rtol=1e-5, atol=1e-6)
    assert IPUConfig.from_pretrained(tmp_path).embedding_serialization_factor == 2
    assert trainer.predict(sentences(9)).predictions.shape == (9, 2)


@pytest.mark.slow
def test_half_precision_learns(tmp_path):
    """In half, with loss scaling, the loss falls as well; callbacks see every step."""
    seen = []

    class Watcher(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            seen.append(state.global_step)

    trainer = ours(tmp_path, fp32=False, weight_decay=0.0, warmup_steps=0, max_steps=10)
    trainer.add_callback(Watcher())
    trainer.train()
    assert trainer.model.dtype is torch.float16
    assert sum(losses(trainer)[-4:]) < sum(losses(trainer)[:4])
    assert seen == list(range(1, 11))


@pytest.mark.slow
def test_sequence_to_sequence(tmp_path):
    """A model of two stacks trains; predictions are generated."""
    tiny = tiny_family_model("T5ForConditionalGeneration")
    tiny.model.generation_config.use_cache = tiny.model.config.use_cache = True
    row = {k: v[0] for k, v in tiny.batch.items()}
    arguments = IPUSeq2SeqTrainingArguments(
        str(tmp_path), fp32=True, predict_with_generate=True, generation_max_length=6,
        **(COMMON | {"max_steps": 3}),
    )  # fmt: skip
    trainer = IPUSeq2SeqTrainer(tiny.model, IPUConfig(), arguments, train_dataset=[row] * 8)
    trainer.train()
    assert losses(trainer)[-1] < losses(trainer)[0]
    assert trainer.predict([row] * 3).predictions.shape[0] == 3
    whole = trainer.predict([row] * 8)  # a whole batch
    assert (whole.predictions[:3] == trainer.predict([row] * 3).predictions).all()
    assert trainer.model._device_search()._compiled  # the words came from compiled searches


def test_arguments():
    """Old names are accepted, wrong values rejected."""
    arguments = IPUTrainingArguments(
        "x", evaluation_strategy="no", gradient_accumulation_steps=7, warmup_ratio=0.1
    )
    assert arguments.eval_strategy == "no"
    assert arguments.get_warmup_steps(50) == 5
    assert arguments.accumulation_on_device == 7
    assert arguments.gradient_accumulation_steps == 1
    for wrong, said in (
        ({"n_ipu": 3}, "power of two"),
        ({"dataloader_mode": "fast"}, "dataloader_mode must be one of"),
        ({"lamb": True, "lamb_no_bias_correction": True}, "choose one of"),
    ):
        with pytest.raises(IncompatibleIPUConfigError, match=said):
            IPUTrainingArguments("x", **wrong)


def test_wrong_use_is_named(tmp_path):
    """Without a configuration, with too few rows, with transformers' arguments: a clear error."""
    model = model_of(BertForSequenceClassification)
    with pytest.raises(IncompatibleIPUConfigError, match="has no IPUConfig"):
        IPUTrainer(model, None, IPUTrainingArguments(str(tmp_path)))
    with pytest.raises(TypeError, match="IPUTrainingArguments, got TrainingArguments"):
        IPUTrainer(model, IPUConfig(), TrainingArguments(str(tmp_path), use_cpu=True))
    with pytest.raises(IncompatibleIPUConfigError, match="not a multiple of the 2 IPUs"):
        IPUTrainer(
            model, IPUConfig(layers_per_ipu=[1, 1]), IPUTrainingArguments(str(tmp_path), n_ipu=1)
        )
    trainer = ours(tmp_path, config=IPUConfig(gradient_accumulation_steps=50))
    with pytest.raises(IncompatibleIPUConfigError, match=r"takes 200 rows .* has 64"):
        trainer.train()
    assert Path(tmp_path).exists()
