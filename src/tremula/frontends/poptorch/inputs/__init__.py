"""What a call is given: nested arguments as lists of tensors, and parsers for users' classes."""
