# SPDX-License-Identifier: Apache-2.0
# What functions of base R and Matrix make of block matrices: the right answer, or a refusal.

test_that("missing values are seen", {
  m <- matrix(c(1, NA, 0, 0, NaN, 4, 0, 0), 4)
  a <- block_matrix(m, block = 2)
  expect_identical(unname(as.matrix(is.na(a))), is.na(m))
  expect_true(anyNA(a))
  expect_false(anyNA(random_matrix()))
  expect_identical(mean(a), NA_real_ + 0)
  b <- random_matrix()
  expect_equal(mean(b), mean(as.matrix(b)))
  h <- random_matrix(c(6, 8), c(2, 4), heads = 3)
  expect_equal(mean(h), mean(as.array(h)))
  expect_equal(mean(a, na.rm = TRUE), mean(m, na.rm = TRUE))
  ctx <- tartan_context("cpu")
  for (x in list(to_device(a, ctx), to_device(1:3, ctx))) {
    expect_refused(is.na(x), "unsupported", "is.na", "to_host")
    expect_refused(anyNA(x), "unsupported", "anyNA")
  }
  expect_true(is.na(mean(to_device(a, ctx))))
  expect_refused(mean(to_device(1:3, ctx)), "unsupported", "mean")
})

test_that("bound matrices are block-sparse", {
  a <- random_matrix()
  m <- as.matrix(a)
  s <- as(a, "dgCMatrix")
  for (x in list(cbind(a, a), cbind(a, s), cbind(s, a), cbind(a, m), cbind(m, a))) {
    expect_s4_class(x, "BlockMatrix")
    expect_identical(as.matrix(x), cbind(m, m))
  }
  for (x in list(rbind(a, a), rbind(a, s), rbind(s, a), rbind(a, m), rbind(m, a))) {
    expect_s4_class(x, "BlockMatrix")
    expect_identical(as.matrix(x), rbind(m, m))
  }
  expect_identical(as.matrix(cbind(1, a)), cbind(1, m))
  expect_identical(as.matrix(rbind(a, 1:17)), rbind(m, 1:17))
  expect_identical(as.matrix(cbind(a, a, a)), cbind(m, m, m))
  expect_identical(cbind(a), a)
  expect_identical(as.matrix(cbind(a, Diagonal(21))), cbind(m, diag(21)))
  expect_refused(cbind(a, 1:5), "shape", "length 5, expected 21")
  expect_refused(rbind(a, t(a)), "shape", "21", "17")
  expect_refused(cbind(a, "x"), "argument")
})

test_that("nothing large becomes dense unasked", {
  n <- 20000
  a <- block_matrix(block_pattern("banded", c(n, n), 4), init = "normal", seed = 1)
  for (f in list(function(x) eigen(x), function(x) apply(x, 1, sum), function(x) scale(x), function(x) x + 1,
                 function(x) 1 / x, function(x) x / x, function(x) x^0, function(x) exp(x), function(x) x == 0,
                 function(x) !x, function(x) x * NA, function(x) cumsum(x), function(x) is.finite(x),
                 function(x) svd(x), function(x) mean(x, trim = 0.1), function(x) norm(x, "2"), function(x) kronecker(x, diag(2), "+"), function(x) sweep(x, 1, 1, max),
                 function(x) sweep(x, 1, numeric(n)) + 1)) {
    expect_refused(f(a), "unsupported", "2.98 GiB", "as.matrix(x)")
  }
  expect_refused({ a[] <- 1 }, "unsupported", "2.98 GiB", "block_matrix()")
  for (f in list(order, rev)) expect_refused(f(a), "unsupported", "2.98 GiB")
  for (f in list(sort, median)) expect_error(f(a), "2.98 GiB", fixed = TRUE)
  for (f in list(function(x) x[-1], function(x) x[c(TRUE, TRUE)], function(x) { x[-1] <- 0 })) {
    expect_refused(f(a), "unsupported", "i selects 2.98 GiB of elements, expected at most 1 GiB: use x[i, j]")
  }
  most <- peak_memory({
    b <- Diagonal(n) - 0.3 * a
    b <- b / rowSums(abs(b))
    b[1:10000, ] <- 0
    b <- rbind(b[seq(1, n, 3), ], b[n:1, ] * 2)
    diag(b) <- 2
    wide <- b
    dim(wide) <- rev(dim(b))
    expect_s4_class(rep(diff(wide), each = 2), "dsparseVector")
    b <- scale(kronecker(tril(b), diag(2)), FALSE)
    sum(b > 0) + sum(is.na(b))
  })
  expect_s4_class(b, "BlockMatrix")
  expect_lt(most, 1500) # of 3052 as a dense matrix
  b <- random_matrix()
  expect_equal(apply(b, 1, sum), rowSums(b))
  expect_equal(svd(b)$d, svd(as.matrix(b))$d)
})

