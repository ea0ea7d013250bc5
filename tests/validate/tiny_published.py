"""Tiny configurations of the published models, each as a step on two chips of a few tiles."""

from dataclasses import replace

import torch

from tremula.garden.models.published import answering, image_nets, transducer, vision_transformers
from tremula.garden.models.published.decoders import DecoderLayer, DecoderSize
from tremula.garden.models.published.encoder import EncoderSize
from tremula.validate.workloads.model_call import ModelCall, compiled_call
from tremula.validate.workloads.models.pipeline import (
    MeasuredOptimizer,
    Training,
    time_training,
    whole,
)
from tremula.validate.workloads.models.timeline import timeline_of

N_TILES = 16
SIZE = EncoderSize(n_layers=1, width=32, n_heads=2, n_inner=32, n_words=32, n_positions=16)
WORDS = torch.zeros(1, 16, dtype=torch.int32)
LABEL = torch.zeros(1, dtype=torch.int32)
PIXELS = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)


def _swin():
    size = vision_transformers.SwinSize(
        width=16, depths=(2, 2), n_heads=(1, 2), window=4, n_pixels=32, n_classes=4
    )
    return vision_transformers.Swin(size).half().train(), (PIXELS.half(), LABEL)


def _vit():
    size = replace(SIZE, n_positions=17, norms_first=True)
    model = vision_transformers.VisionTransformer(size, 8, 10, has_hidden=True)
    return model.half().train(), (PIXELS, LABEL)


def _resnet():
    return image_nets.ImageNet((1, 1, 0, 0), n_classes=8).half().train(), (PIXELS, LABEL)


def _efficientnet():
    model = image_nets.EfficientNet(((1, 16, 3, 1), (1, 32, 3, 2)), n_classes=8)
    return model.half().train(), (PIXELS, LABEL)


def _transducer():
    size = transducer.TransducerSize(
        n_features=8, n_frames=16, n_text=4, n_symbols=8, width=16, n_heads=2, n_inner=16,
        predictor_width=8, n_slice=4,
    )  # fmt: skip
    sound, text = torch.zeros(1, 8, 16, dtype=torch.half), WORDS[:, :4]
    return transducer.Transducer(size).half().train(), (sound, text)


def _decoder():
    size = DecoderSize(width=16, n_heads=2, n_inner=32, n_words=50)
    inputs = (
        torch.zeros(1, 1, 16, dtype=torch.half), torch.zeros(2, 1, 2, 8, 8, dtype=torch.half),
        torch.zeros(1, 1, 1, 8, dtype=torch.half), torch.zeros(2, 1, dtype=torch.half),
    )  # fmt: skip
    return DecoderLayer(size).half().eval(), inputs


TINY = {
    "swin": (_swin, 1),
    "vit": (_vit, 1),
    "resnet": (_resnet, 1),
    "efficientnet": (_efficientnet, 1),
    "transducer": (_transducer, 3),
    "decoder": (_decoder, 0),
    "albert": (lambda: (answering.AnswerFinder(SIZE, 16).half().eval(), (WORDS,) * 4), 0),
    "deberta": (
        lambda: (
            answering.DeBertaForAnswers(replace(SIZE, n_kinds=0)).half(),
            (WORDS,) * 3,
        ),
        0,
    ),
    "roformer": (lambda: (answering.RoFormerForClasses(SIZE).half(), (WORDS.float(),) * 2), 0),
}  # fmt: skip


def trained(name: str) -> float:
    """Cycles of a tiny model: of a training step over its chips, or of one inference."""
    make, n_chips = TINY[name]
    if not n_chips:
        model, inputs = make()
        call = ModelCall(model=model, micro_batch=inputs, n_tiles=N_TILES)
        built, program = compiled_call(call, "c600").built()
        return timeline_of(built.graph, program).cycles
    training = Training(
        build=lambda _: make(), of=whole(n_chips), accumulation=8, replicas=1, n_tiles=N_TILES,
        optimizer=MeasuredOptimizer(kind="sgd", first_is_half=True), proportions=(0.6,),
    )  # fmt: skip
    return time_training(training, "bow").cycles
