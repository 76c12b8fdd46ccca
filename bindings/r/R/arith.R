# SPDX-License-Identifier: Apache-2.0
# Arithmetic that keeps the zeros outside the blocks; everything else is refused with a reason.

.with_values <- function(x, values) {
  block_values(x) <- values
  x
}

.scalar <- function(e, name) {
  if (length(e) != 1L) .fail("shape", "%s has length %d, expected one number", name, length(e))
  if (!is.finite(e)) {
    .fail("argument", "%s is %s, expected a finite number (zeros outside the blocks would become NaN)", name, .shown(e))
  }
  as.double(e)
}

.dense_result <- function(op) {
  .fail("unsupported", "%s gives no block-sparse matrix, expected * or / by a number: use as.matrix(x) first", op)
}

setMethod("Arith", signature("BlockMatrix", "numeric"), function(e1, e2) {
  if (!(.Generic %in% c("*", "/"))) .dense_result(.Generic)
  e2 <- .scalar(e2, "e2")
  if (.Generic == "/" && e2 == 0) {
    .fail("argument", "e2 is 0, expected another divisor (zeros outside the blocks would become NaN)")
  }
  .with_values(e1, methods::callGeneric(block_values(e1), e2))
})
setMethod("Arith", signature("numeric", "BlockMatrix"), function(e1, e2) {
  if (.Generic != "*") .dense_result(.Generic)
  .with_values(e2, block_values(e2) * .scalar(e1, "e1"))
})
setMethod("Arith", signature("BlockMatrix", "missing"), function(e1, e2) {
  .with_values(e1, methods::callGeneric(block_values(e1)))
})
setMethod("Arith", signature("BlockMatrix", "BlockMatrix"), function(e1, e2) {
  if (!(.Generic %in% c("+", "-", "*"))) .dense_result(.Generic)
  if (e1@dtype != e2@dtype) .fail("dtype", "e2 is %s, expected %s (the dtype of e1)", e2@dtype, e1@dtype)
  if (block_identity(e1) != block_identity(e2)) {
    layout <- if (.Generic == "*") block_intersection(e1, e2) else block_union(e1, e2)
    e1 <- block_project(e1, layout)
    e2 <- block_project(e2, layout)
  }
  .with_values(e1, methods::callGeneric(block_values(e1), block_values(e2)))
})

setMethod("|", signature("BlockLayout", "BlockLayout"), function(e1, e2) block_union(e1, e2))
setMethod("&", signature("BlockLayout", "BlockLayout"), function(e1, e2) block_intersection(e1, e2))
setMethod("-", signature("BlockLayout", "BlockLayout"), function(e1, e2) block_difference(e1, e2))
setMethod("==", signature("BlockLayout", "BlockLayout"), function(e1, e2) {
  identical(block_identity(e1), block_identity(e2))
})
setMethod("!=", signature("BlockLayout", "BlockLayout"), function(e1, e2) {
  !identical(block_identity(e1), block_identity(e2))
})
