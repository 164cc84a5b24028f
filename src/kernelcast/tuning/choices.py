"""What a search can be told by name. OmegaConf knows the members by their names."""

from enum import StrEnum


class Strategy(StrEnum):
    """What proposes programs."""

    evolutionary = "evolutionary"
    """TVM's evolutionary search with a cost model."""

    replay_trace = "replay_trace"
    """Random decisions; no cost model is asked."""


class Choice(StrEnum):
    """Which task has the next round."""

    gradient = "gradient"
    """The one that promises most for the whole, see `scheduling.next_task`."""

    round_robin = "round_robin"
    """All in turn."""
