"""SGD, Adam and the adaptive optimisers, as scripts make them."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tremula.frontends.popart.enums import (
    AdamMode,
    AdaptiveMode,
    DataType,
    SGDAccumulatorAndMomentum,
    WeightDecayMode,
)
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.optimisers.values import (
    ClipNormSettings,
    Hyperparameters,
    OptimizerValue,
    OptimizerValueMap,
    check_values,
    read_values,
)

LOSS_SCALING = "lossScaling"


class Optimizer:
    """Numbers by name, for all weights and for single ones, and how gradients are clipped."""

    # Names of the numbers, with the values they have unless they are given.
    numbers: ClassVar[Mapping[str, float]] = {}

    def __init__(self, values: Hyperparameters, clip_norm_settings: Sequence[ClipNormSettings]):
        owner = type(self).__name__
        known = {**self.numbers, LOSS_SCALING: 1.0}
        numbers = read_values(values, known, "default", owner)
        self.defaults = {name: OptimizerValue(value) for name, value in known.items()} | numbers
        check_values(self.defaults, owner)
        self.specific: dict[str, dict[str, OptimizerValue]] = {}
        self.clips = tuple(clip_norm_settings)

    def insertSpecific(self, id: str, values: Hyperparameters) -> None:
        """Set the numbers of one weight; those that are left out are the default ones."""
        numbers = read_values(values, self.numbers, "", type(self).__name__)
        check_values(numbers, type(self).__name__)
        self.specific[id] = {**self.specific.get(id, {}), **numbers}

    def hasSpecific(self, id: str | None = None) -> bool:
        """Whether a weight, or any, has specific numbers."""
        return bool(self.specific) if id is None else id in self.specific

    def getLossScalingVal(self) -> float:
        """What the loss is multiplied with before it is differentiated."""
        return self.defaults[LOSS_SCALING].val()

    def lossScaling(self) -> OptimizerValue:
        """The loss scaling, and whether it may change."""
        return self.defaults[LOSS_SCALING]

    def value(self, name: str, id: str) -> OptimizerValue:
        """A number for a weight."""
        return self.specific.get(id, {}).get(name, self.defaults[name])

    def fixed_facts(self) -> tuple:
        """What a replacement must share: everything but variable numbers."""
        return type(self).__name__, self.clips_text()

    def clips_text(self) -> str:
        """How gradients are clipped."""
        return str([(tuple(clip.weightIds), clip.maxNorm) for clip in self.clips])

    def check_replacement(self, new: "Optimizer") -> None:
        """Raise if another optimiser cannot take this one's place without compiling again."""
        if self.fixed_facts() != new.fixed_facts():
            raise popart_exception(
                "Optimizer can not be replaced: its kind, modes, types and clipping are part of the"
                f" program; it was {self.fixed_facts()}, is {new.fixed_facts()}"
            )
        for id in ("", *self.specific, *(i for i in new.specific if i not in self.specific)):
            for name in self.defaults:
                self._check_number(name, id, new)

    def _check_number(self, name: str, id: str, new: "Optimizer") -> None:
        before, after = self.value(name, id), new.value(name, id)
        is_new = id and (id in self.specific) != (id in new.specific)
        if before.isConst() != after.isConst() or is_new or (before.isConst() and before != after):
            whose = f" of {id!r}" if id else ""
            raise popart_exception(
                f"Optimizer value {name}{whose} can not be replaced: it was {before}, is {after};"
                " only values that are not constant change"
            )

    def _map(self, name: str) -> OptimizerValueMap:
        own = {id: values[name] for id, values in self.specific.items() if name in values}
        return OptimizerValueMap(self.defaults[name], own)

    def learningRates(self) -> OptimizerValueMap:
        """The learning rates."""
        return self._map("learningRate")

    def weightDecays(self) -> OptimizerValueMap:
        """The weight decays."""
        return self._map("weightDecay")


class SGD(Optimizer):
    """v ← momentum·v + (1 - dampening)(g + weightDecay·w); w ← w - learningRate·v.

    g is the gradient, divided by the loss scaling. With `nesterov` w ← w - learningRate(g +
    weightDecay·w + momentum·v). `Combined`: one tensor accumulates gradients and is the velocity,
    so that new values of momentum and weight decay act one step later; `Separate`: two tensors.
    """

    numbers = {  # noqa: RUF012 - the base declares it
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "momentum": 0.0,
        "dampening": 0.0,
        "velocityScaling": 1.0,
        "nesterov": 0.0,
    }
    nesterov: bool

    def __init__(
        self,
        values: Hyperparameters,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: DataType = DataType.UNDEFINED,
        accl1Type: DataType = DataType.UNDEFINED,
        nesterov: bool = False,
    ):
        renamed = {"nesterov": "defaultNesterov"}
        super().__init__({renamed.get(k, k): v for k, v in values.items()}, clip_norm_settings)
        self.mode = accumulatorAndMomentum
        self.accum_type, self.accl1_type = accumType, accl1Type
        self.nesterov = bool(nesterov or self.defaults["nesterov"].val())

    def fixed_facts(self) -> tuple:
        """What a replacement must share."""
        types = self.accum_type.name, self.accl1_type.name
        return ("SGD", self.mode.name, *types, self.nesterov, self.clips_text())

    def momentums(self) -> OptimizerValueMap:
        """The momenta."""
        return self._map("momentum")

    def dampenings(self) -> OptimizerValueMap:
        """The dampenings."""
        return self._map("dampening")

    def velocityScalings(self) -> OptimizerValueMap:
        """How velocities are scaled while they are stored."""
        return self._map("velocityScaling")


