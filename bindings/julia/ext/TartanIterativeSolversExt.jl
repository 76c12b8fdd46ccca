# SPDX-License-Identifier: Apache-2.0
module TartanIterativeSolversExt

using IterativeSolvers, Tartan
include("iterative_solvers.jl")

end
