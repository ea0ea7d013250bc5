"""What a codelet costs, counted from its code: slots per operation, data-dependent or not."""
