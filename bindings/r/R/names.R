# SPDX-License-Identifier: Apache-2.0
# Names of rows and columns. As in the Matrix package, dimnames() is a list of two even where there are no names.

# The dimnames of a base matrix, an array or a Matrix as those of a block matrix.
.names_of <- function(x) {
  names <- dimnames(x)[1:2]
  if (is.null(names)) .no_names else lapply(names, function(n) if (length(n)) as.character(n))
}

setMethod("dimnames", "AnyBlockMatrix", function(x) x@Dimnames)

setMethod("dimnames<-", "AnyBlockMatrix", function(x, value) {
  if (is.null(value)) value <- .no_names
  if (!is.list(value) || length(value) != 2L) {
    .fail("argument", "value is %s, expected a list of the names of rows and of columns", .shown(value))
  }
  size <- dim(x)
  for (i in 1:2) {
    names <- value[[i]]
    if (is.null(names)) next
    if (length(names) && length(names) != size[i]) {
      .fail("shape", "value[[%d]] has length %.0f, expected %.0f (%s of x)", i, length(names), size[i],
            c("rows", "columns")[i])
    }
    value[i] <- list(if (length(names)) as.character(names))
  }
  x@Dimnames <- value # base R names the list itself now and then: names(dimnames(x)) is kept
  x
})

# Some of the names; a side of length 0 has none.
.some <- function(names, at) if (length(at)) names[at]

# The names of x in an order of its blocks, counted from 0; NULL is the order that there is.
.names_of_blocks <- function(x, rows, cols) {
  names <- x@Dimnames
  orders <- list(rows, cols)
  bounds <- block_boundaries(x)
  for (i in which(!vapply(names, is.null, NA))) {
    if (is.null(orders[[i]])) next
    first <- bounds[[i]][orders[[i]] + 1]
    names[i] <- list(.some(names[[i]], sequence(bounds[[i]][orders[[i]] + 2] - first, first + 1)))
  }
  names
}
