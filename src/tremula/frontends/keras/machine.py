"""What settings of `IPUConfig` change: the machine that steps are compiled for, its rounding."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tremula.base.errors import suggest
from tremula.frontends.keras.config import IPUConfig, config_in_force
from tremula.frontends.keras.enums import StochasticRoundingBehaviour
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.pipelines.pipeline import KerasPipeline
from tremula.ir.settings import HostSettings

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.ir.run.tile_program import TileSettings

_PRODUCT_OPTIONS = ("availableMemoryProportion", "partialsType")
_DEFAULT_VERSION = "ipu2"


def tile_settings(
    host: HostSettings, prefetch_depth: int | None = None, pipeline: KerasPipeline | None = None
) -> "TileSettings":
    """How tile programs are compiled under the settings in force."""
    from tremula.ir.lowering.options import LoweringOptions  # lazy: slow to import
    from tremula.ir.run.tile_program import TileSettings

    config = config_in_force()
    products = _products(config)
    memory = products.get("availableMemoryProportion")
    n_chips = max(1, config.n_chips)
    ahead = 1 if config.optimizations.prefetch_data_streams else 0
    version = config.ipu_model.version
    recomputes = None if pipeline is None else pipeline.options.recomputes
    return TileSettings(
        chip=host.chip if version == _DEFAULT_VERSION else version,
        n_tiles=config.ipu_model.tiles_per_ipu,
        lowering=LoweringOptions(
            partials_type=products.get("partialsType"),
            available_memory={} if memory is None else dict.fromkeys(range(n_chips), float(memory)),
            rounds_stochastically=_rounds_stochastically(config),
            outline_threshold=1.0 if config.optimizations.enable_graph_outlining else None,
            n_io_tiles=config.io_tiles.num_io_tiles,
            prefetch_depth=ahead if prefetch_depth is None else prefetch_depth,
        ),
        engine_options=dict(config.compilation_poplar_options),
        recomputes_stages=config.allow_recompute if recomputes is None else recomputes,
        recomputation="popart" if config.allow_recompute else None,
    )


def checks_floats() -> bool:
    """Whether a step stops at the operation that makes a NaN or an infinity."""
    floats = config_in_force().floating_point_behaviour
    return floats.set_all or floats.inv or floats.div0 or floats.oflo


def _rounds_stochastically(config: IPUConfig) -> bool:
    floats = config.floating_point_behaviour
    return floats.set_all or floats.esr not in (False, StochasticRoundingBehaviour.OFF)


def _products(config: IPUConfig) -> Mapping[str, Any]:
    """Options of matrix products and convolutions, which are planned alike."""
    result: dict[str, Any] = {}
    for path in ("convolutions", "matmuls"):
        for name, value in getattr(config, path).poplar_options.items():
            if name not in _PRODUCT_OPTIONS:
                raise keras_error(
                    f"{path}.poplar_options has no {name!r}.", hint=suggest(name, _PRODUCT_OPTIONS)
                )
            if result.setdefault(name, value) != value:
                raise keras_error(
                    f"{name} is {result[name]!r} of convolutions and {value!r} of matmuls; here"
                    " products of both kinds are planned alike.",
                    hint="give both the same value",
                )
    return result
