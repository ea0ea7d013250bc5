"""Figures of many chips: links, replicas, processes, the planner."""
