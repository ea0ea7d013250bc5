"""Figures of the controller: partitions per second, many devices, kills, scrapes, launches."""
