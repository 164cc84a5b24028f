"""Measuring: workloads, sampled schedules, isolated builds and runs, a journal of every try."""
