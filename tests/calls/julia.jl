# SPDX-License-Identifier: Apache-2.0
# What a call costs from Julia: one JSON row a case (tests/calls/table.py says what is in it). Ours, the same call of C with
# everything prepared, and SparseArrays take turns in one process. Ours may cost 200 ns more than C's, and allocate nothing.
using LinearAlgebra, SparseArrays, Statistics, Tartan
using Tartan: Raw, as_matrix, input, output

const ROUNDS = isempty(ARGS) ? 400 : parse(Int, ARGS[1])
const ABOVE_C = 0.2 # microseconds

# Microseconds of a call: `count` calls at once.
function timed(f, count)
    begun = time_ns()
    for _ in 1:count
        f()
    end
    return (time_ns() - begun) / 1e3 / count
end

# The least and the median time of each function, in turns of about 200 microseconds.
function measure(arms...)
    counts = map(arms) do f
        timed(f, 50)
        max(1, round(Int, 200 / timed(f, 20)))
    end
    times = map(_ -> Float64[], arms)
    for _ in 1:ROUNDS
        map((f, count, found) -> push!(found, timed(f, count)), arms, counts, times)
    end
    return map(found -> (minimum(found), median(found)), times)
end

# tartan_spmm itself: descriptors, handles and context are there already.
function c_call(C, A, B, transpose)
    mul!(C, transpose ? A' : A, B) # makes the context
    b, c = Ref(input(as_matrix, B, "B", eltype(A)).array), Ref(output(as_matrix, C, "C", eltype(A)).array)
    context, matrix, address = Tartan.SPARES[1].address, A.handle.address, Raw.address_of_tartan_spmm[]
    options = transpose ? "transpose=1" : ""
    return () -> GC.@preserve A B C ccall(address, Int32,
        (Ptr{Raw.tartan_context}, Ptr{Raw.tartan_matrix}, Ptr{Raw.tartan_array}, Ptr{Raw.tartan_array}, Float64, Float64,
         Cstring, Ptr{Raw.tartan_array}), context, matrix, C_NULL, b, 1.0, 0.0, options, c)
end

allocated(f) = (f(); @allocated f())

function report(case, ours, c, peer)
    bytes = allocated(ours)
    bytes == 0 || error("$case allocates $bytes bytes, expected none")
    (us, median_us), (c_us, _), (peer_us, peer_median_us) = measure(ours, c, peer)
    numbers = ("us" => us, "median_us" => median_us, "floor_us" => c_us + ABOVE_C, "goal_us" => c_us + ABOVE_C,
               "peer_us" => peer_us, "peer_median_us" => peer_median_us)
    println("{\"language\": \"julia\", \"case\": \"$case\", \"peer\": \"SparseArrays\"",
            (", \"$name\": $(round(x; digits = 3))" for (name, x) in numbers)..., "}")
end

function main()
    dense = Matrix(Diagonal([1.0, 2, 3, 4]))
    A, S = BlockSparseMatrix(dense, 2), sparse(dense)
    X, C, x, y = ones(4, 2), zeros(4, 2), ones(4), zeros(4)
    report("mul!(C, A, X), 4 x 4", () -> mul!(C, A, X), c_call(C, A, X, false), () -> mul!(C, S, X))
    report("mul!(C, A', X), 4 x 4", () -> mul!(C, A', X), c_call(C, A, X, true), () -> mul!(C, S', X))
    report("spmm!(C, A, X), 4 x 4", () -> spmm!(C, A, X), c_call(C, A, X, false), () -> mul!(C, S, X))
    report("mul!(y, A, x), 4 x 4", () -> mul!(y, A, x), c_call(y, A, x, false), () -> mul!(y, S, x))
end

main()
