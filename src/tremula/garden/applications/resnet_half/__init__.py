"""A residual network trained in half precision over replicas."""
