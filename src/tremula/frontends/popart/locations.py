"""Where tensors are kept: in the memory of tiles or outside, whole or shared out over replicas."""

from dataclasses import dataclass, field

from tremula.frontends.popart.enums import ReplicatedTensorSharding, TensorStorage, TileSet
from tremula.frontends.popart.groups import CommGroup


@dataclass
class TensorLocation:
    """A place for a tensor."""

    storage: TensorStorage = TensorStorage.OnChip
    loadTileSet: TileSet = TileSet.Compute
    storageTileSet: TileSet = TileSet.Compute
    replicatedTensorSharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off
    shardingDomain: CommGroup = field(default_factory=CommGroup)

    def __post_init__(self) -> None:
        # TensorLocation(storage, sharding) leaves out the tiles.
        if isinstance(self.loadTileSet, ReplicatedTensorSharding):
            self.replicatedTensorSharding, self.loadTileSet = self.loadTileSet, TileSet.Compute

    def numbers(self) -> list[int]:
        """As a node's attribute holds it."""
        choices = (
            self.storage,
            self.loadTileSet,
            self.storageTileSet,
            self.replicatedTensorSharding,
        )
        return [int(choice) for choice in choices]


@dataclass
class TensorLocationSettings:
    """The place of all tensors of a kind that are not too small for it."""

    location: TensorLocation = field(default_factory=TensorLocation)
    minElementsForOffChip: int = 2
    minElementsForReplicatedTensorSharding: int = 8192

    def __post_init__(self) -> None:
        if isinstance(self.location, TensorStorage):
            self.location = TensorLocation(self.location)
