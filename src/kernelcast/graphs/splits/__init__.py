"""Which programs a model learns from, which decide when it stops, and which it is judged on.

rows = Rows.of(programs, workloads)
split = make_split(splitter, rows)   # one of conf/splitter; checked for leaks
write_split(folder, name, split, rows, data_hash, made_by)
"""

from kernelcast.graphs.splits.files import (
    SPLITS_FOLDER,
    read_split,
    read_split_hash,
    split_files,
    split_names,
    write_split,
)
from kernelcast.graphs.splits.kind import KindSplit
from kernelcast.graphs.splits.leaks import check_no_leak, make_split
from kernelcast.graphs.splits.limited import LimitedSplit
from kernelcast.graphs.splits.network import NetworkSplit
from kernelcast.graphs.splits.protocol import PARTS, Rule, Split, Splitter
from kernelcast.graphs.splits.random import RandomSplit
from kernelcast.graphs.splits.rows import Rows, SplitWorkload
from kernelcast.graphs.splits.target import TargetSplit
from kernelcast.graphs.splits.transfer import TransferSplit
from kernelcast.graphs.splits.workload import WorkloadSplit

__all__ = [
    "PARTS",
    "SPLITS_FOLDER",
    "KindSplit",
    "LimitedSplit",
    "NetworkSplit",
    "RandomSplit",
    "Rows",
    "Rule",
    "Split",
    "SplitWorkload",
    "Splitter",
    "TargetSplit",
    "TransferSplit",
    "WorkloadSplit",
    "check_no_leak",
    "make_split",
    "read_split",
    "read_split_hash",
    "split_files",
    "split_names",
    "write_split",
]
