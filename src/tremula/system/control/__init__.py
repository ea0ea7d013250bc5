"""The controller: its state, who may do what, partitions, leases, faults, telemetry."""
