"""A vision transformer learns lying and standing bars."""
