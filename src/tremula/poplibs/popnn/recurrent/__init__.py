"""Recurrent nets: LSTM, GRU and vanilla cells over shared loops."""
