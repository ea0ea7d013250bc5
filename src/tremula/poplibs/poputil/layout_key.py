"""Keys of calls: equal for calls of an operation whose operands differ only in their addresses."""

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from tremula.base.types import QUARTER, Type
from tremula.poplar.graph import Graph
from tremula.poplar.graph_state import GraphState
from tremula.poplar.tensors.layout import digest_of, layout_of_pieces
from tremula.poplar.tensors.runs import Pieces
from tremula.poplar.tensors.tensor import Tensor

_PLAIN = (bool, int, float, str, bytes, type(None), np.generic, Enum)


class KeyedByText:
    """A value of which equal texts mean equal values, such as an expression."""

    __slots__ = ()

    def text(self) -> str:
        raise NotImplementedError


class NotReplayable(Exception):
    """Something that cannot be described by layouts alone."""


class TileMapDigests:
    """A digest of the tile map of each variable of a graph, relative to the variable's start."""

    def __init__(self, state: GraphState):
        self.variables, self.tile_map = state.variables, state.tile_map
        self._known: dict[int, _KnownMap] = {}
        self._like: dict[int, tuple[int, int]] = {}  # another that is mapped alike, n_rewrites then

    def tile_map_of(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        """(begin, end, tile) of all bytes of variables first … last."""
        resolved = self.tile_map.resolve()
        base, end = self.variables.base_bytes[first], self.variables.end_bytes[last]
        low = int(np.searchsorted(resolved.end, base, "right"))
        high = int(np.searchsorted(resolved.begin, end, "left"))
        return tuple(column[low:high] for column in resolved)

    def of(self, variable: int) -> tuple[object, ...]:
        """Equal for variables that are laid out alike; each constant is like itself only."""
        return *self._map_of(variable).key, self.variables.notes.get(variable)

    def in_elements(self, variable: int) -> bytes:
        """A digest of the tiles of a variable's elements, whatever their type."""
        return self._map_of(variable).in_elements

    def _map_of(self, variable: int) -> "_KnownMap":
        known = self._known.get(variable)
        if known is not None and known.is_final and self._is_now(known):
            return known
        like, n_rewrites = self._like.get(variable, (-1, -1))
        if n_rewrites == self.tile_map.n_rewrites and not self.tile_map.may_rewrite:
            known = self._map_of(like)
            if known.is_final:
                self._known[variable] = known
                return known
        begin, end, tile = self.tile_map_of(variable, variable)
        if known is None or known[:2] != (self.tile_map.n_rewrites, len(begin)):
            base = self.variables.base_bytes[variable]
            # What is mapped later is behind all that is mapped, or the map is rewritten.
            mapped_to = int(end[-1]) if len(end) else base
            is_final = mapped_to >= self.variables.end_bytes[variable]
            columns = begin - base, end - base, tile
            known = self._known[variable] = self._described(variable, columns, is_final)
        return known

    def _is_now(self, known: "_KnownMap") -> bool:
        return known.n_rewrites == self.tile_map.n_rewrites and not self.tile_map.may_rewrite

    def note_alike(self, variable: int, like: int) -> None:
        """A new variable is mapped as another is: what is known of that is known of it."""
        if not self.variables.is_constant[variable] and not self.tile_map.may_rewrite:
            self._like[variable] = like, self.tile_map.n_rewrites

    def _described(
        self, variable: int, columns: tuple[np.ndarray, ...], is_final: bool
    ) -> "_KnownMap":
        variables, (begin, end, tile) = self.variables, columns
        type = variables.types[variable]
        size = variables.end_bytes[variable] - variables.base_bytes[variable]
        # Operations may look at the values of a constant, so each constant has its own key.
        of_constant = variable if variables.is_constant[variable] else -1
        key = (type.name, size, of_constant, digest_of(*columns))
        elements = digest_of(begin // type.n_bytes, end // type.n_bytes, tile)
        return _KnownMap(self.tile_map.n_rewrites, len(begin), is_final, key, elements)


class _KnownMap(NamedTuple):
    """What is known of a variable's tile map, and whether it stays so unless it is rewritten."""

    n_rewrites: int
    n_intervals: int
    is_final: bool
    key: tuple[object, ...]  # type, size, constant, digest
    in_elements: bytes


class CallKey:
    """Collects the parts of a key while it numbers the variables that operands touch."""

    def __init__(self, layouts: TileMapDigests):
        self.layouts = layouts
        self.numbers: dict[int, int] = {}

    def of(self, value: object) -> object:
        """A hashable part that says everything about a value but the addresses of its variables."""
        if isinstance(value, Tensor):
            return self._of_tensor(value)
        if isinstance(value, _PLAIN):
            return type(value), repr(value)
        if isinstance(value, Type):
            return Type, value.name
        if isinstance(value, tuple | list):
            return type(value), *(self.of(part) for part in value)
        if isinstance(value, dict):
            return dict, *((self.of(k), self.of(v)) for k, v in value.items())
        if isinstance(value, np.ndarray):
            return np.ndarray, value.dtype.str, value.shape, digest_of(value)
        if isinstance(value, KeyedByText):
            return type(value), value.text()
        if is_dataclass(value) and not isinstance(value, type):
            return type(value), *(self.of(getattr(value, f.name)) for f in fields(value))
        raise NotReplayable

    def of_variables(self) -> tuple[object, ...]:
        """The layouts of all variables met, in their order."""
        return tuple(self.layouts.of(variable) for variable in self.numbers)

    def _of_tensor(self, tensor: Tensor) -> object:
        if tensor.type is QUARTER or tensor.variables is not self.layouts.variables:
            raise NotReplayable
        view = (Tensor, tensor.type.name, tensor.shape, tensor.strides)
        n_bytes, variables = tensor.type.n_bytes, self.layouts.variables
        if tensor.pieces is not None:
            return *view, tensor.offset, self._of_pieces(tensor.pieces, n_bytes)
        variable = variables.id_at(tensor.offset * n_bytes)
        number = self.numbers.setdefault(variable, len(self.numbers))
        return *view, tensor.offset - variables.base_bytes[variable] // n_bytes, number

    def _of_pieces(self, pieces: Pieces, n_bytes: int) -> object:
        layout = layout_of_pieces(pieces, n_bytes, self.layouts.variables)
        numbers = (self.numbers.setdefault(v, len(self.numbers)) for v in layout.variables)
        return layout.digest, *numbers


def key_of_graph(graph: Graph) -> tuple[object, ...]:
    """The key of a virtual graph: its tiles and the machine they belong to."""
    target = graph.target
    tiles = graph.tiles.ids
    own = b"" if tiles is None else digest_of(tiles)
    return target.n_ipus, target.tiles_per_ipu, target.type, target.chip, own
