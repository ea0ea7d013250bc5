"""What all optimisers of PopTorch share: which attributes may change, and a state on the IPU."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch

ACCUMULATION_TYPES = (torch.float16, torch.float32)
Hyperparameters = dict[str, Any]  # of a group of parameters, by name
State = dict[str, Any]  # as `state_dict()` returns it: tensors, numbers, dictionaries of them


class VariableAttributes:
    """Which attributes of an optimiser may change after compilation: `optimizer.variable_attrs`.

    An attribute given to the constructor is variable, one left out is constant, so that
    nothing is spent on it at run time. The learning rate is always variable.
    """

    def __init__(self, variable_attributes: list[str], allowed_attributes: list[str]):
        self._variable_attributes = variable_attributes
        self._allowed_attributes = allowed_attributes

    def isConstant(self, attr: str) -> bool:  # noqa: N802
        """True if the attribute may not change after compilation."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:  # noqa: N802
        """Keep an attribute from changing after compilation."""
        self._check_known(attr)
        self._variable_attributes = [a for a in self._variable_attributes if a != attr]

    def markAsVariable(self, attr: str) -> None:  # noqa: N802
        """Allow an attribute to change after compilation."""
        self._check_known(attr)
        self._variable_attributes.append(attr)

    def _check_known(self, attr: str) -> None:
        assert attr in self._allowed_attributes, (
            f"Unknown attribute {attr}, allowed values: {self._allowed_attributes}"
        )


class Optimizer:
    """What all optimisers of PopTorch share: extra attributes, and a state that lives on the IPU.

    `state_dict()` is torch's, plus `ipu_state` and `ipu_param`: both None until a model that uses
    the optimiser is compiled.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[dict[str, object]] = {}  # what the torch class does not have
    _fetch: Callable[[], None] | None = None  # reads the state back from a model that uses this

    def __init__(self) -> None:
        self._state_dict: State = {"ipu_state": None, "ipu_param": None}
        self.ipu_state_is_dirty = False  # the state here is newer than the one on the IPU
        self.host_state_is_dirty = False  # the state on the IPU is newer than the one here

    def state_dict(self) -> State:
        """Torch's dictionary, plus `ipu_state` and `ipu_param` as the IPU has them."""
        if self._fetch is not None:
            self._fetch()
        return self.get_state_dict()

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a state that `state_dict()` of a PopTorch optimiser gave."""
        self._check_state(state_dict)
        torch.optim.Optimizer.load_state_dict(self, state_dict)  # pyright: ignore[reportArgumentType]
        self.set_state_dict(state_dict)

    def get_state_dict(self) -> State:
        """The state on the host, without asking the IPU."""
        own = torch.optim.Optimizer.state_dict(self)  # pyright: ignore[reportArgumentType]
        return {**self._state_dict, **own}

    def set_state_dict(self, state: State) -> None:
        """Set `ipu_state` and `ipu_param`; the next run takes them to the IPU."""
        self._check_state(state)
        self._state_dict = {key: state[key] for key in ("ipu_state", "ipu_param")}
        self.ipu_state_is_dirty = True
        self.host_state_is_dirty = False

    def has_state(self) -> bool:
        """True if a state was loaded or read back from an IPU."""
        return all(self._state_dict.get(key) is not None for key in ("ipu_state", "ipu_param"))

    @staticmethod
    def _check_state(state: State) -> None:
        if not state:
            raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
        if not {"ipu_state", "ipu_param"} <= set(state):
            raise RuntimeError("Only IPU optimizer states can be loaded onto the IPU.")

    def __getstate__(self) -> State:
        # Torch keeps groups, defaults and its own state; a copy must upload the IPU's.
        state: State = {}
        state.update(super().__getstate__())  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType, reportCallIssue]
        state.update({name: getattr(self, name) for name in self._own_defaults})
        state["variable_attrs"] = self.variable_attrs
        state["_state_dict"] = self._state_dict
        state["ipu_state_is_dirty"] = self.has_state()
        state["host_state_is_dirty"] = False
        return state

    def _start(
        self, of_torch: type[torch.optim.Optimizer], names: dict[str, object]
    ) -> dict[str, object]:
        """Initialise both classes from the `locals()` of a constructor; returns its arguments."""
        args = arguments(names)
        Optimizer.__init__(self)
        start: Callable[..., None] = of_torch.__init__
        start(self, names["params"], **without_none(self._not_own(args)))
        return args

    def _not_own(self, args: dict[str, Any]) -> dict[str, object]:
        own = {*self._own_defaults, "velocity_scaling"}  # the latter is an attribute of groups
        return {name: value for name, value in args.items() if name not in own}

    def _finish(self, args: dict[str, Any]) -> None:
        """Set own attributes from the arguments, and note which of these the user gave."""
        for name, default in self._own_defaults.items():
            value = default if args[name] is None else args[name]
            assert not name.endswith("accum_type") or value in ACCUMULATION_TYPES, (
                "Accumulation types must be either torch.float32 or torch.float16"
            )
            setattr(self, name, value)
        defaults: dict[str, object] = self.defaults  # pyright: ignore[reportAttributeAccessIssue]
        self.variable_attrs = VariableAttributes(
            list(without_none(args)), [*defaults, "loss_scaling"]
        )


def arguments(names: dict[str, Any]) -> dict[str, object]:
    """All arguments of a constructor, from its `locals()`; one that was not given is None."""
    args = {name: names[name] for name in names if name not in ("self", "params")}
    torch_options = args.pop("torch_options", {})
    return {**args, **torch_options}


def without_none(arguments: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if value is not None}
