# SPDX-License-Identifier: Apache-2.0

"""
    Context(device = "cpu"; threads = 0, seed = 0, math = :exact, allow_dense = false, stream = C_NULL,
            parallel = :openmp)

A queue of work on a device (`"cpu"`, `"cuda"`, `"cuda:1"`). `threads = 0` means what [`Tartan.set_num_threads`](@ref) was
given, else `TARTAN_NUM_THREADS`, else `OMP_NUM_THREADS`, else all processors. `parallel = :julia` runs the work on Julia's own
threads (`julia -t 4`). Results depend on neither. Ctrl-C (`InterruptException`) stops long calls on the CPU; the contents of
their outputs are then undefined. Only one task at a time may use a context. Without a context, operations use a CPU context of
the calling thread or, for operands on a device, the context of the first one (see [`to_device`](@ref)). Operands may belong to
several contexts of one device: the device starts a call after the work of other contexts that it depends on.

`math` says how factors of `Float32` may be multiplied: `:tf32` allows a GPU to round them to the 11 bits of tf32; `:bf16x3` and
`:bf16x6` allow a CPU with AMX to use three or six products of bfloat16, with errors within 2^-15 of the products or about as
small as those of `Float32` ([`explain`](@ref) says which kernel runs). On a GPU, `allow_dense = true` allows cuBLAS to multiply
a dense copy of a matrix that stores most of its blocks, if that is expected to be faster; `NaN` and `Inf` in the other factor
then reach every row, and results may differ in the last bits between versions of cuBLAS. `stream` is the address of your CUDA
stream; by default the context makes its own.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    context = Context(threads = 1)
    spmm!(zeros(64, 3), A, ones(64, 3); context = context)
    close(context)
"""
struct Context
    handle::Handle{Raw.tartan_context}
    device::String
    function Context(device::AbstractString; threads::Integer = 0, seed::Integer = 0, math = :exact,
                     allow_dense::Bool = false, stream = C_NULL, parallel = :openmp)
        loop = code_of((openmp = 0, julia = 1), parallel, "parallel")
        code_of((exact = 0, tf32 = 1, bf16x3 = 2, bf16x6 = 3), math, "math")
        workers, address = threads == 0 && loop == 0 ? DEFAULT_THREADS[] : whole(threads, "threads"), reinterpret(Int64, UInt64(stream))
        loop == 0 || (device == "cpu" && address == 0) || throw(TartanError(:argument,
            "device is '$device' and stream $stream, expected 'cpu' and none with parallel = :julia"))
        loop == 0 || workers != 0 || (workers = Threads.nthreads())
        options = "threads=$workers seed=$(whole(seed, "seed")) math=$math allow_dense=$(Int(allow_dense)) stream=$address"
        hooks = loop == 0 ? nothing :
            Raw.tartan_hooks(sizeof(Raw.tartan_hooks), address_of_loop(), C_NULL)
        handle = Handle(Raw.tartan_context_create(device, options, hooks))
        device == "cpu" && Raw.tartan_context_set_interrupt(handle, address_of_question(), C_NULL)
        return new(handle, device == "cuda" ? "cuda:0" : device)
    end
end
Context(; device::AbstractString = "cpu", options...) = Context(device; options...)

Raw.c_handle(::Type{Raw.tartan_context}, context::Context) = context.handle
Base.close(context::Context) = close(context.handle)
Base.isopen(context::Context) = isopen(context.handle)
function Base.show(io::IO, context::Context)
    isopen(context) || return print(io, "Context (closed)")
    print(io, "Context(", repr(context.device))
    context.device == "cpu" && print(io, "; threads = ", threads(context))
    print(io, ")")
end

"""
    wait(context::Context)

Wait for all work of the context, and throw the errors of that work.

    wait(Context())
"""
Base.wait(context::Context) = (Raw.tartan_context_sync(context); nothing)

# 0: as the environment says.
const DEFAULT_THREADS = Threads.Atomic{Int}(0)

