# SPDX-License-Identifier: Apache-2.0

"""
    explain(f, args...; options...)

Describe the products that `f(args...; options...)` calls, as JSON: an array with one object for each. `f`
runs, but the products in it only check their operands and describe themselves; the arrays that they return
hold no results. Each object has the operation, backend, device, operands, the kernel and why it was chosen,
the refused kernels and why, the useful floating-point operations, the bytes that must move, and the expected
rate if it is known.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    X = ones(64, 8)
    println(explain(*, A, X))
    println(explain(() -> mul!(zeros(64, 8), A', X)))
"""
function explain(f, args...; options...)
    # C explains the calls of one thread, so the task stays on it.
    task = current_task()
    sticky = task.sticky
    task.sticky = true
    text = "[]"
    try
        Raw.tartan_explain_begin()
        try
            f(args...; options...)
        finally
            text = Raw.tartan_explain_end()
        end
    finally
        task.sticky = sticky
    end
    return text
end
