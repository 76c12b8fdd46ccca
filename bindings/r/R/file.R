# SPDX-License-Identifier: Apache-2.0
# HDF5 files of named layouts and matrices.

.file_handle <- function(x) {
  .expect(x, "BlockFile", "file")
  .expect_open(x, "file")
  if (!tartan_r_live(x@state$handle, "tartan_file")) {
    .fail("handle", "the file is from a saved session, expected one that block_file() opened")
  }
  x@state$handle
}

# A path as C wants it. `file` arguments may be paths or opened files.
.path <- function(path) path.expand(.string(path, "path"))
.opened <- function(file) if (is.character(file)) block_file(file) else file

.kinds <- c("layout", "matrix")
.metadata <- function(metadata) if (!is.null(metadata)) .string(metadata, "metadata")

block_file <- function(path = NULL) {
  handle <- if (is.null(path)) tartan_file_create() else tartan_file_open(.path(path))
  methods::new("BlockFile", state = .new_state(handle = handle, kept = list()))
}

block_list <- function(file) {
  handle <- .file_handle(.opened(file))
  i <- seq_len(tartan_file_count(handle)) - 1
  kinds <- vapply(i, function(k) tartan_file_kind(handle, k), 0L)
  data.frame(name = vapply(i, function(k) tartan_file_name(handle, k), ""),
             kind = .kinds[match(kinds, vapply(.kinds, .constant, 0L))],
             layout = vapply(i, function(k) tartan_file_layout_identity(handle, k), ""))
}

# The kind of a name: a matrix where there is one, unless the user says.
.kind_of <- function(handle, name, kind) {
  if (!is.null(kind)) return(.choose(kind, .kinds, "kind"))
  for (k in seq_len(tartan_file_count(handle)) - 1) {
    if (tartan_file_kind(handle, k) == .constant("matrix") && identical(tartan_file_name(handle, k), name)) {
      return("matrix")
    }
  }
  "layout"
}

block_get <- function(file, name, kind = NULL) {
  handle <- .file_handle(.opened(file))
  if (.kind_of(handle, .string(name, "name"), kind) == "layout") {
    return(.new_layout(tartan_file_get_layout(handle, name)))
  }
  .take_matrix(tartan_file_get_matrix(handle, name))
}

block_put <- function(file, name, x, gates = NULL, metadata = NULL) {
  handle <- .file_handle(file)
  name <- .string(name, "name")
  metadata <- .metadata(metadata)
  if (methods::is(x, "BlockLayout")) {
    if (!is.null(gates)) .fail("argument", "gates are given for a layout, expected a matrix")
    own <- .layout_handle(x)
    tartan_file_put_layout(handle, name, own, metadata)
  } else {
    .matrix_handle(x)
    # A handle of the file's own: closing x must not take the values away before the file is saved.
    own <- tartan_r_matrix(.layout_handle(x@layout), x@values, .dtype_code(x@dtype))
    tartan_file_put_matrix(handle, name, own, .gates(gates), metadata)
  }
  file@state$kept[[paste(class(x), name)]] <- own
  invisible(file)
}

block_remove <- function(file, name, kind = NULL) {
  handle <- .file_handle(file)
  kind <- .kind_of(handle, .string(name, "name"), kind)
  tartan_file_remove(handle, .constant(kind), name)
  invisible(file)
}

block_gates <- function(file, name) {
  handle <- .file_handle(.opened(file))
  if (tartan_file_has_gates(handle, .string(name, "name")) == 0L) return(NULL)
  matrix <- tartan_file_get_matrix(handle, name)
  layout <- tartan_matrix_get_layout(matrix)
  gates <- tartan_file_get_gates(handle, name, tartan_layout_blocks(layout))
  tartan_r_close(matrix)
  gates
}

block_metadata <- function(file, name, kind = NULL) {
  handle <- .file_handle(.opened(file))
  kind <- .kind_of(handle, .string(name, "name"), kind)
  tartan_file_get_metadata(handle, .constant(kind), name)
}

block_write <- function(file, path, compress = FALSE) {
  keep <- if (.flag(compress, "compress")) "compressed" else "plain"
  tartan_file_save(.file_handle(file), .path(path), .constant(keep))
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

block_save <- function(path, ..., gates = list(), metadata = list(), compress = FALSE) {
  objects <- list(...)
  names(objects) <- .object_names(as.list(substitute(list(...)))[-1L])
  if (!length(objects)) .fail("argument", "there is nothing to save, expected layouts or matrices")
  twice <- anyDuplicated(names(objects))
  if (twice) .fail("argument", "the name \"%s\" is given to two objects, expected each once", names(objects)[twice])
  file <- block_file()
  on.exit(close(file))
  for (name in names(objects)) {
    block_put(file, name, objects[[name]], gates = gates[[name]], metadata = metadata[[name]])
  }
  block_write(file, path, compress)
}

block_load <- function(path, name = NULL, kind = NULL) {
  file <- block_file(path)
  on.exit(close(file))
  if (!is.null(name)) return(block_get(file, name, kind))
  all <- block_list(file)
  if (!is.null(kind)) all <- all[all$kind == .choose(kind, .kinds, "kind"), ]
  all <- all[all$kind == "matrix" | !(all$name %in% all$name[all$kind == "matrix"]), ]
  stats::setNames(Map(function(n, k) block_get(file, n, k), all$name, all$kind), all$name)
}

block_verify <- function(path) {
  report <- tartan_file_verify(.path(path))
  strsplit(report, "\n", fixed = TRUE)[[1L]]
}
