# SPDX-License-Identifier: Apache-2.0
# The library's messages in the words of Julia: without the name of the C function, which the stack trace tells better, with the
# names that arguments have here, and with sizes in Julia's order.

const ARGUMENT_NAMES = Dict(
    "tartan_spmm" => Dict("a" => "A", "b" => "B", "c" => "C"),
    "tartan_sddmm" => Dict("x" => "X", "y" => "Y", "s" => "S"),
    "tartan_growth_score" => Dict("x" => "X", "y" => "Y"),
    "tartan_matrix_scatter" => Dict("from" => "B", "matrix" => "A"),
    "tartan_matrix_add" => Dict("a" => "A", "b" => "B"),
    "tartan_matrix_combine" => Dict("a" => "A", "b" => "B"),
    "tartan_matrix_multiply" => Dict("a" => "A", "b" => "B"),
    "tartan_conv_output_size" => Dict("in_size" => "size"),
    "tartan_conv_edge_classes" => Dict("in_size" => "size"),
    "tartan_axpby" => Dict("a" => "X", "b" => "Y", "c" => "Y"),
    "tartan_matrix_scale" => Dict("row_factors" => "the diagonal", "col_factors" => "the diagonal"),
)
const FUNCTION_NAMES = Dict(
    "tartan_attention_forward" => "attention", "tartan_layout_add_elements" => "grow", "tartan_layout_add_diagonal" => "grow",
    "tartan_conv_get_layout" => "the layout of the BlockConv", "tartan_layout_from_windows" => "BlockLayout(windows, ...)",
    "tartan_layout_from_device_mask" => "BlockLayout", "tartan_layout_from_device_scores" => "BlockLayout",
    "tartan_layout_to_host" => "to_host", "tartan_matrix_to_host" => "to_host", "tartan_matrix_cast" => "BlockSparseMatrix{T}",
    "tartan_sparsifier_add_growth" => "add_growth!", "tartan_sparsifier_add_scores" => "observe!", "tartan_sparsifier_prepare" => "step!",
)

# Options are one text in C.
const PHRASES = (
    r"^options has '(\w+)=(.*)', expected \1 to be "s => s"\1 is \2, expected ",
    r"^options has (\w+), which needs causal=1" => s"\1 is given, which needs causal = true",
    r"\bblock_mask\b" => "mask",
    r"^parameters has '(\w+)=(.*)', expected" => s"\1 is \2, expected",
    r"^parameters has '(\w+)', which pattern" => s"\1 is given, which pattern",
    r"^shape has blocks of (-?\d+) x (-?\d+), expected" => s"block is (\1, \2), expected",
    r"^bias (?=has size .* \(one slope for each head\)$)" => "slopes ",
    r"^bias (has size \(\d*\), expected \(\d+\)) or \(n, bias_heads\).*" => s"slopes \1",
    r"^bias (?=has size .*\(an odd number of distances,)" => "distance_bias ",
    r"^bias (?=has size .*, a number for each block$)" => "block_bias ",
    r"^options has neither size nor output" => "neither size nor output is given",
    r"^options has size and output" => "size and output are given",
    r", but options has no preactivate=1" => ", which needs preactivate = true",
)

function in_julia(text)
    found = match(r"^(tartan_\w+): ", text)
    if found !== nothing
        text = text[length(found.match) + 1:end]
        startswith(found[1], "tartan_file_") && return text # the names in it are the user's
        names = get(ARGUMENT_NAMES, found[1], nothing)
        names === nothing || (text = replace(text, word_of(names) => word -> names[word]))
        described = operation_of(found[1]) !== nothing
        text = foldl(replace, PHRASES; init = described ? in_words_of_julia(text) : in_order_of_julia(found[1], text))
    end
    startswith(text, "tartan_explain_begin was already called") && return "explain is at work on this thread, expected no explain inside of another"
    return replace(text, r"\btartan_\w+" => word -> get(FUNCTION_NAMES, word, word))
end

# The names as words; "a" is an article, too, except at the beginning and before punctuation and "has".
word_of(names) = Regex(join((name == "a" ? "^a\\b|\\ba(?=[\\):,.]|\$| has\\b| \\()" : "\\b$name\\b" for name in sort(collect(keys(names)))), "|"))

# [batch..., rows, cols] is (rows, cols, batch...) here, and what has heads and tokens runs backwards.
function in_order_of_julia(name, text)
    order = name in ("tartan_spmm", "tartan_sddmm") ? x -> [x[max(end - 1, 1):end]; reverse(x[1:end - 2])] :
        startswith(name, "tartan_attention_") ? reverse : identity
    order === identity && return text
    return replace(replace(text, r"\[[^\[\]]*\]" => list -> "($(join(order(split(chop(list; head = 1), ", ")), ", ")))"), " has shape " => " has size ")
end

# The operation that a function of C runs, if it is one that the library describes (operations.jl).
function operation_of(name)
    i = findfirst(op -> name == "tartan_$(op.name)", OPERATIONS)
    return i === nothing ? nothing : OPERATIONS[i]
end
is_of_operation(text) = (found = match(r"^(tartan_\w+): ", text)) !== nothing && operation_of(found[1]) !== nothing

const TYPE_NAMES = Dict("float64" => "Float64", "float32" => "Float32", "float16" => "Float16", "bfloat16" => "BFloat16",
                        "float8_e4m3fn" => "Float8E4M3", "float8_e5m2" => "Float8E5M2")

# Sizes in Julia's order, names of types, and what is not there as Julia says it.
function in_words_of_julia(text)
    text = replace(text, r"\[[^\[\]]*\]" => list -> size_in_julia(split(chop(list; head = 1), ", "; keepempty = false)))
    text = replace(text, word_of(TYPE_NAMES) => word -> TYPE_NAMES[word])
    text = replace(text, r"\((\w+)\.\.\. & (\w+)\.\.\.\)" => "the size that broadcasting gives")
    return foldl(replace, (" has shape " => " has size ", " is NULL, " => " is nothing, ", r"\bin_size\b" => "size",
                           "a row for each edge class" => "a column for each edge class"); init = text)
end
size_in_julia(items) =
    string('(', join(reverse(items), ", "), length(items) == 1 && !endswith(items[1], "...") ? ",)" : ")")
