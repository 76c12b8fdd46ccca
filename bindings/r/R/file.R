# SPDX-License-Identifier: Apache-2.0
# HDF5 files of named layouts, matrices and arrays.

# A path for C. `file` arguments may be paths or open files.
.path <- function(path) path.expand(.string(path, "path"))
.opened <- function(file) if (is.character(file)) block_file(file) else file

.kinds <- c(layout = TARTAN_KIND_LAYOUT, matrix = TARTAN_KIND_MATRIX, array = TARTAN_KIND_ARRAY)
.metadata <- function(metadata) if (!is.null(metadata)) .string(metadata, "metadata")

block_file <- function(path = NULL) {
  handle <- if (is.null(path)) tartan_file_create() else tartan_file_open(.path(path))
  methods::new("BlockFile", handle = handle)
}

block_list <- function(file) {
  file <- .opened(file)
  tartan_file_list(file)
  .listed(file, seq_len(tartan_file_count(file)) - 1)
}

# The objects at these places, counted from 0, in the order in which the file has them.
.listed <- function(file, i) {
  kinds <- vapply(i, function(k) tartan_file_kind(file, k), 0L)
  identity <- function(k, kind) if (kind == TARTAN_KIND_ARRAY) NA_character_ else tartan_file_layout_identity(file, k)
  data.frame(name = vapply(i, function(k) tartan_file_name(file, k), ""),
             kind = names(.kinds)[match(kinds, .kinds)],
             layout = as.character(mapply(identity, i, kinds)))
}

# Kind, dtype, number of dimensions and shape of an object; the kind is 0 if there is none.
.about <- function(file, name) tartan_file_describe(file, name, 11)

# The kind of an object: as given, else a matrix or an array if there is one of that name.
.kind_of <- function(file, name, kind) {
  if (!is.null(kind)) return(.choose(kind, names(.kinds), "kind"))
  kind <- .about(file, name)[1L]
  if (kind == 0) {
    .fail("not_found", "the file has no matrix, array or layout %s: block_list() tells what it has", .shown(name))
  }
  names(.kinds)[match(kind, .kinds)]
}

# `range`: the first and the last of `n` rows or blocks, or NULL for all of them; as C counts them.
.part <- function(range, n, name, of) {
  if (is.null(range)) return(c(0, n))
  if (length(range) != 2L || !.is_whole(range) || range[1L] < 1 || range[2L] < range[1L] || range[2L] > n) {
    .fail("argument", "%s is %s, expected the first and the last %s, of 1 to %.0f", name, .shown(range), of, n)
  }
  c(range[1L] - 1, range[2L])
}

# The library's view of an array with R's order of dimensions, as all languages have it in files.
.array_view <- function(x) {
  size <- if (is.null(dim(x))) length(x) else dim(x)
  .view(x, size, .column_strides(size))
}

.get_array <- function(file, name, rows) {
  about <- .about(file, name)
  if (about[1L] != TARTAN_KIND_ARRAY) .fail("not_found", "the file has no array %s", .shown(name))
  dims <- about[seq_len(about[3L]) + 3L]
  if (!length(dims) && !is.null(rows)) .fail("argument", "rows are given, but %s is a single number", .shown(name))
  range <- if (length(dims)) .part(rows, dims[1L], "rows", "row") else c(0, 1)
  dims[1L] <- range[2L] - range[1L]
  x <- if (length(dims)) array(0, dims) else 0
  tartan_file_get_array(file, name, range[1L], .array_view(x))
  if (length(dims) == 1L) dim(x) <- NULL
  if (about[2L] %in% c(TARTAN_I32, TARTAN_U8)) storage.mode(x) <- "integer"
  x
}

# The values of some blocks, as block_values() gives those of all.
.get_blocks <- function(file, name, blocks) {
  layout <- .new_layout(tartan_file_get_matrix_layout(file, name))
  range <- .part(blocks, block_count(layout), "blocks", "block")
  dims <- c(layout@frame[3:4], range[2L] - range[1L])
  values <- array(0, dims)
  tartan_file_get_blocks(file, name, range[1L], .view(values, dims[c(3L, 1L, 2L)], .column_strides(dims)[c(3L, 1L, 2L)]))
  values
}

