# SPDX-License-Identifier: Apache-2.0
# The Julia side of julia_kernel.py: worker.jl <descriptor of requests> <descriptor of replies>.
# Works on Julia 1.5 and newer with nothing but the standard library.
module TartanNotebook

# Standard libraries by their identity, whatever the load path and the project are.
standard(name, uuid) =
    try
        Base.require(Base.PkgId(Base.UUID(uuid), name))
    catch
        nothing
    end
const REPL = standard("REPL", "3fa0cd96-eef1-5676-8a61-b3b8758bbffb")
const Logging = standard("Logging", "56ddb016-857b-54e1-b83d-db4d58db5568")

# Cells follow the rules of the REPL: loops at top level may assign to globals.
soft(ex) = REPL === nothing ? ex : Base.invokelatest(REPL.softscope, ex)
silenced(code) = REPL === nothing ? endswith(rstrip(code), ';') : Base.invokelatest(REPL.ends_with_semicolon, code)

const requests = open(RawFD(parse(Cint, ARGS[1])))
const replies = fdio("replies", parse(Int, ARGS[2]), true)
const replies_lock = ReentrantLock()

function send(tag, payload = UInt8[])
    bytes = payload isa AbstractString ? codeunits(payload) : payload
    lock(replies_lock) do
        write(replies, "$tag $(length(bytes))\n")
        write(replies, bytes)
        flush(replies)
    end
end

# Output of a cell, of C code too, comes through pipes. To know that all of it has arrived, a mark is written into each
# pipe and waited for.
const mark = Vector{UInt8}("\0\x1eend of output\x1e\0")

struct Stream
    name::String
    writer::IO
    seen::Channel{Nothing}
end

function find_mark(bytes)
    for i in 1:(length(bytes) - length(mark) + 1)
        bytes[i] == 0x00 && view(bytes, i:(i + length(mark) - 1)) == mark && return i
    end
    return 0
end

function forward(reader, stream)
    held = UInt8[]
    while !eof(reader)
        append!(held, readavailable(reader))
        while (at = find_mark(held)) > 0
            at > 1 && send(stream.name, held[1:(at - 1)])
            held = held[(at + length(mark)):end]
            put!(stream.seen, nothing)
        end
        # What may be the start of a mark waits for the rest.
        zero = findfirst(isequal(0x00), @view held[max(1, end - length(mark) + 2):end])
        keep = zero === nothing ? 0 : min(length(held), length(mark) - 1) - zero + 1
        if length(held) > keep
            send(stream.name, held[1:(end - keep)])
            held = held[(end - keep + 1):end]
        end
    end
end

function capture(redirect, name)
    reader, writer = redirect()
    stream = Stream(name, writer, Channel{Nothing}(1))
    @async forward(reader, stream)
    return stream
end

const streams = Stream[]

function drain()
    Libc.flush_cstdio()
    for stream in streams
        flush(stream.writer)
        write(stream.writer, mark)
        flush(stream.writer)
        take!(stream.seen)
    end
end

const mimes = ("text/html", "text/markdown", "text/latex", "image/svg+xml", "image/png", "image/jpeg")

function send_mime(mime, x)
    io = IOBuffer()
    context = IOContext(io, :limit => true, :displaysize => (30, 100), :color => false, :module => Main)
    show(context, MIME(mime), x)
    send("mime:" * mime, take!(io))
end

function send_all_mimes(x)
    send_mime("text/plain", x)
    for mime in mimes
        showable(MIME(mime), x) && send_mime(mime, x)
    end
end

struct Notebook <: AbstractDisplay end

function Base.display(::Notebook, x)
    drain()
    Base.invokelatest(send_all_mimes, x)
    send("display")
end

function Base.display(::Notebook, mime::MIME, x)
    drain()
    Base.invokelatest(send_mime, string(mime), x)
    send("display")
end

Base.displayable(::Notebook, mime::MIME) = string(mime) == "text/plain" || string(mime) in mimes

# The frames of the cell alone, without those of this file that called it.
function cell_frames(backtrace)
    frames = stacktrace(backtrace)
    first_ours = findfirst(frame -> basename(string(frame.file)) == basename(@__FILE__), frames)
    first_ours === nothing && return frames
    cell = frames[1:(first_ours - 1)]
    while !isempty(cell) && cell[end].func === :eval
        pop!(cell)
    end
    return cell
end

function report(exception, backtrace)
    while exception isa LoadError
        exception = exception.error
    end
    message = sprint(showerror, exception)
    trace = sprint((io, e) -> showerror(io, e, cell_frames(backtrace)), exception)
    send("error", join((string(nameof(typeof(exception))), message, trace), '\0'))
end

function run_cell(count, code)
    try
        value = Core.eval(Main, soft(Base.parse_input_line(code; filename = "In[$count]")))
        Core.eval(Main, Expr(:(=), :ans, QuoteNode(value)))
        drain()
        if value !== nothing && !silenced(code)
            Base.invokelatest(send_all_mimes, value)
            send("result")
        end
    catch exception
        backtrace = catch_backtrace()
        drain()
        Base.invokelatest(report, exception, backtrace)
    end
end

function serve()
    Base.exit_on_sigint(false)
    pushdisplay(Notebook())
    push!(streams, capture(redirect_stdout, "stdout"), capture(redirect_stderr, "stderr"))
    # The logger of the start writes to the old stderr.
    Logging === nothing || Base.CoreLogging.global_logger(Logging.ConsoleLogger(stderr))
    while true
        try
            header = split(readline(requests))
            isempty(header) && return
            count, code = split(String(read(requests, parse(Int, header[2]))), '\n'; limit = 2)
            run_cell(parse(Int, count), String(code))
            send("done")
        catch exception
            # An interrupt that found no cell to stop.
            exception isa InterruptException || rethrow()
        end
    end
end

end

TartanNotebook.serve()
