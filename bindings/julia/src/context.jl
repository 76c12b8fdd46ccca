# SPDX-License-Identifier: Apache-2.0

const MATH = (exact = Raw.TARTAN_MATH_EXACT, tf32 = Raw.TARTAN_MATH_TF32)

"""
    Context(device = "cpu"; threads = 0, seed = 0, math = :exact, deterministic = true, allow_dense = false,
            stream = C_NULL, parallel = :openmp)

A queue of work: where it runs (`"cpu"`, `"cuda"`, `"cuda:1"`), and how many threads it uses there. `threads = 0` means
`TARTAN_NUM_THREADS`, else all processors. `parallel = :julia` runs the work on Julia's own threads (`julia -t 4`).
Results do not depend on any of these two. A context serves one task at a time; without one, operations take a
context of their own on the CPU, or that of their operands on a device (see [`to_device`](@ref)).

On a GPU, `math = :tf32` lets products of `Float32` round their factors, `deterministic = false` allows sums of varying order,
`allow_dense = true` lets a matrix that has most of its blocks be multiplied as a dense copy by cuBLAS, where that is there and
expected to be faster (`NaN` and `Inf` of the other factor then reach every row, and results may differ in their last bits between
versions of cuBLAS), and `stream` is a CUDA stream of the caller's (its address), to be used in place of one of the context's own.

    context = Context(threads = 1)
    spmm!(C, A, X; context = context)
    close(context)
"""
struct Context
    handle::Handle{Raw.tartan_context}
    device::String
    function Context(device::AbstractString; threads::Integer = 0, seed::Integer = 0, math = :exact,
                     deterministic::Bool = true, allow_dense::Bool = false, stream = C_NULL, parallel = :openmp)
        loop = code_of((openmp = 0, julia = 1), parallel, "parallel")
        workers = Int32(clamp(whole(threads, "threads"), typemin(Int32), typemax(Int32)))
        mode = code_of(MATH, math, "math")
        determinism = deterministic ? Raw.TARTAN_RUN_TO_RUN : Raw.TARTAN_NOT_DETERMINISTIC
        address = reinterpret(Int64, UInt64(stream))
        if loop == 0
            handle = Handle(Raw.tartan_context_open_stream(device, workers, whole(seed, "seed"), mode, determinism,
                                                           Int32(allow_dense), address))
            return new(handle, device == "cuda" ? "cuda:0" : device)
        end
        device == "cpu" && address == 0 || throw(TartanError(:argument,
            "device is '$device' and stream $stream, expected 'cpu' and none with parallel = :julia"))
        options = with_fields(Raw.tartan_context_options_init(), threads = workers == 0 ? Threads.nthreads() : workers,
                              seed = whole(seed, "seed"), math_mode = mode, determinism = determinism, allow_dense = Int32(allow_dense),
                              parallel_for = JULIA_PARALLEL_FOR[])
        return new(Handle(Raw.tartan_context_create(options)), device)
    end
end
Context(; device::AbstractString = "cpu", options...) = Context(device; options...)

Base.cconvert(::Type{Ptr{Raw.tartan_context}}, context::Context) = context.handle
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

Waits for all work of the context, and throws what went wrong on its device meanwhile.

    wait(Context())
"""
Base.wait(context::Context) = (Raw.tartan_context_sync(context); nothing)

"""
    Tartan.threads(context)

How many workers an operation of the context uses.
"""
threads(context::Context) = Int(Raw.tartan_context_threads(context))

# The struct with some fields replaced.
with_fields(x::S; fields...) where {S} =
    S((get(fields, name, getfield(x, name)) for name in fieldnames(S))...)

const JULIA_PARALLEL_FOR = Ref(C_NULL)

# The loop that C asks for where parallel = :julia. The waiting task stays on its thread, since C is on its stack.
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

# Contexts of operations that were given none: each is in one task's hands at a time.
const IDLE = Context[]
const IDLE_LOCK = Threads.SpinLock()

with_context(f, context::Context) = f(context)
function with_context(f, ::Nothing)
    context = lock(() -> isempty(IDLE) ? nothing : pop!(IDLE), IDLE_LOCK)
    context === nothing && (context = Context())
    try
        return f(context)
    finally
        lock(() -> push!(IDLE, context), IDLE_LOCK)
    end
end
