"""What a user will like, from tables beside the chip."""
