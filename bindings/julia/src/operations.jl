# SPDX-License-Identifier: Apache-2.0
# One call for all operations that the C library describes. `operations_generated.jl` has a function for each of them.

# What an operation is. `use` is :in, :out or :update, `kind` :array, :matrix, :layout, :mask or :conv; `dtype` is a letter and
# `shape` a text in the order of C (docs/architecture.md).
struct Argument
    name::Symbol
    use::Symbol
    optional::Bool
    kind::Symbol
    dtype::Symbol
    shape::String
    may_be::Vector{Symbol}
end

struct Option
    name::Symbol
    kind::Symbol # :real, :whole, :flag, :word or :sizes
    default::Any
    range::String
    words::Vector{Symbol}
end

mutable struct Operation
    name::Symbol
    place::Symbol # the module that has its function
    arguments::Vector{Argument}
    options::Vector{Option}
    gradient::Union{Symbol, Nothing}
    number::Int32 # in the library that is loaded; -1 before it was looked up
end
Operation(name, place, arguments, options, gradient) = Operation(name, place, arguments, options, gradient, -1)
Operation(name) = Operation(name, :Tartan, Argument[], Option[], nothing)

Base.show(io::IO, op::Operation) = print(io, "Operation ", op.name)

number(op::Operation) = op.number >= 0 ? op.number : found(op)
@noinline found(op) = op.number = Raw.tartan_op_find(String(op.name))

# ---- Operands ----

Raw.c_descriptor(x::Operand) = (x.array,)
Raw.c_descriptor(x::Tuple{Vararg{Operand}}) = map(y -> y.array, x) # a list

# Dimensions run backwards in C. Those that a shape has and an array has not count as 1, as everywhere in Julia.
in_order_of_c(n, s) = (reverse(n), reverse(s))
struct AtLeast{M} end
@inline (::AtLeast{M})(n::NTuple{N}, s) where {M, N} = N >= M ? in_order_of_c(n, s) : backwards(n, s, Val(M))

const Undense = Union{Sparse, AbstractSparseArray, Sparselike, WrappedReal}
@noinline not_dense(x, name) = throw(ArgumentError("$name is a $(typeof(x)), expected a dense array"))

# Arrays that are read; numbers of the type of sums, which are few, are converted. `dims` is an AtLeast.
dense_input(dims, x::Dense, name) = input(dims, x, name, Wide)
dense_input(dims, x::Undense, name) = not_dense(x, name)
dense_input(dims, ::Nothing, name) = nothing
sum_input(dims, x::Dense, name, ::Type{T}) where {T} =
    eltype(x) <: Real ? real_input(dims, x, name, gate_type(T)) : expect_type(x, name, gate_type(T))
sum_input(dims, x::Undense, name, ::Type{T}) where {T} = not_dense(x, name)
sum_input(dims, ::Nothing, name, ::Type{T}) where {T} = nothing

# Indices count from 1, and C is told so. Other types of integers are converted.
index_input(dims, x::Dense, name) = input(dims, whole_numbers(x, name), name, Index)
index_input(dims, x::Undense, name) = not_dense(x, name)
index_input(dims, ::Nothing, name) = nothing
whole_numbers(x, name) = eltype(x) <: Index ? x : converted_indices(x, name)
function converted_indices(x, name)
    x isa AbstractArray && eltype(x) <: Integer && eltype(x) !== Bool ||
        throw(ArgumentError("$name has element type $(eltype(x)), expected integers"))
    return convert(Array{Int64}, x)
end
index_output(dims, x::Dense, name) = output(dims, x, name, Index)
index_output(dims, x::Undense, name) = not_dense(x, name)
index_output(dims, ::Nothing, name) = nothing

# Masks: true, or bytes that are not 0.
mask_input(dims, x::Dense, name) = input(dims, x, name, Union{Bool, UInt8})
mask_input(dims, x::Undense, name) = not_dense(x, name)
mask_input(dims, ::Nothing, name) = nothing

# Arrays that are written.
dense_output(dims, x::Dense, name) = output(dims, x, name, Wide)
dense_output(dims, x::Undense, name) = not_dense(x, name)
dense_output(dims, ::Nothing, name) = nothing

