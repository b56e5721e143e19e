"""Recurrent state encoders for efficient neural combinatorial optimization."""

__version__ = "0.1.0"
