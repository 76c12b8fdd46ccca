# SPDX-License-Identifier: Apache-2.0

"""
    Context(; device = "cpu", threads = 0, seed = 0, parallel = :openmp)

A queue of work: how many threads it uses, and where. `threads = 0` means `TARTAN_NUM_THREADS`, else all processors.
`parallel = :julia` runs the work on Julia's own threads (`julia -t 4`). Results do not depend on any of it. A
context serves one task at a time; without one, operations take a context of their own.

    context = Context(threads = 1)
    spmm!(C, A, X; context = context)
    close(context)
"""
struct Context
    handle::Handle{Raw.tartan_context}
    function Context(; device::AbstractString = "cpu", threads::Integer = 0, seed::Integer = 0, parallel = :openmp)
        loop = code_of((openmp = 0, julia = 1), parallel, "parallel")
        workers = Int32(clamp(whole(threads, "threads"), typemin(Int32), typemax(Int32)))
        loop == 0 && return new(Handle(Raw.tartan_context_open(device, workers, whole(seed, "seed"))))
        device == "cpu" || throw(TartanError(:argument, "device is '$device', expected 'cpu' with parallel = :julia"))
        options = with_fields(Raw.tartan_context_options_init(), threads = workers == 0 ? Threads.nthreads() : workers,
                              seed = whole(seed, "seed"), parallel_for = JULIA_PARALLEL_FOR[])
        return new(Handle(Raw.tartan_context_create(options)))
    end
end

Base.cconvert(::Type{Ptr{Raw.tartan_context}}, context::Context) = context.handle
Base.close(context::Context) = close(context.handle)
Base.isopen(context::Context) = isopen(context.handle)
Base.show(io::IO, context::Context) =
    isopen(context) ? print(io, "Context(threads = ", threads(context), ")") : print(io, "Context (closed)")

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
