"""The only place that knows the faults of the TVM version in use and works around them.

Everything here loads TVM on first use, so importing this package costs nothing.
"""

from kernelcast.tvm_compat.assembly import assembly, listing_of, require_x86
from kernelcast.tvm_compat.cuda import GpuDescription, describe_gpu
from kernelcast.tvm_compat.exceptions import keep_exceptions
from kernelcast.tvm_compat.loading import (
    INTRINSICS,
    INTRINSICS_OF_MACHINE,
    TESTED_VERSIONS,
    check_versions,
    load_intrinsics,
    load_tvm,
    tvm_versions,
)
from kernelcast.tvm_compat.mlp_model import predict_mlp, store_scale, train_mlp
from kernelcast.tvm_compat.modules import (
    is_scheduled,
    layout_changes,
    module_json,
    parse_module,
    replayed_schedule,
    runnable_module,
    scheduled_module,
    structural_key,
)
from kernelcast.tvm_compat.online_models import online_mlp, online_random, online_xgb
from kernelcast.tvm_compat.store_groups import StoreGroup
from kernelcast.tvm_compat.targets import (
    available_cores,
    check_runs_here,
    device_of,
    is_of_this_machine,
    make_target,
    missing_instructions,
    prepare_for,
    reference_target,
    resolve_target,
    vector_bits,
)
from kernelcast.tvm_compat.traces import trace_fault
from kernelcast.tvm_compat.xgb_model import StoreRows, train_xgb

__all__ = [
    "INTRINSICS",
    "INTRINSICS_OF_MACHINE",
    "TESTED_VERSIONS",
    "GpuDescription",
    "StoreGroup",
    "StoreRows",
    "assembly",
    "available_cores",
    "check_runs_here",
    "check_versions",
    "describe_gpu",
    "device_of",
    "is_of_this_machine",
    "is_scheduled",
    "keep_exceptions",
    "layout_changes",
    "listing_of",
    "load_intrinsics",
    "load_tvm",
    "make_target",
    "missing_instructions",
    "module_json",
    "online_mlp",
    "online_random",
    "online_xgb",
    "parse_module",
    "predict_mlp",
    "prepare_for",
    "reference_target",
    "replayed_schedule",
    "require_x86",
    "resolve_target",
    "runnable_module",
    "scheduled_module",
    "store_scale",
    "structural_key",
    "trace_fault",
    "train_mlp",
    "train_xgb",
    "tvm_versions",
    "vector_bits",
]
