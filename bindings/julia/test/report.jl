# SPDX-License-Identifier: Apache-2.0
# A test set that remembers what it saw, to be written in JUnit's format. Every `@testset` with tests of its own is a case.

mutable struct Report <: Test.AbstractTestSet
    name::String
    passed::Int
    problems::Vector{Any}
    children::Vector{Report}
    started::Float64
    seconds::Float64
end
Report(name; options...) = Report(name, 0, [], [], time(), 0.0)

Test.record(set::Report, ::Test.Pass) = (set.passed += 1; nothing)
Test.record(set::Report, child::Report) = (push!(set.children, child); nothing)
function Test.record(set::Report, result::Test.Result)
    println("In ", set.name, ":")
    println(result)
    push!(set.problems, result)
    return nothing
end

function Test.finish(set::Report)
    set.seconds = time() - set.started
    Test.get_testset_depth() == 0 || Test.record(Test.get_testset(), set)
    return set
end

# (name, set) of every case.
function cases(set::Report, path = set.name)
    own = set.passed + length(set.problems) > 0 || isempty(set.children) ? [(path, set)] : []
    return vcat(own, (cases(child, string(path, " / ", child.name)) for child in set.children)...)
end

failures(set::Report) = count(((_, case),) -> !isempty(case.problems), cases(set))

escaped(text) = replace(replace(replace(replace(filter(c -> isprint(c) || c == '\n', text), "&" => "&amp;"),
                                        "<" => "&lt;"), ">" => "&gt;"), "\"" => "&quot;")

function write_junit(path, set::Report)
    found = cases(set)
    open(path, "w") do io
        println(io, """<?xml version="1.0" encoding="UTF-8"?>""")
        println(io, """<testsuite name="julia" tests="$(length(found))" failures="$(failures(set))" """,
                """errors="0" skipped="0" time="$(set.seconds)">""")
        for (name, case) in found
            println(io, """<testcase classname="julia" name="$(escaped(name))" time="$(case.seconds)">""")
            for problem in case.problems
                println(io, """<failure message="failed">""", escaped(string(problem)), "</failure>")
            end
            println(io, "</testcase>")
        end
        println(io, "</testsuite>")
    end
end
