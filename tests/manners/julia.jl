# SPDX-License-Identifier: Apache-2.0
# Tries every operation of operations.txt with SparseArrays and with Tartan on the same data, and prints one JSON object a line, as
# python.py does.
using LinearAlgebra, Random, Serialization, SparseArrays, Statistics
import Tartan
using Tartan: BlockSparseMatrix, BlockLayout, blocksize, density, fill_normal!, nblocks, pattern, permute_blocks, project, slice, spmm!

const KEPT = kron([1 0 1; 0 1 0; 1 1 1], ones(2, 2))
const KEPT_TOO = kron([0 0 1; 1 1 0; 0 1 1], ones(2, 2))
# Fixed numbers, so that the table does not depend on the version of Julia's generator.
number(i, j) = round(2 * sin(3i + 7j + i * j / 5); digits = 3)
const DENSE = [number(i, j) for i in 1:6, j in 1:6] .* KEPT
const OTHER = [number(i + 8, j + 3) for i in 1:6, j in 1:6] .* KEPT_TOO
const SPD = DENSE * DENSE' + 9I

# id => the line for both, or (SparseArrays', Tartan's). W and V are matrices with blocks of 2, P is symmetric and positive definite, S a
# SparseMatrixCSC. The last statement is the result.
const LINES = [
    "negate" => "-W", "scale_number" => "2W", "divide_number" => "W / 2", "scale_in_place" => "W .*= 2; W", "add" => "W + W", "subtract" => "W - W",
    "add_other_layout" => "W + V", "add_in_place" => "W .+= 0.5 .* copy(W); W", "add_peer" => "W + S", "diagonal_minus" => "I - 0.5W",
    "add_dense" => "W + X", "add_number" => "W .+ 1", "multiply" => "W .* V", "multiply_dense" => "W .* X", "divide_dense" => "W ./ (1 .+ X .* X)",
    "maximum" => "max.(W, V)", "minimum" => "min.(W, V)", "maximum_number" => "max.(W, 0)", "power" => "W .^ 2", "power_matrix" => "W^3", "abs" => "abs.(W)",
    "sign" => "sign.(W)", "sqrt" => "sqrt.(abs.(W))", "round" => "round.(W; digits = 1)", "function" => "tanh.(W)", "conjugate" => "conj(W)",
    "broadcast" => "2 .* W .- V ./ 3 .+ W .* V", "equal" => "W .== V", "not_equal" => "W .!= V", "less" => "W .< V", "greater_number" => "W .> 0.5",
    "same" => "W == copy(W)", "close" => "W ≈ copy(W)", "symmetric" => "issymmetric(P)",
    "matvec" => "W * x", "matmat" => "W * X", "left" => "x' * W", "left_matmat" => "X * W", "transpose_matvec" => "W' * x", "dot" => "dot(W, V)",
    "integers" => "W * (0:5)", "single" => "W * Float32.(x)", "booleans" => "W * (x .> 0)", "complex" => "W * (x .+ 2im .* x)", "sparse_product" => "W * S",
    "block_product" => "W * V", "gram" => "W' * W", "in_place_product" => "mul!(y, W, x)", "scale_rows" => "Diagonal(x) * W", "scale_cols" => "W * Diagonal(x)",
    "scale_both" => "Diagonal(x) * W * Diagonal(x)", "row_normalize" => "W ./ sum(W; dims = 2)", "sum" => "sum(W)", "row_sums" => "sum(W; dims = 2)",
    "col_sums" => "sum(W; dims = 1)", "mean" => "mean(W)", "row_means" => "mean(W; dims = 2)", "max" => "maximum(W)", "min" => "minimum(W)",
    "row_max" => "maximum(W; dims = 2)", "range" => "extrema(W)", "argmax" => "Tuple(argmax(W))", "count_nonzero" => "count(!iszero, W)", "norm_1" => "opnorm(W, 1)",
    "norm_inf" => "opnorm(W, Inf)", "norm_fro" => "norm(W)", "norm_rows" => "sqrt.(sum(abs2, W; dims = 2))", "norm_2" => "opnorm(W)", "trace" => "tr(W)",
    "any_nan" => "any(isnan, W)", "diagonal" => "diag(W)", "diagonal_k" => "diag(W, -1)", "set_diagonal" => "P[diagind(P)] = x; P", "add_diagonal" => "W + 2I",
    "element" => "W[2, 6]", "element_negative" => "W[end, 1]", "set_element" => "W[2, 6] = 3; W", "set_zero_outside" => "W[1, 3] = 0; W",
    "set_outside" => "W[1, 3] = 3; W", "rows" => "W[2:4, :]", "cols" => "W[:, 4:end]", "part" => "W[2:4, 3:5]", "row" => "W[4, :]", "col" => "W[:, 4]",
    "row_list" => "W[[5, 1, 1], :]", "part_list" => "W[[5, 1], [2, 6, 6]]", "booleans_rows" => "W[x .> 0, :]",
    "elements_list" => "W[[CartesianIndex(1, 2), CartesianIndex(5, 2), CartesianIndex(6, 1)]]", "mask_elements" => "W[X .> 0.5]",
    "set_part" => "W[5:6, 3:5] = X[5:6, 3:5]; W", "set_list" => "W[[CartesianIndex(1, 2), CartesianIndex(5, 6)]] = [7, 8]; W", "set_row" => "W[5, :] = x; W",
    "blocks_range" => ("W[3:6, :]", "slice(W, 2:3, 1:3)"), "nonzeros" => ("findnz(W)", "findnz(dropzeros(sparse(W)))"), "stored" => "nnz(W)", "values" => "nonzeros(W) .*= 2; W",
    "iterate" => "[sum(W[i, :]) for i in 1:6]", "vstack" => "[W; V]", "hstack" => "[W V]", "block_diag" => "blockdiag(W, V)",
    "block_grid" => ("[W spzeros(6, 6); spzeros(6, 6) V]", "[W zero(W); zero(V) V]"), "kron" => "kron(W, X[1:2, 1:3])", "kron_first" => "kron(X[1:2, 1:3], W)",
    "kron_sparse" => "kron(W, V)", "transpose" => "copy(transpose(W))", "lower" => "tril(W)", "upper" => "triu(W, 1)", "drop_zeros" => "dropzeros(W - W)",
    "reshape" => "reshape(W, 3, 12)", "reblock" => ("copy(W)", "BlockSparseMatrix(W, 3)"), "permute" => ("W[[5, 6, 1, 2, 3, 4], :]", "permute_blocks(W; rows = [3, 1, 2])"),
    "cut" => ("nnz(W[1:3, 1:5])", "nnz(cut(W.layout, 3, 5))"), "boundaries" => ("sparse([X[1:1, 1:4] X[1:1, 5:6]; X[2:6, 1:4] X[2:6, 5:6]])", "BlockSparseMatrix(X; rows = [0, 1, 6], cols = [0, 4, 6])"),
    "boundaries_product" => ("sparse(X) * x", "BlockSparseMatrix(X; rows = [0, 1, 6], cols = [0, 4, 6]) * x"),
    "boundaries_kept" => ("", "Tuple(boundaries(BlockSparseMatrix(X; rows = [0, 1, 6], cols = [0, 4, 6])))"),
    "add_at" => ("W + sparse([1, 6, 1], [2, 6, 2], [1.0, 2, 4], 6, 6)", "add!(W, Assembly(W.layout, [1, 6, 1], [2, 6, 2]; elements = true), [1.0, 2, 4])"),
    "add_plan" => ("W + sparse([1, 6, 1], [2, 6, 2], x[1:3], 6, 6)", "plan = Assembly(W.layout, [1, 6, 1], [2, 6, 2]; elements = true); add!(W, plan, x[1:3])"),
    "add_blocks" => ("W + kron(sparse([3, 3], [2, 2], 1, 3, 3), X[1:2, 1:2])", "add!(W, Assembly(W.layout, [3, 3], [2, 2]), cat(X[1:2, 1:2], X[1:2, 1:2]; dims = 3))"),
    "blocks_at" => ("kron(sparse([3, 1, 3], [2, 3, 2], 1, 3, 3), X[1:2, 1:2])", "BlockSparseMatrix([3, 1, 3], [2, 3, 2], cat(X[1:2, 1:2], X[1:2, 1:2], X[1:2, 1:2]; dims = 3), (6, 6))"),
    "copy" => "copy(W)", "from_dense" => ("sparse(X)", "BlockSparseMatrix(X, 2)"),
    "from_coo" => ("sparse([1, 2, 3, 4, 4, 1], [1, 6, 3, 4, 2, 2], x, 6, 6)", "BlockSparseMatrix(sparse([1, 2, 3, 4, 4, 1], [1, 6, 3, 4, 2, 2], x, 6, 6), 2)"),
    "from_csr" => ("copy(S')", "BlockSparseMatrix(S', 2)"), "from_csc" => ("copy(S)", "BlockSparseMatrix(S, 2)"), "from_peer" => ("copy(S)", "BlockSparseMatrix(S, 2)"),
    "identity" => ("sparse(1.0I, 6, 6)", "BlockSparseMatrix(Diagonal(ones(6)), 2)"),
    "random" => ("size(sprandn(6, 6, 0.5))", "size(fill_normal!(BlockSparseMatrix{Float64}(pattern(:random, (6, 6), 2; density = 0.5))))"),
    "dense" => "Matrix(W)", "dense_unasked" => "Matrix(W) \\ x", "csr" => "copy(sparse(W)')", "csc" => "sparse(W)", "coo" => ("findnz(sparse(W))", "findnz(dropzeros(sparse(W)))"),
    "peer" => "sparse(W)", "single_precision" => "Float32.(W)", "integers_type" => "round.(Int, W)", "complex_type" => "complex(W)",
    "least_squares" => "qr(sparse([W; V])) \\ [x; x]", "norm_estimate" => "opnorm(P, 1)", "solve" => "P \\ x", "factor" => "lu(P) \\ x", "determinant" => "det(P)",
    "eigenvalues" => "eigvals(Symmetric(Matrix(P)))[1:2]", "singular_values" => "svdvals(Matrix(W))[1:2]",
    "save" => ("serialize(path, W); deserialize(path)", "Tartan.save(path * \".h5\", \"w\" => W); Tartan.load(path * \".h5\", \"w\")"),
    "append" => ("", "Tartan.save(path * \".h5\", \"w\" => W); Tartan.save(path * \".h5\", \"v\" => V; append = true); Tartan.load(path * \".h5\", \"w\") + Tartan.load(path * \".h5\", \"v\")"),
    "replace" => ("", "Tartan.save(path * \".h5\", \"w\" => W, \"v\" => V); Tartan.save(path * \".h5\", \"w\" => 2W; append = true); Tartan.load(path * \".h5\", \"w\")"),
    "load_rows" => ("serialize(path, W); deserialize(path)[3:6, :]", "Tartan.save(path * \".h5\", \"w\" => W); Tartan.read_rows(Tartan.BlockFile(path * \".h5\"), \"w\", 3:6)"),
    "serialize" => "serialize(path, W); deserialize(path)", "print" => "sprint(show, W) isa String", "size" => "size(W), ndims(W), length(W)",
    "threads" => ("", "Tartan.set_num_threads(1); n = Tartan.get_num_threads(); Tartan.set_num_threads(0); n"),
    "threads_product" => ("W * x", "spmm!(y, W, x; context = Tartan.Context(\"cpu\"; threads = 1))"),
]

