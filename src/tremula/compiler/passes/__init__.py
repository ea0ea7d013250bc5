"""The passes, each in a file: verify, exchange, liveness, placement, cost, emit."""