test_that("negative indices that are not there are ignored, as in base R", {
  a <- random_matrix(c(12, 9), c(4, 3))
  m <- as.matrix(a)
  for (i in list(-13, c(-13, -2), c(-1, -1, -99), -(1:12), c(0, -3), c(-3, -99999))) {
    expect_identical(unname(as.matrix(a[i, , drop = FALSE])), m[i, , drop = FALSE])
    expect_identical(unname(as.matrix(a[, i, drop = FALSE])), m[, i, drop = FALSE])
  }
  expect_identical(a[-c(1:3, 1000)], m[-c(1:3, 1000)])
  expect_refused(a[c(-1, 2), ], "layout", "i[1] is -1")
  expect_refused(a[-1.5e300, 13], "layout", "j[1] is 13")
})

test_that("selections stay sparse", {
  a <- block_matrix(block_pattern("banded", c(1500, 1300), 16), init = "normal", seed = 1)
  m <- as.matrix(a)
  i <- sample(1500)
  j <- sample(1300)
  expect_s4_class(a[i, j], "BlockMatrix")
  expect_identical(as.matrix(a[i, j]), m[i, j])
  expect_identical(as.matrix(a[i, ]), m[i, ])
  expect_identical(as.matrix(a[100:900, ]), m[100:900, ])
  n <- 16000
  a <- block_matrix(block_pattern("banded", c(n, n), 16), init = "normal", seed = 1)
  whole <- as.vector(outer(1:16, (rev(seq_len(n / 16)) - 1) * 16, "+"))
  b <- a[whole, whole]
  expect_true(b@layout == block_permute(a@layout, (n / 16):1, (n / 16):1))
  expect_identical(as.matrix(b[1:40, 1:40]), as.matrix(a[whole[1:40], whole[1:40]]))
  p <- sample(n)
  q <- order(p)
  b <- block_cast(a, "float32")[p, p]
  expect_identical(block_dtype(b), "float32")
  at <- sample(n, 50)
  expect_identical(as.matrix(b[at, q[1:50]]), as.matrix(block_cast(a, "float32")[p[at], 1:50]))
})

test_that("a layout says how large blocks are", {
  layout <- small_layout()
  m <- as.matrix(block_matrix(layout, init = "normal", seed = 1))
  expect_refused(block_matrix(m, layout = layout, block = 4), "argument", "block is given beside layout")
  expect_refused(block_matrix(as(m, "CsparseMatrix"), block = 4, layout = layout), "argument", "block is given")
})

test_that("patterns that draw nothing leave R's generator alone", {
  set.seed(1)
  before <- .Random.seed
  for (name in c("dense", "banded", "causal", "butterfly")) block_pattern(name, c(64, 64), 8)
  block_pattern("random", c(64, 64), 8, seed = 3)
  expect_identical(.Random.seed, before)
  expect_error(block_pattern("nosuch", c(64, 64), 8))
  expect_identical(.Random.seed, before)
  for (name in c("random", "balanced_random", "bigbird", "barabasi_albert", "watts_strogatz", "watts_strogatz_2d")) {
    set.seed(1)
    block_pattern(name, c(64, 64), 8)
    expect_false(identical(.Random.seed, before))
  }
})

test_that("refusals are short and say which call", {
  long <- rnorm(1e6)
  most <- peak_memory(error <- expect_refused(block_layout(1, 1, c(8, 8), block = long), "argument", ", ..."))
  expect_lt(nchar(conditionMessage(error)), 200)
  expect_lt(most, 16) # the text of all numbers is longer
  error <- expect_refused(block_pattern(strrep("x", 1e6), c(8, 8)), "not_found")
  expect_lt(nchar(conditionMessage(error)), 1000)
  expect_lt(nchar(conditionMessage(expect_refused(block_matrix(strrep("x", 1e6)), "argument"))), 200)
  error <- expect_refused(block_layout(3, 1, c(8, 8), 4), "layout")
  expect_identical(conditionCall(error), quote(block_layout(3, 1, c(8, 8), 4)))
  a <- random_matrix()
  expect_identical(conditionCall(expect_refused(a %*% 1:5, "shape")), quote(a %*% 1:5))
  through <- function(x) sapply(1, function(i) block_cast(x, "float8"))
  environment(through) <- globalenv() # that of a test is inside the package
  expect_identical(conditionCall(expect_refused(through(a), "dtype")), quote(block_cast(x, "float8")))
  expect_identical(conditionCall(expect_refused(block_mask(block_layout(1, 1, 8, 4)), "argument")),
                   quote(block_layout(1, 1, 8, 4)))
  expect_identical(conditionCall(expect_refused(cbind(a, 1:5), "shape")), quote(cbind(a, 1:5)))
})

