"""Whether a compiled model holds its device, and which model holds which device."""

import weakref

from tremula.frontends.poptorch.enums import ConnectionType
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.executor.placement import uses_ipu_model
from tremula.frontends.poptorch.options.options import Options

# Devices that a model asked for by number, and the attachment that holds each.
_holders: "weakref.WeakValueDictionary[int, Attachment]" = weakref.WeakValueDictionary()


class Attachment:
    """The device of one compiled model."""

    def __init__(self, options: Options):
        self.kind = ConnectionType(options.connection_type)
        self._ipu_id: int | None = options.ipu_id if options.exists("ipu_id") else None
        self.is_attached = False
        if self.kind is ConnectionType.Never and uses_ipu_model(options):
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

    def attach(self) -> None:
        """Take the device."""
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
        self.is_attached = True

    def detach(self) -> None:
        """Leave the device to others."""
        if not self.is_attached:
            raise createPoptorchError("Device is not attached")
        self.release()

    def release(self) -> None:
        self.is_attached = False
        if self._ipu_id is not None and _holders.get(self._ipu_id) is self:
            del _holders[self._ipu_id]


def poptorchAtExit() -> None:  # noqa: N802
    """Release all devices; Python calls it at exit."""
    for holder in list(_holders.values()):
        holder.release()