block_get <- function(file, name, kind = NULL, rows = NULL, blocks = NULL) {
  file <- .opened(file)
  kind <- .kind_of(file, .string(name, "name"), kind)
  if (!is.null(blocks)) {
    if (kind != "matrix") .fail("argument", "blocks are given, but %s is no matrix", .shown(name))
    if (!is.null(rows)) .fail("argument", "rows and blocks are given, expected one of them")
    return(.get_blocks(file, name, blocks))
  }
  if (kind == "array") return(.get_array(file, name, rows))
  if (kind == "layout") {
    if (!is.null(rows)) .fail("argument", "rows are given, but %s is a layout", .shown(name))
    return(.new_layout(tartan_file_get_layout(file, name)))
  }
  whole <- if (is.null(rows)) .take_matrix(tartan_file_get_matrix(file, name))
  frame <- if (is.null(rows)) dim(whole) else dim(.new_layout(tartan_file_get_matrix_layout(file, name)))
  range <- .part(rows, frame[1L], "rows", "row")
  matrix <- if (is.null(rows)) whole else .take_matrix(tartan_file_get_rows(file, name, range[1L], range[2L]))
  names <- .without_names(tartan_file_get_metadata(file, TARTAN_KIND_MATRIX, name), frame)$names
  if (!is.null(names)) {
    if (!is.null(rows) && !is.null(names[[1L]])) names[[1L]] <- names[[1L]][rows[1L]:rows[2L]]
    matrix@Dimnames <- names
  }
  matrix
}

# The handles of the matrices that were put into a file, by name.
.keep <- function(file, name, handle) {
  kept <- as.list(tartan_r_held(file@handle))
  kept[[name]] <- handle
  tartan_r_hold(file@handle, kept)
}

block_put <- function(file, name, x, gates = NULL, metadata = NULL) {
  .expect(file, "BlockFile", "file")
  name <- .string(name, "name")
  metadata <- .metadata(metadata)
  if (inherits(x, "BlockSparsifier")) {
    if (!is.null(gates) || !is.null(metadata)) .fail("argument", "gates or metadata are given for a sparsifier, which has none")
    tartan_sparsifier_save(x, file, name)
    return(invisible(file))
  }
  if (inherits(x, "BlockLayout")) {
    if (!is.null(gates)) .fail("argument", "gates are given for a layout, expected a matrix")
    tartan_file_put_layout(file, name, x, metadata)
    return(invisible(file))
  }
  if (is.numeric(x) && !is.object(x)) {
    if (!is.null(gates)) .fail("argument", "gates are given for an array, expected a matrix")
    # Integers go as doubles, of which R has arrays for C, and are stored as integers.
    dtype <- if (is.integer(x)) TARTAN_I32 else TARTAN_F64
    storage.mode(x) <- "double"
    tartan_file_put_array(file, name, .array_view(x), dtype, metadata)
    .keep(file, name, NULL)
    return(invisible(file))
  }
  if (!methods::is(x, "BlockMatrix")) {
    .fail("argument", "the object %s is %s, expected a BlockMatrix, a BlockLayout, a BlockSparsifier or numbers", .shown(name), .shown(x))
  }
  tartan_r_expect_open(x)
  # The file reads the values when it is saved, even if x has been closed by then, so it has its own handle.
  own <- tartan_r_wrap_values(x@layout, x@values, x@dtype)
  tartan_file_put_matrix(file, name, own, gates, .with_names(metadata, x@Dimnames))
  .keep(file, name, own)
  invisible(file)
}

block_remove <- function(file, name, kind = NULL) {
  .expect(file, "BlockFile", "file")
  kind <- .kind_of(file, .string(name, "name"), kind)
  tartan_file_remove(file, .kinds[[kind]], name)
  if (kind != "layout") .keep(file, name, NULL)
  invisible(file)
}

block_gates <- function(file, name) {
  file <- .opened(file)
  .kind_of(file, .string(name, "name"), NULL) # refuses a name that is not there
  if (tartan_file_has_gates(file, name) == 0L) return(NULL)
  matrix <- tartan_file_get_matrix(file, name)
  layout <- tartan_matrix_get_layout(matrix)
  gates <- tartan_file_get_gates(file, name, tartan_layout_blocks(layout))
  tartan_r_close(matrix)
  gates
}

block_metadata <- function(file, name, kind = NULL) {
  file <- .opened(file)
  kind <- .kind_of(file, .string(name, "name"), kind)
  text <- tartan_file_get_metadata(file, .kinds[[kind]], name)
  if (kind != "matrix" || !grepl("\"dimnames\"", text, fixed = TRUE)) return(text)
  .without_names(text, dim(block_get(file, name, kind)))$metadata
}

block_write <- function(file, path, compress = FALSE, append = FALSE) {
  .expect(file, "BlockFile", "file")
  write <- if (.flag(append, "append")) tartan_file_append else tartan_file_save
  write(file, .path(path), if (.flag(compress, "compress")) TARTAN_KEEP_COMPRESSED else TARTAN_KEEP_PLAIN)
  invisible(path)
}

