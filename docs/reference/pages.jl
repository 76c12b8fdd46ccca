# SPDX-License-Identifier: Apache-2.0
# pages.jl FOLDER: the docstrings of what the package exports as one page of HTML.
using Markdown
using Tartan

function page(io)
    names_of = sort!(filter(name -> name !== :Tartan, names(Tartan)), by = name -> lowercase(string(name)))
    println(io, "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>Tartan in Julia</title></head><body><h1>Tartan in Julia</h1><p>")
    links = ("<a href=\"#$name\">$name</a>" for name in names_of)
    println(io, join(links, " "), "</p>")
    for name in names_of
        println(io, "<hr><h2 id=\"$name\">", name, "</h2>")
        show(io, MIME"text/html"(), Base.Docs.doc(Base.Docs.Binding(Tartan, name)))
    end
    println(io, "</body></html>")
end

mkpath(ARGS[1])
open(page, joinpath(ARGS[1], "index.html"), "w")
