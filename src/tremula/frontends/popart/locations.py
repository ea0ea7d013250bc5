"""Where tensors are stored: in the memory of tiles or outside, whole or sharded over replicas."""

from dataclasses import dataclass, field

from tremula.frontends.popart.enums import ReplicatedTensorSharding, TensorStorage, TileSet
from tremula.frontends.popart.groups import CommGroup
from tremula.ir.locations import Location


@dataclass
class TensorLocation:
    """Where one tensor is stored, and which tiles load and store it."""

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
        """The choices as integers, the form of a node's attribute."""
        choices = (
            self.storage,
            self.loadTileSet,
            self.storageTileSet,
            self.replicatedTensorSharding,
        )
        return [int(choice) for choice in choices]


@dataclass
class TensorLocationSettings:
    """The location of all tensors of a kind; smaller ones stay whole and on the chip."""

    location: TensorLocation = field(default_factory=TensorLocation)
    minElementsForOffChip: int = 2
    minElementsForReplicatedTensorSharding: int = 8192

    def __post_init__(self) -> None:
        if isinstance(self.location, TensorStorage):
            self.location = TensorLocation(self.location)

    @property
    def resolved(self) -> Location:
        """The location as a compiled step takes it."""
        where = self.location
        return Location(
            is_off_chip=where.storage == TensorStorage.OffChip,
            least_off_chip=self.minElementsForOffChip,
            is_sharded=where.replicatedTensorSharding == ReplicatedTensorSharding.On,
            least_sharded=self.minElementsForReplicatedTensorSharding,
            uses_io_tiles=where.loadTileSet == TileSet.IO,
            stores_on_io_tiles=where.storageTileSet == TileSet.IO,
        )
