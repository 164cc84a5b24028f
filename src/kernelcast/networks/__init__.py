"""Whole networks and the user's own programs as workloads.

`catalogue` and `own` say what is wanted and cost nothing; `isolation` runs `extract` in a process of its own, the only
one that loads torch.
"""
