"""Tuning: the search for a fast schedule, driven by a cost model, and what came of it."""