# Names of the arguments in `...`: given, or those of the variables.
.object_names <- function(expressions) {
  given <- if (is.null(names(expressions))) character(length(expressions)) else names(expressions)
  symbols <- vapply(expressions, is.name, NA)
  given[!nzchar(given) & symbols] <- vapply(expressions[!nzchar(given) & symbols], as.character, "")
  if (!all(nzchar(given))) .fail("argument", "an object has no name, expected name = value")
  given
}

# Gates or metadata for block_save: a list by the names of the objects.
.by_name <- function(x, name) {
  if (!is.list(x) || (length(x) && (is.null(names(x)) || !all(nzchar(names(x)))))) {
    .fail("argument", "%s is %s, expected a list with the names of objects", name, .shown(x))
  }
  x
}
.expect_objects <- function(x, name, objects) {
  unknown <- setdiff(names(x), objects)
  if (length(unknown)) .fail("argument", "%s names \"%s\", which is no object to save", name, unknown[1L])
  twice <- anyDuplicated(names(x))
  if (twice) .fail("argument", "%s names \"%s\" twice", name, names(x)[twice])
}

# A list of objects, which may be all that block_load returned: then its attributes have the rest of the file. Given gates
# and metadata count more than those.
.contents <- function(x, gates, metadata) {
  if (is.null(names(x)) || !all(nzchar(names(x)))) .fail("argument", "an object in a list has no name, expected name = value")
  more <- function(given, kept) c(given, kept[setdiff(names(kept), names(given))])
  list(objects = x, layouts = attr(x, "layouts"), gates = more(gates, attr(x, "gates")),
       metadata = more(metadata, attr(x, "metadata")))
}

# `...` comes first, so that `p = a` names an object and is not taken for `path = a`.
block_save <- function(..., path, gates = list(), metadata = list(), compress = FALSE, append = FALSE) {
  objects <- list(...)
  expressions <- as.list(substitute(list(...)))[-1L]
  if (missing(path)) {
    first <- which(if (is.null(names(objects))) TRUE else !nzchar(names(objects)))[1L]
    if (!length(objects) || is.na(first)) .fail("argument", "path is missing, expected the path of a file")
    path <- objects[[first]]
    objects <- objects[-first]
    expressions <- expressions[-first]
  }
  path <- .path(path)
  layouts <- NULL
  gates <- .by_name(gates, "gates")
  metadata <- .by_name(metadata, "metadata")
  if (length(objects) == 1L && is.list(objects[[1L]])) {
    all <- .contents(objects[[1L]], gates, metadata)
    objects <- all$objects
    layouts <- all$layouts
    gates <- all$gates
    metadata <- all$metadata
  } else {
    names(objects) <- .object_names(expressions)
  }
  if (!length(objects)) .fail("argument", "there is nothing to save, expected layouts, matrices or numbers")
  twice <- anyDuplicated(names(objects))
  if (twice) .fail("argument", "the name \"%s\" is given to two objects, expected each once", names(objects)[twice])
  .expect_objects(gates, "gates", names(objects))
  .expect_objects(metadata, "metadata", names(objects))
  file <- block_file()
  on.exit(close(file))
  for (name in names(objects)) {
    block_put(file, name, objects[[name]], gates = gates[[name]], metadata = metadata[[name]])
  }
  for (name in names(layouts)) block_put(file, name, layouts[[name]], metadata = attr(layouts, "metadata")[[name]])
  block_write(file, path, compress, append)
}

block_load <- function(path, name = NULL, kind = NULL, rows = NULL, blocks = NULL) {
  file <- block_file(path)
  on.exit(close(file))
  if (!is.null(name)) return(block_get(file, name, kind, rows, blocks))
  if (!is.null(rows)) .fail("argument", "rows are given without the name of an object")
  if (!is.null(blocks)) .fail("argument", "blocks are given without the name of a matrix")
  all <- block_list(file)
  if (!is.null(kind)) all <- all[all$kind == .choose(kind, names(.kinds), "kind"), ]
  hidden <- all$kind == "layout" & all$name %in% all$name[all$kind != "layout"]
  each <- function(which, get) Filter(function(x) length(x) && !identical(x, ""),
                                      Map(get, all$name[which], all$kind[which]))
  get <- function(n, k) block_get(file, n, k)
  get_metadata <- function(n, k) block_metadata(file, n, k)
  found <- Map(get, all$name[!hidden], all$kind[!hidden])
  kept <- list(gates = each(all$kind == "matrix", function(n, k) block_gates(file, n)),
               metadata = each(!hidden, get_metadata), layouts = each(hidden, get))
  if (length(kept$layouts)) attr(kept$layouts, "metadata") <- each(hidden, get_metadata)
  for (what in names(kept)) if (length(kept[[what]])) attr(found, what) <- kept[[what]]
  found
}
