# SPDX-License-Identifier: Apache-2.0

times(n) = string(n[1], "×", n[2])

function describe(io::IO, layout::BlockLayout)
    isopen(layout) || return print(io, " (closed)")
    all = prod(gridsize(layout)) * heads(layout)
    isdynamic(layout) && return print(io, ": dynamic, capacity ", nblocks(layout), " of ", all, " blocks of ",
                                      times(blocksize(layout)))
    percent = round(100 * density(layout); sigdigits = 3)
    print(io, ": ", nblocks(layout), " of ", all, isvariable(layout) ? " blocks up to " : " blocks of ", times(blocksize(layout)), " (", percent, "%)")
    heads(layout) > 1 && print(io, " in ", heads(layout), " heads")
end

function Base.show(io::IO, layout::BlockLayout)
    print(io, times(size(layout)), " BlockLayout")
    describe(io, layout)
end

function Base.show(io::IO, ::MIME"text/plain", layout::BlockLayout)
    show(io, layout)
    isopen(layout) && picture(io, layout)
end

Base.summary(io::IO, A::BlockSparseMatrix) = print(io, times(size(A)), " ", typeof(A))

function Base.show(io::IO, A::BlockSparseMatrix)
    summary(io, A)
    isopen(A) ? describe(io, A.layout) : print(io, " (closed)")
end

function Base.show(io::IO, ::MIME"text/plain", A::BlockSparseMatrix)
    show(io, A)
    isopen(A) && picture(io, A.layout)
end

Base.summary(io::IO, A::TransposedBlocks{T}) where {T} = print(io, times(size(A)), " transpose of a BlockSparseMatrix{", T, "}")
Base.show(io::IO, A::TransposedBlocks) = (print(io, "transpose of "); show(io, A.parent))
function Base.show(io::IO, ::MIME"text/plain", A::TransposedBlocks)
    show(io, A)
    isopen(A) && picture(io, transpose(A.parent.layout))
end

Base.show(io::IO, ::MIME"image/svg+xml", layout::BlockLayout) = print(io, svg(layout))
Base.show(io::IO, ::MIME"image/svg+xml", A::BlockSparse) = print(io, svg(A))

# The first head as characters: one for each block or patch of blocks, fuller the more blocks it has.
function picture(io::IO, layout::BlockLayout)
    isdynamic(layout) && return nothing
    rows, cols = gridsize(layout)
    height, width = displaysize(io)
    height, width = min(rows, max(4, height - 6), 32), min(cols, max(8, width - 4), 64)
    (height == 0 || width == 0) && return nothing
    counts = zeros(Int, height, width)
    block_rows, block_cols, of_head = coordinates(layout)
    for k in eachindex(block_rows)
        of_head[k] == 1 || continue
        counts[cld(block_rows[k] * height, rows), cld(block_cols[k] * width, cols)] += 1
    end
    patch = cld(rows, height) * cld(cols, width)
    for i in 1:height
        print(io, "\n  ", join(shade(counts[i, j], patch) for j in 1:width))
    end
end

shade(count, patch) = count == 0 ? '·' : ('░', '▒', '▓', '█')[clamp(cld(4 * count, patch), 1, 4)]
