"""Pipelines that transformers 5 no longer has: answers in a text, and text from text."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Pipeline


class IPUQuestionAnsweringPipeline(Pipeline):
    """Finds the answer to a question in a text: `pipe(question=…, context=…)`."""

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True

    def _sanitize_parameters(
        self, top_k: int = 1, max_answer_len: int = 15, **_: object
    ) -> tuple[dict, dict, dict]:
        if top_k < 1 or max_answer_len < 1:
            raise ValueError(f"top_k and max_answer_len start at 1, got {top_k}, {max_answer_len}")
        return {}, {}, {"top_k": top_k, "max_answer_len": max_answer_len}

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *args: object,
        question: str | Sequence[str] | None = None,
        context: str | Sequence[str] | None = None,
        **kwargs: object,
    ) -> Any:  # noqa: ANN401 - an answer, or several
        """Answer one question about one text, or each of several."""
        if args:
            return super().__call__(*args, **kwargs)
        if question is None or context is None:
            raise ValueError("question-answering needs question=… and context=…")
        if isinstance(question, str):
            return super().__call__({"question": question, "context": context}, **kwargs)
        contexts = [context] * len(question) if isinstance(context, str) else context
        pairs = [{"question": q, "context": c} for q, c in zip(question, contexts, strict=True)]
        return super().__call__(pairs, **kwargs)

    def preprocess(self, input_: dict[str, str], **_: object) -> dict[str, Any]:
        """Words of question and text, and the position of each in the text."""
        assert self.tokenizer is not None, "transformers has seen to it"
        encoded = self.tokenizer(
            input_["question"],
            input_["context"],
            truncation="only_second",
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        places = encoded.pop("offset_mapping")[0]
        is_text = torch.tensor([part == 1 for part in encoded.sequence_ids(0)])
        return {"words": encoded, "places": places, "is_text": is_text, "text": input_["context"]}

    def _forward(self, model_inputs: dict[str, Any], **_: object) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        outputs = self.model(**model_inputs["words"])
        rest = {name: model_inputs[name] for name in ("places", "is_text", "text")}
        return {"start": outputs.start_logits, "end": outputs.end_logits, **rest}

    def postprocess(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model_outputs: dict[str, Any], top_k: int = 1, max_answer_len: int = 15
    ) -> dict[str, object] | list[dict[str, object]]:
        """The best spans of the text, with their probabilities."""
        is_text = model_outputs["is_text"]
        start = model_outputs["start"][0].float().masked_fill(~is_text, -1e4).softmax(-1)
        end = model_outputs["end"][0].float().masked_fill(~is_text, -1e4).softmax(-1)
        scores = torch.outer(start, end).triu().tril(max_answer_len - 1)
        best = scores.flatten().topk(min(top_k, scores.numel()))
        result = []
        for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            first, last = divmod(place, scores.shape[1])
            begin = int(model_outputs["places"][first][0])
            stop = int(model_outputs["places"][last][1])
            answer = model_outputs["text"][begin:stop]
            result.append({"score": score, "start": begin, "end": stop, "answer": answer})
        return result[0] if top_k == 1 else result


class IPUText2TextGenerationPipeline(Pipeline):
    """Text from text: `pipe("…", max_new_tokens=…)`."""

    return_name = "generated"
    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True
    _pipeline_calls_generate = True

    def _sanitize_parameters(
        self,
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool = False,
        truncation: bool = False,
        **generate: object,
    ) -> tuple[dict, dict, dict]:
        shown = {"return_tensors": return_tensors, "clean_up": clean_up_tokenization_spaces}
        return {"truncation": truncation}, generate, shown

    def preprocess(self, input_: str, truncation: bool = False, **_: object) -> dict[str, Any]:
        """The words of a text, with the task's prefix before it if the model wants one."""
        assert self.tokenizer is not None, "transformers has seen to it"
        prefix = getattr(self.model.config, "prefix", None) or ""
        return dict(self.tokenizer(prefix + input_, truncation=truncation, return_tensors="pt"))

    def _forward(self, model_inputs: dict[str, Any], **generate: object) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        saved = {n: v for n, v in model_inputs.items() if n in ("input_ids", "attention_mask")}
        return {"output_ids": self.model.generate(**saved, **generate)}  # pyright: ignore[reportCallIssue]

    def postprocess(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model_outputs: dict[str, Any], return_tensors: bool = False, clean_up: bool = False
    ) -> list[dict[str, object]]:
        """One record for each text that was generated."""
        rows = model_outputs["output_ids"]
        if return_tensors:
            return [{f"{self.return_name}_token_ids": row} for row in rows]
        assert self.tokenizer is not None, "transformers has seen to it"
        texts = self.tokenizer.batch_decode(
            rows, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up
        )
        return [{f"{self.return_name}_text": text} for text in texts]


class IPUSummarizationPipeline(IPUText2TextGenerationPipeline):
    """A summary of a text."""

    return_name = "summary"


class IPUTranslationPipeline(IPUText2TextGenerationPipeline):
    """A text in another language; T5 takes the languages from `translation_xx_to_yy`."""

    return_name = "translation"

    def preprocess(self, input_: str, truncation: bool = False, **_: object) -> dict[str, Any]:
        """The words of a text, with T5's instruction before it."""
        task = getattr(self, "task", "") or ""
        parts = task.split("_")
        specific = getattr(self.model.config, "task_specific_params", None) or {}
        prefix = specific.get(task, {}).get("prefix", "") if len(parts) == 4 else ""
        return super().preprocess(prefix + input_, truncation)
