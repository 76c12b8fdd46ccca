# SPDX-License-Identifier: Apache-2.0
# Sums, means, norms and missing values.

.expect_sum <- function(x, dims) {
  if (dims != 1) .fail("unsupported", "dims is %s, expected 1", .shown(dims))
  .expect_one_head(x, "a sum")
}

# Sums of rows (side 1) or columns (side 2), or means, with their names.
.sums <- function(x, side, na.rm, dims, sparse, mean = FALSE) {
  .expect_sum(x, dims)
  x <- .as_double(x)
  names <- x@Dimnames[[side]]
  count <- dim(x)[3L - side]
  total <- function(x) {
    as.vector(spmm(x, matrix(1, dim(x)[3L - side], 1L), transpose = side == 2L))
  }
  if (.flag(na.rm, "na.rm")) {
    values <- block_values(x)
    missing <- is.na(values)
    if (any(missing)) {
      if (mean) count <- count - total(.with_values(x, array(as.double(missing), dim(values))))
      values[missing] <- 0
      x <- .with_values(x, values)
    }
  }
  result <- total(x)
  .named_sums(if (mean) result / count else result, names, sparse)
}
.named_sums <- function(sums, names, sparse) {
  if (.flag(sparse, "sparseResult")) methods::as(sums, "sparseVector") else stats::setNames(sums, names)
}
setMethod("rowSums", "BlockMatrix", function(x, na.rm = FALSE, dims = 1, sparseResult = FALSE, ...) {
  .sums(x, 1L, na.rm, dims, sparseResult)
})
setMethod("colSums", "BlockMatrix", function(x, na.rm = FALSE, dims = 1, sparseResult = FALSE, ...) {
  .sums(x, 2L, na.rm, dims, sparseResult)
})
setMethod("rowMeans", "BlockMatrix", function(x, na.rm = FALSE, dims = 1, sparseResult = FALSE, ...) {
  .sums(x, 1L, na.rm, dims, sparseResult, mean = TRUE)
})
setMethod("colMeans", "BlockMatrix", function(x, na.rm = FALSE, dims = 1, sparseResult = FALSE, ...) {
  .sums(x, 2L, na.rm, dims, sparseResult, mean = TRUE)
})

mean.BlockMatrix <- function(x, trim = 0, na.rm = FALSE, ...) {
  if (!identical(as.double(trim), 0)) return(mean(as.vector(.small_dense(x)), trim = trim, na.rm = na.rm))
  values <- block_values(x) # padding is zero
  count <- length(x) * block_heads(x)
  if (.flag(na.rm, "na.rm")) count <- count - sum(is.na(values))
  sum(values, na.rm = na.rm) / count
}

.norm_kinds <- c(O = TARTAN_MATRIX_NORM_ONE, `1` = TARTAN_MATRIX_NORM_ONE, I = TARTAN_MATRIX_NORM_INFINITY,
                 F = TARTAN_MATRIX_NORM_FROBENIUS, E = TARTAN_MATRIX_NORM_FROBENIUS, M = TARTAN_MATRIX_NORM_MAX)
.norm <- function(x, type = "O") {
  .expect_one_head(x, "norm")
  type <- toupper(.string(type, "type"))
  if (type == "2") {
    if (inherits(x, "DeviceObject")) .expect_here(x, "norm(x, \"2\")")
    return(base::norm(.small_dense(x), "2"))
  }
  tartan_matrix_norm(.place(x = x), x, .constant(type, .norm_kinds, "type"), 1)
}
setMethod("norm", signature("AnyBlockMatrix", "missing"), function(x, type, ...) .norm(x))
setMethod("norm", signature("AnyBlockMatrix", "character"), function(x, type, ...) .norm(x, type))

setMethod("nnzero", "BlockMatrix", function(x, na.counted = NA) {
  values <- block_values(x)
  count <- sum(values != 0, na.rm = TRUE)
  unknown <- sum(is.na(values))
  if (unknown == 0 || identical(na.counted, FALSE)) count
  else if (isTRUE(na.counted)) count + unknown
  else NA_integer_
})

# ---- Which elements are missing, infinite or finite ----

.where <- function(x, f) .logical(x@layout, f(block_values(x)), x@Dimnames)
setMethod("is.na", "BlockMatrix", function(x) .where(x, is.na))
setMethod("is.nan", "BlockMatrix", function(x) .where(x, is.nan))
setMethod("is.infinite", "BlockMatrix", function(x) .where(x, is.infinite))
setMethod("is.finite", "BlockMatrix", function(x) is.finite(.small_dense(x)))
setMethod("anyNA", "BlockMatrix", function(x, recursive = FALSE) anyNA(block_values(x)))

# base R would look at the object, not at its numbers.
.expect_here <- function(x, what) {
  .fail("unsupported", "x is on %s, %s needs it in R's memory (to_host)", x@context@device, what)
}
setMethod("is.na", "DeviceObject", function(x) .expect_here(x, "is.na"))
setMethod("anyNA", "DeviceObject", function(x, recursive = FALSE) .expect_here(x, "anyNA"))
mean.DeviceArray <- function(x, ...) .expect_here(x, "mean")
