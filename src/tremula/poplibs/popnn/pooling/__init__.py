"""Pooling over windows: geometry, plan, codelets, samples."""
