"""Arguments of a model: brought into one form, compared with those it was compiled for."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tremula.base.errors import suggest
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.inputs.structures import (
    Entries,
    ICustomArgParser,
    Structure,
    TensorPlace,
    entries_mismatch,
    flatten_outputs,
    in_order_of,
    mismatch,
    parser_for,
    put_together,
    registerCustomArgParser,
    take_apart,
    tensor_names,
)
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options

__all__ = [
    "ArgsParser",
    "ICustomArgParser",
    "NARROWER",
    "ParsedArgs",
    "flatten_outputs",
    "micro_batch",
    "n_batches_to_combine",
    "parser_for",
    "registerCustomArgParser",
]

# Types the device does not have, and their replacements.
NARROWER = {
    torch.int64: torch.int32,
    torch.float64: torch.float32,
    torch.bfloat16: torch.float32,
}


def narrower_types(model: Callable) -> Mapping[torch.dtype, torch.dtype]:
    """Types of tensors that become others: bfloat16 stays what it is in a model made of it."""
    held = (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()
    if any(tensor.dtype is torch.bfloat16 for tensor in held):
        return {wide: narrow for wide, narrow in NARROWER.items() if wide is not torch.bfloat16}
    return NARROWER


_HINT = (
    "\nThe model was compiled for different inputs. To compile it for these, call "
    "destroy() on it and run it again, or wrap the model in a new "
    "inferenceModel / trainingModel."
)
_Kind = inspect.Parameter


class ParsedArgs:
    """The arguments of one call.

    `tensors` are ready to be used: detached and contiguous; `originals` are the caller's own, for
    results that are written back into them.
    """

    def __init__(self, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]):
        self.names = names
        self.originals: list[torch.Tensor] = []
        collect = self.originals.append
        self.args: tuple[Structure, ...] = tuple(take_apart(arg, collect) for arg in args)
        items = tuple(take_apart(value, collect) for value in kwargs.values())
        self.kwargs = Entries(dict, tuple(kwargs), items, None)
        self.tensors = list(self.originals)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> "ParsedArgs":
        """Arguments of the same form with other tensors of the same shapes and types."""
        made = ParsedArgs.__new__(ParsedArgs)
        made.names, made.args, made.kwargs = self.names, self.args, self.kwargs
        made.originals, made.tensors = list(tensors), list(tensors)
        return made

    def check_same(self, first: "ParsedArgs") -> None:
        """Raise unless these arguments fit a model compiled for `first`.

        Dictionaries may have their keys in another order: the tensors then take that of `first`.
        """
        if self.args == first.args and self.kwargs == first.kwargs:
            return
        difference = self._difference(first)
        if difference is not None:
            raise createPoptorchError(difference + _HINT)
        self.originals = self._in_order_of(first, self.originals)
        self.tensors = self._in_order_of(first, self.tensors)
        self.args, self.kwargs = first.args, first.kwargs

    def _difference(self, first: "ParsedArgs") -> str | None:
        if len(self.args) != len(first.args):
            return (
                f"Number of positional arguments mismatch: expected {len(first.args)} arguments "
                f"but got {len(self.args)}."
            )
        for name, expected, got in zip(first.names, first.args, self.args, strict=True):
            difference = mismatch(expected, got, name)
            if difference is not None:
                return difference
        return entries_mismatch(first.kwargs, self.kwargs, "keyword arguments", True)

    def _in_order_of(self, first: "ParsedArgs", tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        flat = iter(tensors)
        ordered = []
        for expected, got in zip(first.args, self.args, strict=True):
            ordered += in_order_of(expected, got, flat)
        return ordered + in_order_of(first.kwargs, self.kwargs, flat)

    def rebuild(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments like these, to call forward with, but with other tensors."""
        assert len(tensors) == len(self.tensors), (
            f"expected {len(self.tensors)} tensors, got {len(tensors)}"
        )
        flat = iter(tensors)
        args = tuple(put_together(structure, flat) for structure in self.args)
        return args, put_together(self.kwargs, flat)

    def tensor_names(self) -> list[str]:
        """A name for each tensor: its parameter, and the place in it, such as `x[1]`."""
        named = [*zip(self.names, self.args, strict=True)]
        named += zip(map(str, self.kwargs.keys), self.kwargs.items, strict=True)
        return [inner for name, item in named for inner in tensor_names(item, name)]


