# SPDX-License-Identifier: Apache-2.0

"""
    explain(f, args...; options...)

What the products that `f(args...; options...)` calls would do, without doing them, as JSON: an array with one object for
each. `f` runs, but the products in it only check their operands and describe themselves; arrays that they return hold
no results. Each object has the operation, backend, device, operands, kernel and why that one, the kernels that were
refused and why, the useful floating-point operations, the bytes that must move, and the rate expected where it is known.

    println(explain(*, A, X))
    println(explain(() -> mul!(C, A', X)))
"""
function explain(f, args...; options...)
    # C explains to the thread that asked, so the task stays there.
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
