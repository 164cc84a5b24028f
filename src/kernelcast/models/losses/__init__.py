"""What the learned models minimise, and what follows from it: what they predict and what boosted trees aim at."""

from kernelcast.models.losses.combined import Combined
from kernelcast.models.losses.listwise import LambdaRank, ListMLE
from kernelcast.models.losses.pairwise import PairwiseRank
from kernelcast.models.losses.pointwise import LogMSE, RelativeThroughput
from kernelcast.models.losses.protocol import Aim, Loss, Scale

__all__ = ["Aim", "Combined", "LambdaRank", "ListMLE", "LogMSE", "Loss", "PairwiseRank", "RelativeThroughput", "Scale"]
