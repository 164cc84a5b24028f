"""Whole networks and the user's own programs as workloads.

`catalogue` and `own` say what is wanted and cost nothing; `isolation` runs `extract` in a process of its own. Only that
and `torch_contender`, which times a network with torch, load torch. `saved` is a network as files, which needs none.
"""
