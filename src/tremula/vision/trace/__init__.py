"""The system trace: recorded, stored, read and exported."""
