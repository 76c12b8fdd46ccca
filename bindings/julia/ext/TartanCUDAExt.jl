# SPDX-License-Identifier: Apache-2.0
module TartanCUDAExt

using CUDA, Tartan
include("cuda.jl")

end
