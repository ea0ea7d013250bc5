"""What a program consists of: tensors, operations, graphs, and contexts while they are made."""