# The same of 8 bits, too.
const AnyFloat = Union{Wide, Float8E4M3, Float8E5M2}
number_input(dims, x::Dense, name) = input(dims, x, name, AnyFloat)
number_input(dims, x::Undense, name) = not_dense(x, name)
number_output(dims, x::Dense, name) = output(dims, x, name, AnyFloat)
number_output(dims, x::Undense, name) = not_dense(x, name)
number_output(dims, ::Nothing, name) = nothing

# The type that a word names, or a type itself; `same` is T.
const CASTS = (float64 = Float64, float32 = Float32, float16 = Float16, bfloat16 = BFloat16, float8_e4m3fn = Float8E4M3,
               float8_e5m2 = Float8E5M2)
cast_type(word, ::Type{T}) where {T} = get(CASTS, Symbol(word), T)
cast_type(type::Type, ::Type{T}) where {T} = type

handle_of(A::Blocks) = Raw.c_handle(Raw.tartan_matrix, A)
handle_of(layout::BlockLayout) = Raw.c_handle(Raw.tartan_layout, layout)
handle_of(mask::BlockMask) = Raw.c_handle(Raw.tartan_block_mask, mask)
handle_of(c::BlockConv) = Raw.c_handle(Raw.tartan_conv, c)
handle_of(::Nothing) = nothing

# ---- Options ----

# Each is "name=value " or, if it has its default, nothing: C reads the text of as few as possible.
option_text(name, value) = string(name, "=", string(value), " ")
real_option(name, ::Nothing, ::Nothing) = "" # C computes it
real_option(name, value, default) = value == default ? "" : option_text(name, real_factor(value, name))
whole_option(name, value, default) = value == default ? "" : option_text(name, whole(value, name))
function position_option(name, value) # counted from 1
    value >= 1 || throw(TartanError(:argument, "$name is $value, expected 1 or more"))
    return value == 1 ? "" : option_text(name, whole(value, name) - 1)
end
function word_option(name, value, default, words)
    value === default && return ""
    Symbol(value) in words ||
        throw(TartanError(:argument, "$name is $(repr(value)), expected $(join(map(repr, words), ", ", " or "))"))
    return option_text(name, value)
end
word_option(name, type::Type, default, words) = # of a dtype
    word_option(name, something(findfirst(==(type), CASTS), Symbol(type)), default, words)
sizes_option(name, ::Nothing) = ""
sizes_option(name, value) = option_text(name, join((whole(x, name) for x in backwards_list(Tuple(value))), 'x'))
backwards_list(x::Tuple) = reverse(x)
backwards_list(x::Tuple{Vararg{Union{Tuple, AbstractVector}}}) = Tuple(Iterators.flatten(map(reverse, x))) # of several lists

options_text() = ""
options_text(a) = a
options_text(a, b, rest...) = options_text(isempty(a) ? b : isempty(b) ? a : a * b, rest...)

# ---- Results ----

# Memory for a result: on the layout of an operand, or beside one.
room_for(A::BlockSparseMatrix) = similar(A)
room_for(A::DeviceBlockSparseMatrix) = copy(A)
room_beside(x::Dense, ::Type{T}, n) where {T} = room_like(x, T, n)
room_beside(A::BlockSparseMatrix, ::Type{T}, n) where {T} = Array{T}(undef, n)
room_beside(A::DeviceBlockSparseMatrix, ::Type{T}, n) where {T} = DeviceArray{T}(A.context, n)

# The size of what has a number for each row: heads count where there are several.
by_head(A, n) = heads(A) > 1 ? (n, heads(A)) : (n,)

# The size of what broadcasting makes of two sizes.
@inline function broadcast_size(a::NTuple{M, Int}, b::NTuple{N, Int}) where {M, N}
    n = ntuple(i -> i > N || i <= M && b[i] == 1 ? a[i] : b[i], Val(max(M, N)))
    all(i -> a[i] == n[i] || a[i] == 1, 1:M) && all(i -> b[i] == n[i] || b[i] == 1, 1:N) ||
        throw(TartanError(:shape, "sizes $a and $b do not broadcast, expected equal lengths, or 1"))
    return n
end

# Dimensions i and following.
following(n, ::Val{I}) where {I} = ntuple(j -> n[I - 1 + j], Val(max(0, length(n) - I + 1)))

# ---- Calls ----

# C's pointers are in the order of the operation's arguments.
@inline function run_operation(op::Operation, context, arguments::Tuple, options::String)
    Raw.tartan_op_run(context, number(op), arguments, options)
    return nothing
end