class ArgsParser:
    """Brings the arguments of forward into one form, however they are passed."""

    def __init__(self, model: torch.nn.Module | Callable):
        forward = model.forward if isinstance(model, torch.nn.Module) else model
        parameters = list(inspect.signature(forward).parameters.values())
        by_position = (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)
        self._positional = [p for p in parameters if p.kind in by_position]
        self._by_name = [p for p in parameters if p.kind is _Kind.KEYWORD_ONLY]
        self._rest = next((p.name for p in parameters if p.kind is _Kind.VAR_POSITIONAL), None)
        self._takes_any_name = any(p.kind is _Kind.VAR_KEYWORD for p in parameters)
        self._names = tuple(p.name for p in self._positional)
        self._narrower = narrower_types(model)
        self._said: set[str] = set()

    def parse(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ParsedArgs:
        """The arguments in the order of the signature, defaults filled in, tensors cleaned."""
        names: Sequence[str] = self._names
        if kwargs or self._by_name or len(args) != len(names):
            names, args, kwargs = self._normal_form(args, dict(kwargs))
        parsed = ParsedArgs(names, args, kwargs)
        self._clean(parsed)
        if any(isinstance(arg, Entries) for arg in (*parsed.args, *parsed.kwargs.items)):
            self._warn_once("Dicts as inputs have only partial support: their keys are fixed.")
        return parsed

    def parse_again(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], first: ParsedArgs
    ) -> ParsedArgs:
        """The arguments of a later call; raises unless they fit a model compiled for `first`."""
        if not kwargs and not first.kwargs.keys and _are_clean_tensors(args, first.args):
            return first.with_tensors(args)
        parsed = self.parse(args, kwargs)
        parsed.check_same(first)
        return parsed

    def warn_about_types(self, parsed: ParsedArgs) -> None:
        """Warn about tensors of types the device does not have, and name the replacements."""
        if not any(tensor.dtype in self._narrower for tensor in parsed.tensors):
            return
        for tensor, name in zip(parsed.tensors, parsed.tensor_names(), strict=True):
            if tensor.dtype in self._narrower:
                self._warn_once(
                    f"Input {name} has the type {tensor.dtype}, which the IPU does not have: it is "
                    f"converted to {self._narrower[tensor.dtype]}."
                )

    def _normal_form(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[list[str], list[Any], dict[str, Any]]:
        n_given = len(args)
        assert self._rest is not None or n_given <= len(self._positional), (
            f"forward takes {len(self._positional)} positional arguments, but {n_given} were given"
        )
        names, values = list(self._names), list(args[: len(self._positional)])
        for parameter in self._positional[:n_given]:
            if parameter.name in kwargs and parameter.kind is not _Kind.POSITIONAL_ONLY:
                raise TypeError(f"forward() got multiple values for argument '{parameter.name}'")
        values += [_take(p, kwargs) for p in self._positional[n_given:]]
        rest = args[len(self._positional) :]
        names += [f"{self._rest}[{i}]" for i in range(len(rest))]
        named = {p.name: _take(p, kwargs) for p in self._by_name}
        if kwargs and not self._takes_any_name:
            self._refuse(next(iter(kwargs)))
        return names, [*values, *rest], {**named, **kwargs}

    def _refuse(self, name: str) -> None:
        known = [p.name for p in (*self._positional, *self._by_name)]
        raise TypeError(
            f"forward() got an unexpected keyword argument '{name}': {suggest(name, known)}"
        )

    def _clean(self, parsed: ParsedArgs) -> None:
        for i, tensor in enumerate(parsed.tensors):
            if tensor.requires_grad:
                self._warn_once(
                    "Input tensor has requires_grad=True set. This tensor will be detached because "
                    "backward pass via inputs is not supported."
                )
                tensor = tensor.detach()
            if not tensor.is_contiguous():
                self._warn_once(
                    "At least one input tensor is not contiguous: it is copied in each call."
                )
                tensor = tensor.contiguous()
            parsed.tensors[i] = tensor

    def _warn_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOGGER.warning(text)


def _are_clean_tensors(args: Sequence[Any], places: Sequence[Structure]) -> bool:
    """Whether arguments are plain tensors of the shapes and types expected: the usual case."""
    return len(args) == len(places) and all(
        type(tensor) is torch.Tensor
        and type(place) is TensorPlace
        and tensor.shape == place.shape
        and tensor.dtype is place.dtype
        and not tensor.requires_grad
        and tensor.is_contiguous()
        for tensor, place in zip(args, places, strict=True)
    )


def _take(parameter: inspect.Parameter, kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """The value given for a parameter by name, or its default."""
    if parameter.name in kwargs and parameter.kind is not _Kind.POSITIONAL_ONLY:
        return kwargs.pop(parameter.name)
    if parameter.default is _Kind.empty:
        raise createPoptorchError(f"Mandatory parameter {parameter.name} missing")
    return parameter.default


def n_batches_to_combine(options: Options) -> int:
    """The number of micro-batches that one call consumes."""
    n_groups = options.replication_factor // options.input_group_size
    return options.device_iterations * n_groups * options.Training.gradient_accumulation


def micro_batch(tensor: torch.Tensor, options: Options) -> torch.Tensor:
    """The first micro-batch of an input; raises if the input cannot be cut evenly."""
    n_batches = n_batches_to_combine(options)
    size = tensor.shape[0] if tensor.ndim else 1
    assert size % n_batches == 0, (
        f"Invalid batch dimension: In the input {tensor.shape}, the batch dimension ({size}) must "
        f"be a multiple of Options.deviceIterations({options.device_iterations}) * "
        f"(Options.replicationFactor({options.replication_factor}) / "
        f"Options.inputReplicaGrouping.input_group_size({options.input_group_size})) * "
        f"Options.Training.gradientAccumulation({options.Training.gradient_accumulation}) = "
        f"{n_batches}, the number of micro-batches of one call."
    )
    return tensor if n_batches == 1 else tensor[: size // n_batches]
