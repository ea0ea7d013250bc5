"""Pooling over windows: geometry, plan, codelets, operations."""
