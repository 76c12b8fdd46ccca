# SPDX-License-Identifier: Apache-2.0
# Ctrl-C ends long calls: the exception comes out of the call, and the next call is right.

# Portable C takes many seconds of the processor for each call.
const LONG_CALLS = """
using Tartan, LinearAlgebra
Base.exit_on_sigint(false)
normal(n, block) = fill_normal!(BlockSparseMatrix{Float64}(BlockLayout(trues(n, n), block)))
A, B, X, q = normal(250, 8), normal(375, 8), ones(2000, 6000), ones(64, 8192, 4)
Y, pairs = ones(6000, 2000), BlockLayout(trues(128, 128), 64)
first_columns = A * X[:, 1:3]
calls = ["matrix" => () -> A * X, "blocks" => () -> B * B, "sddmm" => () -> sddmm!(copy(A), X, Y), "attention" => () -> attention(q, q, q, pairs)]
processor_time() = ccall(:clock, Clong, ()) / 1e6
for (name, call) in calls
    begun = processor_time()
    killer = run(`sh -c "sleep 0.5; kill -INT \$(getpid())"`, wait = false)
    raised = try
        call()
        "nothing"
    catch error
        string(typeof(error))
    end
    wait(killer)
    took = processor_time() - begun
    println(name, " ", raised, " ", took < 4, " ", A * X[:, 1:3] == first_columns, " ", took)
end
"""

@testset "interrupts end long calls" begin
    if Sys.isunix()
        command = `$(Base.julia_cmd()) --startup-file=no -e $LONG_CALLS`
        lines = withenv(() -> split(read(command, String), '\n'; keepempty = false), "TARTAN_CPU" => "c", "TARTAN_NUM_THREADS" => "1", "JULIA_NUM_THREADS" => "1")
        @test map(x -> split(x)[1:4], lines) == [[name, "InterruptException", "true", "true"] for name in ("matrix", "blocks", "sddmm", "attention")] || println(lines)
    end
end
