"""How an input moves: to which tiles, when, and whether replicas share it."""

from tremula.frontends.popart.enums import ExchangeStrategy, ReplicatedStreamMode, TileSet


class InputSettings:
    """`InputSettings(tiles, strategy)` or `InputSettings(ReplicatedStreamMode.Broadcast)`."""

    def __init__(
        self,
        tileSet: TileSet | ReplicatedStreamMode = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
        replicatedStreamMode: ReplicatedStreamMode = ReplicatedStreamMode.Replicate,
    ):
        if isinstance(tileSet, ReplicatedStreamMode):
            replicatedStreamMode, tileSet = tileSet, TileSet.Compute
        self._tiles, self._strategy, self._mode = tileSet, exchangeStrategy, replicatedStreamMode

    def tileSet(self) -> TileSet:
        """The tiles that receive the input."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When the input moves."""
        return self._strategy

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """Whether replicas read micro-batches of their own."""
        return self._mode

    @property
    def is_broadcast(self) -> bool:
        """Whether all replicas read the same micro-batch."""
        return self._mode is ReplicatedStreamMode.Broadcast