const NOT_HERE = [
    "truth" => "Julia does not accept a matrix as a condition", "resize" => "SparseArrays does not change the shape of a matrix", "cg" => "packages such as IterativeSolvers have them, and need only mul! and size",
    "gmres" => "packages such as IterativeSolvers have them, and need only mul! and size", "eigenvalues_general" => "packages such as Arpack have them, and need only mul! and size",
    "exponential" => "packages such as ExponentialUtilities have them, and need only mul! and size", "names" => "SparseArrays has no names", "names_kept" => "SparseArrays has no names",
    (id => "only NumPy and SciPy have them" for id in ("peer_class", "as_array", "preconditioned", "triangular", "solve_unasked", "incomplete",
                                                       "save_peer", "save_dense", "deep_copy"))...,
]

# Names for a line, made anew, since lines may write.
function place_for(make, folder)
    place = Module()
    Core.eval(place, :(using LinearAlgebra, Serialization, SparseArrays, Statistics))
    Core.eval(place, :(const Tartan = $Tartan))
    for name in (:Assembly, :BlockSparseMatrix, :add!, :boundaries, :cut, :fill_normal!, :pattern, :permute_blocks, :slice, :spmm!)
        Core.eval(place, :(const $name = $(getfield(Tartan, name))))
    end
    X = [abs(number(i + 1, 2j)) / 2 for i in 1:6, j in 1:6]
    x = [number(i, 11) for i in 1:6]
    for (name, value) in (:W => make(DENSE), :V => make(OTHER), :P => make(SPD), :S => sparse(OTHER), :X => X, :x => x, :y => zeros(6),
                          :path => joinpath(folder, "m"))
        Core.eval(place, :($name = $value))
    end
    return place
