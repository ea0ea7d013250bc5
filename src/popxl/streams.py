"""popxl.streams: streams between host and device."""

from tremula.frontends.popxl.core.streams import (
    DeviceToHostStream,
    HostToDeviceStream,
    d2h_stream,
    h2d_stream,
)
