"""Loops that a script writes itself: queues to and from the device, compiled functions."""
