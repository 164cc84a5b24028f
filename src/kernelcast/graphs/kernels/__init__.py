"""Compiled: passes over the table of a program, by numba."""
