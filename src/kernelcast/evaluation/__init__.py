"""Evaluation: metrics, tables and plots that are the same for every model."""
