"""Sequences, the scheduler that puts them into steps, and the engine that runs the steps."""
