# SPDX-License-Identifier: Apache-2.0
# Ctrl-C ends long calls: the exception comes out of the call, and the next call is right.

# Portable C takes many seconds of the processor for each call. What a stopped one took is held against the time of the whole,
# which is estimated from a small part of the work.
const LONG_CALLS = """
using Tartan, LinearAlgebra
Base.exit_on_sigint(false)
dense(n, block) = BlockLayout(trues(n ÷ block, n ÷ block), block)
normal(n) = fill_normal!(BlockSparseMatrix{Float64}(dense(n, 8)))
A, B, X, Y, q = normal(2000), normal(3000), ones(2000, 6000), ones(6000, 2000), ones(64, 8192, 4)
first_columns = A * X[:, 1:3]
calls = ["matrix" => (A, X) -> A * X, "blocks" => (A, X) -> X * X, "sddmm" => (A, X, Y) -> sddmm!(copy(A), X, Y), "attention" => (pairs, q) -> attention(q, q, q, pairs)]
# Operands of the calls, those of a part, and how often that fits into the call.
operands = [((A, X), (A, X[:, 1:60]), 100), ((A, B), (A, normal(600)), 5^3), ((A, X, Y), (A, X[:, 1:60], Y[1:60, :]), 100),
            ((dense(8192, 64), q), (dense(512, 64), q[:, 1:512, :]), 16^2)]
processor_time() = ccall(:clock, Clong, ()) / 1e6
function seconds(call)
    begun = processor_time()
    call()
    return processor_time() - begun
end
for ((name, call), (all, part, times)) in zip(calls, operands)
    call(part...) # compiles it
    whole = times * seconds(() -> call(part...))
    killer, raised = run(`sh -c "sleep 0.5; kill -INT \$(getpid())"`, wait = false), "nothing"
    took = seconds() do
        try
            call(all...)
        catch error
            raised = string(typeof(error))
        end
        wait(killer)
    end
    println(name, " ", raised, " ", took < whole / 3, " ", A * X[:, 1:3] == first_columns, " ", took, " ", whole)
end
"""

@testset "interrupts end long calls" begin
    if Sys.isunix()
        command = `$(Base.julia_cmd()) --startup-file=no -e $LONG_CALLS`
        lines = withenv(() -> split(read(command, String), '\n'; keepempty = false), "TARTAN_CPU" => "c", "TARTAN_NUM_THREADS" => "1", "JULIA_NUM_THREADS" => "1")
        @test map(x -> split(x)[1:4], lines) == [[name, "InterruptException", "true", "true"] for name in ("matrix", "blocks", "sddmm", "attention")] || println(lines)
    end
end
