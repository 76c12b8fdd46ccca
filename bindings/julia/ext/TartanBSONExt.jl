# SPDX-License-Identifier: Apache-2.0
module TartanBSONExt

using BSON, Tartan
include("bson.jl")

end
