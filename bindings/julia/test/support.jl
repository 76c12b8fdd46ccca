# SPDX-License-Identifier: Apache-2.0

# Devices to test with: those that TARTAN_TEST_DEVICES names, else the CPU and, where the build has made one, a dummy that
# poses as a GPU: memory of its own that nobody else can read. The library looks for devices once.
const DUMMY = haskey(ENV, "TARTAN_DUMMY_PLUGIN")
DUMMY && (ENV["TARTAN_PLUGIN_PATH"] = ENV["TARTAN_DUMMY_PLUGIN"])
const DEVICES = split(get(ENV, "TARTAN_TEST_DEVICES", DUMMY ? "cpu cuda" : "cpu"))

const TYPES = (Float64, Float32, Float16, BFloat16)

# Small integers and halves: exact in every type, and so are short sums of products.
exact(::Type{T}, n...) where {T} = T.(rand(-4:4, n...) ./ 2)
normal(::Type{T}, n...) where {T} = T.(randn(n...))

wide(x) = Float64.(x)

# The promised bound on |A * B - C|, entry by entry; for 16 bits the sums are of Float32, rounded once.
function within_bound(C, A, B; alpha = 1)
    T = eltype(C)
    k = size(A, 2)
    unit = (8 + 2sqrt(k)) * Float64(T in (Float16, BFloat16) ? eps(T) / 2 + eps(Float32) * 4 : eps(T))
    return all(abs.(wide(C) .- alpha .* (wide(A) * wide(B))) .<= unit .* abs(alpha) .* (abs.(wide(A)) * abs.(wide(B))))
end

random_layout(rows, cols, block, p = 0.4; heads = 1) =
    BlockLayout(rand(cld(rows, block[1]), cld(cols, block[2]), heads) .< p, block; shape = (rows, cols))

function random_matrix(::Type{T}, rows, cols, block, p = 0.4; make = exact, heads = 1) where {T}
    layout = random_layout(rows, cols, block, p; heads = heads)
    return BlockSparseMatrix(make(T, (heads == 1 ? (rows, cols) : (rows, cols, heads))...), layout)
end

# The failure of a call: its status and text. What does not fail is a test that fails.
function refusal(f)
    try
        f()
    catch error
        return error
    end
    return nothing
end

# Tests that a call is refused with a status, and that the text holds all the parts.
function refuses(f, status::Symbol, parts...)
    error = refusal(f)
    result = error isa TartanError && error.status == status && all(part -> occursin(part, error.message), parts)
    result || println("refused with: ", repr(error))
    return result
end
