"""Whether a compiled model is attached to its device, and which model uses which device."""

import weakref
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tremula.frontends.poptorch.enums import ConnectionType
from tremula.frontends.poptorch.exceptions import createPoptorchError, poptorch_errors
from tremula.frontends.poptorch.executor.placement import uses_ipu_model
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.shared.device_lease import LeasedDevice

if TYPE_CHECKING:  # importing the tile compiler is slow
    from tremula.ir.run.tile_program import TileProgram

# The attachment of each device that a model requested by number.
_holders: "weakref.WeakValueDictionary[int, Attachment]" = weakref.WeakValueDictionary()


class Attachment:
    """The device of one compiled model."""

    def __init__(self, options: Options):
        self.is_modelled = uses_ipu_model(options)
        self._lease = LeasedDevice()
        self.kind = ConnectionType(options.connection_type)
        self._ipu_id: int | None = options.ipu_id if options.exists("ipu_id") else None
        self.is_attached = False
        if self.kind is ConnectionType.Never and self.is_modelled:
            raise createPoptorchError(
                "The IPU model does not support poptorch.ConnectionType.Never: it has "
                "no device to stay detached from"
            )
        if self.kind is ConnectionType.Never and self._ipu_id is not None:
            raise createPoptorchError(
                "Offline compilation targeting a specific id not supported: leave out useIpuId, or"
                " choose another poptorch.Options().connectionType"
            )

    def check_online(self) -> None:
        """Raise for a model that can be compiled, but not run."""
        assert self.kind is not ConnectionType.Never, (
            "Trying to run a model on an offline device (ConnectionType.Never): compile it for a "
            "device that is here, with another poptorch.Options().connectionType"
        )

    def attach(self, n_ipus: int = 1) -> None:
        """Attach to the device; on a partition, to `n_ipus` chips that no other program uses."""
        self.check_online()
        if self.is_attached:
            raise createPoptorchError("Device is already attached")
        if self._ipu_id is not None:
            holder = _holders.get(self._ipu_id)
            if holder is not None and holder.is_attached:
                raise createPoptorchError(
                    f"Failed to acquire device {self._ipu_id}: another model is attached to it. "
                    "Call detachFromDevice() or destroy() on that one first."
                )
            _holders[self._ipu_id] = self
        if not self.is_modelled:
            with poptorch_errors():
                self._lease.acquire(n_ipus, self._ipu_id)
        self.is_attached = True

    def running(self, tiles: "TileProgram | None") -> AbstractContextManager[None]:
        """Around a call of the model."""
        return self._lease.running(tiles)

    def detach(self) -> None:
        """Leave the device to others."""
        if not self.is_attached:
            raise createPoptorchError("Device is not attached")
        self.release()

    def release(self) -> None:
        self.is_attached = False
        self._lease.release()
        if self._ipu_id is not None and _holders.get(self._ipu_id) is self:
            del _holders[self._ipu_id]


def poptorchAtExit() -> None:  # noqa: N802
    """Release all devices; Python calls it at exit."""
    for holder in list(_holders.values()):
        holder.release()
