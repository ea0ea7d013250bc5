"""Programs of the structure of public PopXL applications, each checked against PyTorch."""
