"""The optimiser of a model: the object here, the compiled rule, the state on the device."""

import torch
from torch import Tensor

from tremula.frontends.poptorch.executor.compiled import CompiledModel
from tremula.frontends.poptorch.optim.settings import settings_of
from tremula.frontends.poptorch.optim.state import OptimizerState
from tremula.frontends.poptorch.optim.tracker import OptimizerTracker, automatic_loss_scaling
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.optim.grouped_rule import GroupedRule

NamedParameters = list[tuple[str, Tensor]]


class ModelOptimizer:
    """Follows the optimiser of a model from the script to the device."""

    def __init__(self, options: Options, optimizer: torch.optim.Optimizer | None):
        self.optimizer = optimizer
        self._is_training = optimizer is not None
        self.state: OptimizerState | None = None  # while a device has it
        self._training_options = options.Training
        self._is_by_weight = False  # loaded numbers differ within a group
        self._tracker = OptimizerTracker(
            relax_checks=options.relax_optimizer_checks,
            automatic_scaling=automatic_loss_scaling(options),
        )

    @property
    def needed(self) -> torch.optim.Optimizer:
        """The optimiser of a model in training."""
        assert self.optimizer is not None, "trainingModel gives every training model an optimiser"
        return self.optimizer

    def start_rule(self, parameters: NamedParameters) -> GroupedRule | None:
        """The rule to compile; None for inference."""
        if not self._is_training:
            return None
        return self._tracker.start(self.needed, parameters, by_weight=self._is_by_weight)

    def use(self, optimizer: torch.optim.Optimizer) -> None:
        """Use an optimiser for what is compiled next; half accumulators choose their mean."""
        self._tracker.note(optimizer)
        if self._is_training:
            are_half = settings_of(optimizer).fixed.sums_in_half
            self._training_options.follow_accumulators(are_half=are_half)
        self.optimizer = optimizer

    def change(self, optimizer: torch.optim.Optimizer, parameters: NamedParameters) -> None:
        """Send the values that an optimiser has now to the device."""
        self._tracker.note(optimizer)
        changed = self._tracker.changed(optimizer, parameters) if self._is_training else None
        if self.state is not None:
            self.state.follow(optimizer)
            if changed is not None:
                self.state.set_hyper(changed)
        self.optimizer = optimizer

    def attach(self, compiled: CompiledModel) -> None:
        """Write the first values of states and hyperparameters to the device."""
        rule = compiled.rule  # of the weights that have a gradient
        if rule is None or self.state is not None:
            return
        self.state = OptimizerState(
            self.needed,
            rule,
            compiled.program.session,
            dict(compiled.weights.named_parameters()),
            self._tracker.values_of(self.needed),
            grouped=frozenset(compiled.program.settings.groupings),
        )
        self.state.write_first()

    def note_step(self) -> None:
        """A schedule of torch's warns if its optimiser has not taken a step before it."""
        if self.optimizer is not None:
            self.optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]

    # -- numbers for each weight -------------------------------------------------------------------

    def must_split(self) -> bool:
        """Whether numbers were loaded that need a program with numbers for each weight."""
        return self.state is not None and self.state.must_split()

    def split(self) -> tuple[list[Tensor], list[float], float]:
        """What the device has, for `take_over` of a program with numbers for each weight."""
        assert self.state is not None, "only training has an optimiser"
        states = [state.detach().clone() for state in self.state.read_states()]
        hyper, factor = self._tracker.values_by_weight(self.state.hyper), self.state.scale_factor()
        self._is_by_weight = True
        return states, hyper, factor

    def join(self) -> None:
        """The next program has numbers for each group again."""
        self._is_by_weight = False

    # -- the end -----------------------------------------------------------------------------------

    def read_back(self) -> None:
        """Fetch what is newer on the device."""
        if self.state is not None:
            self.state.read_back()

    def let_go(self) -> None:
        """The optimiser keeps what the device has, and no longer reads from it."""
        if self.state is not None:
            self.state.let_go()
