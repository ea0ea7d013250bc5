"""Trees of things by dotted names: tensors, groups of replicas, variables that are to be made."""
