# SPDX-License-Identifier: Apache-2.0
module TartanJLD2Ext

using JLD2, Tartan
include("jld2.jl")

end