test_that("empty prototypes print", {
  expect_output(show(new("BlockMatrix")), "not made by this package")
  expect_output(show(new("BlockLayout")), "not made by this package")
  expect_identical(dim(new("BlockMatrix")), c(0L, 0L))
})

test_that("print() shows what show() does, and small matrices with their numbers", {
  m <- matrix(c(1.23456, 0, 0, 2), 2)
  a <- block_matrix(rbind(cbind(m, 0 * m), cbind(0 * m, 0 * m)), block = 2)
  text <- capture.output(print(a, digits = 3))
  expect_identical(text[1], "BlockMatrix float64 4 x 4, blocks 2 x 2: 1 of 4 stored (25 %)")
  expect_match(text[3], "^\\[1,\\] +1.23 +0 +[.] +[.]")
  expect_match(text[4], "^\\[2,\\] +0(.00)? +2(.00)? +[.] +[.]")
  expect_match(text[5], "^\\[3,\\] +[.] +[.] +[.] +[.]")
  expect_length(text, 6)
  expect_identical(capture.output(print(a)), capture.output(show(a)))
  dimnames(a) <- list(letters[1:4], LETTERS[1:4])
  expect_match(capture.output(a)[2], "A +B +C +D")
  wide <- block_matrix(block_pattern("banded", c(40, 40), 4))
  expect_identical(capture.output(print(wide, digits = 3)), capture.output(show(wide)))
  expect_length(capture.output(wide), 11)
  close(a)
  expect_identical(capture.output(print(a, digits = 3)), c("BlockMatrix float64 4 x 4, blocks 2 x 2: 1 of 4 stored (25 %), closed", "  #.", "  .."))
  h <- random_matrix(c(6, 8), c(2, 4), heads = 3)
  for (x in list(h, h@layout, wide@layout, tartan_context("cpu"), to_device(1:3, tartan_context("cpu")))) {
    expect_identical(capture.output(shown <- print(x, digits = 3)), capture.output(show(x)))
    expect_identical(shown, x)
  }
})

test_that("refusals count from 1", {
  expect_refused(block_move(block_layout(1:2, 1:2, c(8, 8), 4), 1, 2, 2), "layout", "block row 2, block column 2 of head 1 appears twice")
  expect_refused(block_layout(c(1, 2, 2), c(1, 3, 3), c(8, 12), 4), "layout", "block (2, 3) is given twice: entries 2 and 3")
  expect_refused(block_move(block_layout(1:2, 1:2, c(8, 8), 4), c(2, 2), c(1, 2), c(2, 1)), "layout", "id[2] is 2 again")
  bad <- block_matrix(matrix(c(1, 2, NaN, 4), 2), block = c(1, 2))
  expect_refused(block_check(bad, finite = TRUE), "argument", "in block 1 (head 1, block row 1, block column 1) at (1, 2)")
  expect_refused(block_prune(block_layout(1:2, 1:2, c(8, 8), 4), c(1, NaN)), "argument", "[2] is NaN")
  expect_refused(block_layout_from_csr(c(0, 2, 2), c(2, 2), c(8, 8), 4), "layout", "block row 1, block column 2 of head 1 appears twice")
})

test_that("the package can be cited and has its help", {
  expect_match(format(citation("tartan"), style = "text"), "2026")
  expect_length(as.character(help("BlockMatrix", package = "tartan")), 1L)
  expect_length(as.character(help("BlockLayout", package = "tartan")), 1L)
})

test_that("pictures have axes that count rows downwards", {
  drawn <- list()
  local({
    pdf(NULL)
    on.exit(dev.off())
    image(block_pattern("banded", c(40, 60), 4))
    drawn <<- par("usr")
    expect_silent(image(block_pattern("banded", c(40, 60), 4), axes = FALSE))
  })
  expect_gte(drawn[2], 60)
})

test_that("titles of pictures stand above the labels of the columns", {
  file <- tempfile(fileext = ".pdf")
  for (shape in list(c(40, 60), c(60, 40), c(50, 50))) {
    local({
      pdf(file, compress = FALSE, useKerning = FALSE)
      on.exit(dev.off())
      image(block_pattern("banded", shape, 4), main = "weights")
    })
    page <- grep(" Tm ", readLines(file, warn = FALSE), value = TRUE, useBytes = TRUE)
    height <- as.numeric(sub(".* ([0-9.]+) Tm .*", "\\1", page))
    expect_identical(sum(grepl("(weights)", page, fixed = TRUE)), 1L)
    expect_gt(height[grepl("(weights)", page, fixed = TRUE)], max(height[!grepl("(weights)", page, fixed = TRUE)]) + 10)
  }
})
