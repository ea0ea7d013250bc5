"""Graph → executable: verify, exchange, liveness, placement, cost, emit; files and their cache."""
