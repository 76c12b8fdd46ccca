# SPDX-License-Identifier: Apache-2.0
# Arrays of CUDA.jl as operands, in place. Runs in a module that has CUDA and Tartan.

Tartan.device_operand(x::CUDA.StridedCuArray) =
    Tartan.DeviceMemory(x, pointer(x), strides(x), CUDA.deviceid(CUDA.device(x)))

# Work in the order of a task's own stream.
Tartan.Context(stream::CUDA.CuStream; options...) =
    Tartan.Context("cuda:$(CUDA.deviceid(CUDA.device()))"; stream = stream.handle, options...)