# Those whose functions are written by hand.
const GROWTH_SCORE = Operation(:growth_score)
const ATTENTION_FORWARD = Operation(:attention_forward)
const ATTENTION_BACKWARD = Operation(:attention_backward)
const ATTENTION_BIAS_GRADIENT = Operation(:attention_bias_gradient)
const CONV_FORWARD = Operation(:conv_forward)
const CONV_INPUT_GRADIENT = Operation(:conv_input_gradient)
const CONV_FILTER_GRADIENT = Operation(:conv_filter_gradient)
const WINDOW_GATHER = Operation(:window_gather)
const WINDOW_SCATTER = Operation(:window_scatter)
const RESIDUAL_FORWARD = Operation(:residual_forward)

# Gradients to be written, in a named tuple; what is not there is not computed.
@inline function gradients_of(grads::NamedTuple, wanted::NamedTuple)
    isempty(Base.structdiff(grads, wanted)) || unknown_gradient(grads, keys(wanted))
    return merge(wanted, grads)
end
@noinline function unknown_gradient(grads, names)
    unknown = first(name for name in keys(grads) if !(name in names))
    throw(ArgumentError("the named tuple of gradients has $unknown, expected $(join(names, ", ", " or "))"))
end

# ---- Lists of arrays and block-sparse matrices, of any length ----

# The descriptors that C gets, and what must be kept alive.
struct ListOperand
    owners::Vector{Any}
    arrays::Vector{Raw.tartan_array}
end
Raw.c_pointer(x::ListOperand, place) = Ptr{Cvoid}(pointer(x.arrays))

# One array or matrix stands for a list of it.
items_of(x::Union{Dense, Undense}) = eltype(x) <: Number ? (x,) : x
items_of(x) = x

# The first of a list that has a context, or nothing.
function placed(list)
    list === nothing && return nothing
    for x in items_of(list)
        context_of(x) === nothing || return x
    end
    return nothing
end

function first_array(list, name)
    items = list === nothing ? () : items_of(list)
    isempty(items) && throw(TartanError(:argument, "$name has no arrays, expected 1 or more"))
    return first(items)
end

# What an item is to C: a matrix is the array [blocks, rows, columns] of its values, and an array beside a matrix is, too.
values_in_order(n, s) = ((n[3], n[1], n[2]), (s[3], s[1], s[2]))
# Moments of optimisers may have 8 bits; C says where.
list_item(A::BlockSparseMatrix, like, name, writes) = output(values_in_order, A.values, name, AnyFloat)
list_item(A::DeviceBlockSparseMatrix, like, name, writes) = Operand(A, Raw.tartan_matrix_values(A.handle))
list_item(x::Undense, like, name, writes) = not_dense(x, name)
function list_item(x::Dense, like, name, writes)
    order = like isa Blocks && ndims(x) == 3 ? values_in_order : in_order_of_c
    return writes ? output(order, x, name, AnyFloat) : input(order, x, name, AnyFloat)
end
list_item(x, like, name, writes) = throw(ArgumentError("$name has a $(typeof(x)), expected arrays and block-sparse matrices"))
function list_item(::Nothing, like, name, writes) # no numbers, where those of `like` are
    array = list_item(like, like, name, false).array
    T = array.dtype == Raw.TARTAN_F64 ? Float64 : Float32
    return Operand(nothing, array_of(Ptr{T}(C_NULL), (0,), (1,), (array.device_type, array.device_id)))
end

same_layout(a::Blocks, b::Blocks) = a === b || a.layout == b.layout
same_layout(a, b) = true

list_operand(::Nothing, name, first, first_name, writes) = nothing
@noinline function list_operand(list, name, first, first_name, writes)
    items, likes = items_of(list), items_of(first)
    n = length(likes)
    n > 0 || throw(TartanError(:argument, "$first_name has no arrays, expected 1 or more"))
    length(items) == n ||
        throw(TartanError(:argument, "$name has $(length(items)) arrays, expected $n (as $first_name)"))
    owners, arrays = Vector{Any}(undef, n), Vector{Raw.tartan_array}(undef, n)
    for (i, (x, like)) in enumerate(zip(items, likes))
        same_layout(x, like) ||
            throw(TartanError(:layout, "array $i of $name is on another layout, expected that of array $i of $first_name"))
        operand = list_item(x, like, name, writes)
        owners[i], arrays[i] = operand.owner, operand.array
    end
    return ListOperand(owners, arrays)
end