end

is_sparse(x) = x isa AbstractArray && (x isa AbstractSparseArray || x isa Tartan.BlockSparse)
kind_of(x) = is_sparse(x) ? "sparse" : x isa Union{AbstractArray, Tuple} ? "dense" : "number"

# What a line gives: kind, value, text.
function attempt(line, make, folder)
    isempty(line) && return ("nothing", nothing, "")
    try
        value = include_string(place_for(make, folder), line)
        return (kind_of(value), value, "")
    catch error
        cause = error isa LoadError ? error.error : error
        text = first(split(sprint(showerror, cause), "\n"))
        return (cause isa MethodError && make !== peer ? "missing" : "refused", nothing, text)
    end
end

peer(dense) = sparse(dense)
ours(dense) = BlockSparseMatrix(dense, 2)

alike(a::AbstractArray, b::AbstractArray) = size(a) == size(b) && Array(a) ≈ Array(b)
alike(a::Tuple, b::Tuple) = length(a) == length(b) && all(map(alike, a, b))
alike(a, b) = a isa Number && b isa Number ? a ≈ b : a == b

json(x::Bool) = string(x)
json(x::AbstractString) = sprint(io -> (print(io, '"'); foreach(c -> print(io, c == '"' ? "\\\"" : c == '\\' ? "\\\\" : isprint(c) && isascii(c) ? c :
    "\\u" * string(UInt16(c); base = 16, pad = 4)), x); print(io, '"')))
print_row(pairs...) = println("{", join((json(key) * ": " * json(value) for (key, value) in pairs), ", "), "}")

function main()
    mktempdir() do folder
        for (id, lines) in LINES
            theirs, mine = lines isa String ? (lines, lines) : lines
            peer_kind, wanted, _ = attempt(theirs, peer, folder)
            kind, found, text = attempt(mine, ours, folder)
            right = wanted === nothing || found === nothing || alike(wanted, found)
            print_row("id" => id, "peer" => theirs, "tartan" => mine, "peer_result" => peer_kind, "result" => kind, "right" => right, "text" => text)
        end
    end
    for (id, reason) in NOT_HERE
        print_row("id" => id, "not_here" => reason)
    end
end

main()
