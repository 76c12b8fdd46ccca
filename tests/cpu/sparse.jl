# SPDX-License-Identifier: Apache-2.0
# sparse.jl FOLDER SIZE N: the sum of a product by SparseArrays, then for each line of input the processor time of another.
using LinearAlgebra, SparseArrays

function numbers(T, name)
    path = joinpath(ARGS[1], name)
    return read!(path, Vector{T}(undef, filesize(path) ÷ sizeof(T)))
end

const size, n = parse.(Int, ARGS[2:3])
const a = SparseMatrixCSC(size, size, numbers(Int, "pointers"), numbers(Int, "rows"), numbers(Float64, "values"))
const b = reshape(numbers(Float64, "b"), size, n)
const c = Matrix{Float64}(undef, size, n)

function seconds()
    start = ccall(:clock, Clong, ())
    mul!(c, a, b)
    return (ccall(:clock, Clong, ()) - start) / 1_000_000
end

function main()
    seconds()
    println(sum(c))
    flush(stdout)
    while !eof(stdin)
        readline()
        println(seconds())
        flush(stdout)
    end
end

main()