"""
    Tartan.set_num_threads(n)

Set the number of threads for operations without a context and for later contexts without `threads`; `n = 0` restores the
number that the environment gives (see [`Context`](@ref)). Results do not depend on it. [`Tartan.get_num_threads`](@ref) is the
number in use.

    Tartan.set_num_threads(1)
    Tartan.get_num_threads() == 1
    Tartan.set_num_threads(0)
"""
function set_num_threads(n::Integer)
    close(Context(threads = n)) # refuses what is no number of threads
    DEFAULT_THREADS[] = n
    return nothing
end

"""
    Tartan.get_num_threads()

The number of threads of an operation without a context.

    Tartan.get_num_threads()
"""
function get_num_threads()
    context = Context()
    n = threads(context)
    close(context)
    return n
end

"""
    Tartan.threads(context)

The number of workers of an operation on the context.
"""
threads(context::Context) = Int(Raw.tartan_context_threads(context))

# The loop that C calls with parallel = :julia. The waiting task stays on its thread, since C is on its stack.
function julia_parallel_for(::Ptr{Cvoid}, workers::Int32, task::Ptr{Cvoid}, data::Ptr{Cvoid})
    caller = current_task()
    sticky = caller.sticky
    caller.sticky = true
    Threads.@threads for worker in 0:Int(workers) - 1
        ccall(task, Cvoid, (Ptr{Cvoid}, Int32), data, worker)
    end
    caller.sticky = sticky
    return nothing
end
@noinline address_of_loop() = @cfunction(julia_parallel_for, Cvoid, (Ptr{Cvoid}, Int32, Ptr{Cvoid}, Ptr{Cvoid}))

# Whether a long call on the CPU is to stop: C asks every 10 ms, on the thread of the call. A safepoint is where Julia throws
# what Ctrl-C makes; since no exception may pass through C, the call itself throws it anew (`failure`). Other threads that
# wait to collect garbage do so meanwhile.
function stop_wanted(::Ptr{Cvoid})
    try
        GC.safepoint()
    catch
        return Int32(1)
    end
    return Int32(0)
end
@noinline address_of_question() = @cfunction(stop_wanted, Int32, (Ptr{Cvoid},))

# The context of an operand; and that of a call: the given one, else that of the first operand that has one. C orders the work
# of several contexts, and refuses operands on another device.
context_of(x) = nothing
call_context(context::Context, operands...) = context
call_context(::Nothing, x, rest...) = call_context(context_of(x), rest...)
call_context(::Nothing) = nothing

# Contexts of calls without one: one per thread, made on first use.
mutable struct Spare
    busy::Threads.Atomic{Int}
    address::Ptr{Raw.tartan_context}
    handle::Any
    threads::Int # as they were asked for when it was opened
    Spare(busy) = new(Threads.Atomic{Int}(busy), C_NULL, nothing, 0)
end
const SPARES = Spare[]

# A plain loop, which compiles quickly: this runs when the package is loaded.
function make_spares(n)
    for _ in 1:n
        push!(SPARES, Spare(0))
    end
end

@inline take(spare::Spare) = Threads.atomic_xchg!(spare.busy, 1) == 0
@inline Raw.c_leave(spare::Spare) = (spare.busy[] = 0; nothing)
Raw.c_address(spare::Spare) = spare.address

@inline function Raw.c_handle(::Type{Raw.tartan_context}, ::Nothing)
    i = Threads.threadid()
    i <= length(SPARES) || return another_spare()
    spare = @inbounds SPARES[i]
    take(spare) || return another_spare()
    return is_ready(spare) ? spare : opened(spare)
end
@inline is_ready(spare) = spare.address != C_NULL && spare.threads == DEFAULT_THREADS[]

# A spare context of another thread, else one made for this call.
@noinline function another_spare()
    i = findfirst(take, SPARES)
    spare = i === nothing ? Spare(1) : SPARES[i]
    return is_ready(spare) ? spare : opened(spare)
end

@noinline function opened(spare)
    try
        threads = DEFAULT_THREADS[]
        handle = Context(threads = threads).handle
        spare.handle === nothing || close(spare.handle)
        spare.handle, spare.threads, spare.address = handle, threads, handle.address
    catch
        Raw.c_leave(spare)
        rethrow()
    end
    return spare
end
