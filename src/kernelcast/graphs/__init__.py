"""Graphs: what a model sees of a program, and the store that keeps it."""
