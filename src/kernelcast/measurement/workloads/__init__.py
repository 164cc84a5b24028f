"""The operators to measure: each function makes one unscheduled workload and can be a Hydra `_target_`.

Sizes are positive integers. Data are float32 unless `dtype` says otherwise; products and convolutions also take int8,
which they add up in int32. Kernel, stride, padding and dilation are an integer for every dimension of an image or a
list with one for each; padding is the same on both sides. Every mistake is one `ConfigError` that names the workload
and the key.
"""

from kernelcast.measurement.workloads.attention import attention
from kernelcast.measurement.workloads.construction import from_module
from kernelcast.measurement.workloads.convolutions import conv1d, conv2d, conv2d_bias_relu, conv3d, depthwise_conv2d
from kernelcast.measurement.workloads.elementwise import elementwise
from kernelcast.measurement.workloads.normalisation import batch_norm, layer_norm, log_softmax, rms_norm, softmax
from kernelcast.measurement.workloads.pooling import global_pool2d, pool1d, pool2d, pool3d
from kernelcast.measurement.workloads.products import batch_matmul, dense, matmul
from kernelcast.measurement.workloads.reductions import reduction
from kernelcast.measurement.workloads.sizes import MOST_ELEMENTS
from kernelcast.measurement.workloads.sweeps import sweep
from kernelcast.measurement.workloads.transposed import conv1d_transpose, conv2d_transpose, conv3d_transpose

__all__ = [
    "MOST_ELEMENTS",
    "attention",
    "batch_matmul",
    "batch_norm",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_bias_relu",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "dense",
    "depthwise_conv2d",
    "elementwise",
    "from_module",
    "global_pool2d",
    "layer_norm",
    "log_softmax",
    "matmul",
    "pool1d",
    "pool2d",
    "pool3d",
    "reduction",
    "rms_norm",
    "softmax",
    "sweep",
]