class ConstSGD(SGD):
    """SGD whose numbers never change."""

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ):
        values = {
            "defaultLearningRate": (learning_rate, True),
            "defaultWeightDecay": (weight_decay, True),
            LOSS_SCALING: (loss_scaling, True),
        }
        super().__init__(values, clip_norm_settings)


class Adam(Optimizer):
    """m ← β₁m + (1-β₁)g; v ← β₂v + (1-β₂)g²; x = m̂ / (√v̂ + ε); w ← w - learningRate·x.

    m̂ and v̂ are corrected for their start at 0, except in the modes without bias. AdaMax keeps
    max(β₂v, |g|) instead of squares. Lamb makes x as long as the weights, of which at most
    `maxWeightNorm` counts. Weights decay by themselves (x + weightDecay·w), or through g.
    """

    numbers = {  # noqa: RUF012 - the base declares it
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-6,
        "maxWeightNorm": 10.0,
    }

    def __init__(
        self,
        values: Hyperparameters,
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
    ):
        super().__init__(values, clip_norm_settings)
        self.mode, self.weight_decay_mode = mode, weight_decay_mode
        self.accum_type, self.accl1_type, self.accl2_type = accum_type, accl1_type, accl2_type
        self.scaled_optimizer_state = scaled_optimizer_state

    def fixed_facts(self) -> tuple:
        """What a replacement must share."""
        types = (self.accum_type, self.accl1_type, self.accl2_type)
        modes = self.mode.name, self.weight_decay_mode.name
        return ("Adam", *modes, *(kind.name for kind in types), self.clips_text())

    def beta1s(self) -> OptimizerValueMap:
        """The decays of the mean."""
        return self._map("beta1")

    def beta2s(self) -> OptimizerValueMap:
        """The decays of the mean square."""
        return self._map("beta2")

    def epss(self) -> OptimizerValueMap:
        """What is added to the root."""
        return self._map("eps")

    def maxWeightNorms(self) -> OptimizerValueMap:
        """The longest that weights count for in Lamb."""
        return self._map("maxWeightNorm")


class Adaptive(Optimizer):
    """Gradients divided by a root of their squares: AdaGrad, RMSProp, centred or not, AdaDelta.

    `rmsprop_tf_variant` has ε inside the root and the learning rate inside the momentum.
    """

    numbers = {  # noqa: RUF012 - the base declares it
        "learningRate": 0.01,
        "weightDecay": 0.0,
        "alpha": 0.99,
        "momentum": 0.0,
        "eps": 1e-6,
    }

    def __init__(
        self,
        values: Hyperparameters,
        mode: AdaptiveMode = AdaptiveMode.RMSProp,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        accl3_type: DataType = DataType.UNDEFINED,
        rmsprop_tf_variant: bool = False,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ):
        super().__init__(values, clip_norm_settings)
        self.mode, self.weight_decay_mode = mode, weight_decay_mode
        self.accum_type, self.accl1_type = accum_type, accl1_type
        self.accl2_type, self.accl3_type = accl2_type, accl3_type
        self.rmsprop_tf_variant = rmsprop_tf_variant
        if rmsprop_tf_variant and mode not in (AdaptiveMode.RMSProp, AdaptiveMode.CenteredRMSProp):
            raise popart_exception(f"rmsprop_tf_variant is a form of RMSProp, not of {mode.name}")

    def fixed_facts(self) -> tuple:
        """What a replacement must share."""
        types = (self.accum_type, self.accl1_type, self.accl2_type, self.accl3_type)
        modes = self.mode.name, self.weight_decay_mode.name, self.rmsprop_tf_variant
        return ("Adaptive", *modes, *(kind.name for kind in types), self.clips_text())

    def alphas(self) -> OptimizerValueMap:
        """The decays of the mean square."""
        return self._map("alpha")

    def momentums(self) -> OptimizerValueMap:
        """The momenta."""
        return self._map("momentum")

    def epss(self) -> OptimizerValueMap:
        """What is added to the root."""
        return self._map("eps")
