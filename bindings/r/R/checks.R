# SPDX-License-Identifier: Apache-2.0
# Checks of user arguments: counts from 1, names, choices. C checks the rest.

.choose <- function(value, choices, name) {
  if (identical(value, choices)) return(choices[1L])
  if (!is.character(value) || length(value) != 1L || !(value %in% choices)) {
    .fail("argument", "%s is %s, expected %s", name, .shown(value), paste0("\"", choices, "\"", collapse = " or "))
  }
  value
}

# The constant of the choice: .constant("l2", c(l2 = TARTAN_NORM_L2, max = TARTAN_NORM_MAX), "norm").
.constant <- function(value, constants, name) constants[[.choose(value, names(constants), name)]]

.norms <- c(l2 = TARTAN_NORM_L2, l1 = TARTAN_NORM_L1, max = TARTAN_NORM_MAX)

.is_whole <- function(x) is.numeric(x) && !is.factor(x) && all(is.finite(x)) && all(x == trunc(x))

.count <- function(x, name, least = 0, most = 2^53) {
  if (length(x) != 1L || !.is_whole(x) || x < least || x > most) {
    .fail("argument", "%s is %s, expected a whole number from %.0f to %.0f", name, .shown(x), least, most)
  }
  as.double(x)
}

.flag <- function(x, name) {
  if (!is.logical(x) || length(x) != 1L || is.na(x)) {
    .fail("argument", "%s is %s, expected TRUE or FALSE", name, .shown(x))
  }
  x
}

.string <- function(x, name) {
  if (!is.character(x) || length(x) != 1L || is.na(x)) {
    .fail("argument", "%s is %s, expected one string", name, .shown(x))
  }
  x
}

# Indices from 1 to n, as C counts them: from 0.
.index <- function(x, n, name, of) {
  if (!is.numeric(x) || is.factor(x)) .fail("argument", "%s is %s, expected numbers", name, .shown(x))
  bad <- which(!(is.finite(x) & x == trunc(x)))
  if (length(bad)) .fail("argument", "%s[%d] is %s, expected a whole number", name, bad[1L], .shown(x[bad[1L]]))
  bad <- which(x < 1 | x > n)
  if (length(bad)) .fail("layout", "%s[%d] is %s, expected 1 to %.0f (%s)", name, bad[1L], .shown(x[bad[1L]]), n, of)
  as.double(x) - 1
}

.same_length <- function(x, y, xname, yname) {
  if (length(x) != length(y)) {
    .fail("shape", "%s has length %d, expected %d (the length of %s)", yname, length(y), length(x), xname)
  }
}

# A pair of numbers; one number means both.
.pair <- function(x, name, least = 0, most = 2^53) {
  if (!(length(x) %in% 1:2) || !.is_whole(x) || any(x < least) || any(x > most)) {
    .fail("argument", "%s is %s, expected two whole numbers from %.0f to %.0f", name, .shown(x), least, most)
  }
  rep_len(as.double(x), 2L)
}

# The frame that C expects: rows, cols, block_rows, block_cols, heads.
.frame <- function(dim, block, heads = 1) {
  if (length(dim) != 2L) .fail("argument", "dim is %s, expected rows and columns", .shown(dim))
  frame <- c(.pair(dim, "dim"), .pair(block, "block", 1, 256), .count(heads, "heads", 1, 2^20))
  grid <- .grid(frame)
  if (any(grid > .Machine$integer.max)) {
    .fail("overflow", "the grid has %.0f x %.0f blocks, expected at most %d a side", grid[1L], grid[2L],
          .Machine$integer.max)
  }
  frame
}

.grid <- function(frame) ceiling(frame[1:2] / frame[3:4])

# The given seed, or one drawn from R's generator.
.seed <- function(seed) {
  if (is.null(seed)) return(floor(stats::runif(1) * 2^31))
  .count(seed, "seed")
}

.dtypes <- c("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")

.dtype_code <- function(dtype, name = "dtype") tartan_dtype_of(.dtype_name(dtype, name))
.memory_code <- function(dtype) switch(dtype, int32 = TARTAN_I32, uint8 = TARTAN_U8, .dtype_code(dtype))
.dtype_name <- function(dtype, name = "dtype") {
  if (!is.character(dtype) || length(dtype) != 1L || !(dtype %in% .dtypes)) {
    .fail("dtype", "%s is %s, expected %s", name, .shown(dtype), paste0("\"", .dtypes, "\"", collapse = " or "))
  }
  dtype
}

.expect <- function(x, class, name) {
  if (!inherits(x, class)) .fail("argument", "%s is %s, expected a %s", name, .shown(x), class)
}

.expect_one_head <- function(x, what) {
  heads <- .frame_of(x)[5L]
  if (heads != 1) .fail("shape", "x has %.0f heads, %s needs one", heads, what)
}
