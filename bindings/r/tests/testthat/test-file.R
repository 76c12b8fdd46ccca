# SPDX-License-Identifier: Apache-2.0

file_path <- function() tempfile(fileext = ".h5")

test_that("objects stay in order, and a bad one is named", {
  w <- random_matrix()
  f <- tempfile(fileext = ".h5")
  block_save(f, list(layer1 = w, layer2 = w * 2, layer10 = w * 3))
  # R keeps the order in which the library has the objects.
  expect_identical(names(block_load(f)), block_list(f)$name)
  expect_refused(block_save(f, list(weights = w, bias = c("1", "2"))), "argument",
                 "the object \"bias\" is c(\"1\", \"2\"), expected a BlockMatrix, a BlockLayout, a BlockSparsifier or numbers")
  expect_refused(block_save(f, a = w, b = NULL), "argument", "the object \"b\" is NULL")
  expect_length(block_load(f), 3L) # as it was
})

test_that("a file of many objects is shown in part, and one of a saved session says so", {
  file <- block_file()
  layout <- small_layout()
  for (i in 1:45) block_put(file, sprintf("layout%02d", i), layout)
  text <- capture.output(file)
  expect_identical(text[1], "BlockFile of 45 objects")
  expect_identical(text[length(text)], "... and 25 more: block_list() has all")
  expect_length(text, 23)
  restored <- unserialize(serialize(file, NULL))
  expect_identical(capture.output(restored), "BlockFile of a saved session: block_file() opens files")
  expect_output(print(restored, digits = 3), "saved session")
  expect_refused(block_list(restored), "handle", "saved session")
})

test_that("layouts and matrices come back as they were", {
  path <- file_path()
  a <- random_matrix()
  b <- block_matrix(a@layout, init = "normal", seed = 1)
  c <- block_cast(random_matrix(c(6, 8), c(2, 4), heads = 3), "bfloat16")
  only <- small_layout()
  for (compress in c(FALSE, TRUE)) {
    block_save(path, a, second = b, c, only, compress = compress)
    listed <- block_list(path)
    expect_true(all(c("a", "second", "c") %in% listed$name[listed$kind == "matrix"]))
    expect_true("only" %in% listed$name[listed$kind == "layout"])
    ids <- listed$layout[listed$name %in% c("a", "second") & listed$kind == "matrix"]
    expect_identical(ids, rep(block_identity(a), 2))
    all <- block_load(path)
    expect_setequal(names(all), c("a", "second", "c", "only"))
    for (name in c("a", "c")) {
      expect_identical(all[[name]]@values, get(name)@values)
      expect_identical(block_identity(all[[name]]), block_identity(get(name)))
      expect_identical(block_dtype(all[[name]]), block_dtype(get(name)))
    }
    expect_identical(block_values(block_load(path, "second")), block_values(b))
    expect_true(block_load(path, "only") == only)
    expect_true(length(block_verify(path)) >= 4)
  }
  unlink(path)
})

test_that("gates, metadata and recipes are kept", {
  path <- file_path()
  a <- block_matrix(block_pattern("banded", c(32, 32), 8), init = "normal", seed = 1)
  gates <- runif(block_count(a))
  block_save(path, w = a, gates = list(w = gates), metadata = list(w = "{\"note\": \"gr\u00fc\u00df\"}"))
  expect_identical(block_gates(path, "w"), gates)
  expect_identical(block_metadata(path, "w"), "{\"note\": \"gr\u00fc\u00df\"}")
  expect_match(block_recipe(block_load(path, "w")), "banded")
  file <- block_file(path)
  block_put(file, "v", a * 2)
  expect_null(block_gates(file, "v"))
  expect_identical(block_metadata(file, "v"), "")
  block_put(file, "v", a * 2, metadata = block_metadata(file, "v"))
  expect_identical(block_metadata(file, "v"), "")
  block_remove(file, "w")
  block_write(file, path)
  close(file)
  listed <- block_list(path)
  expect_identical(listed$name[listed$kind == "matrix"], "v")
  expect_equal(as.matrix(block_load(path, "v")), as.matrix(a) * 2)
  unlink(path)
})

test_that("an open file may outlive what was put into it", {
  path <- file_path()
  file <- block_file()
  a <- random_matrix()
  values <- block_values(a)
  block_put(file, "a", a)
  close(a)
  rm(a)
  gc()
  block_write(file, path)
  expect_identical(block_values(block_load(path, "a")), values)
  close(file)
  unlink(path)
})

test_that("other programs' files of the same schema are ours", {
  skip_if_not(nzchar(Sys.which("h5dump")), "h5dump is not there")
  path <- file_path()
  a <- block_matrix(matrix(1:4 + 0, 2), block = 2)
  block_save(path, a)
  dump <- system2("h5dump", c("-d", "/tensors/a", path), stdout = TRUE, stderr = TRUE)
  expect_true(any(grepl(", 4$", dump)))
  unlink(path)
})

test_that("missing, foreign and damaged files are refused", {
  path <- file_path()
  expect_refused(block_load(path), "file", path)
  expect_refused(block_verify(path), "file", path)
  expect_refused(block_load(tempdir()), "file")
  expect_refused(block_load(NA_character_), "argument", "path is NA")
  expect_refused(block_load(1), "argument", "path is 1")
  writeLines("no HDF5", path)
  expect_refused(block_load(path), "format")
  a <- random_matrix()
  block_save(path, a)
  bytes <- readBin(path, "raw", file.size(path))
  for (cut in c(0, 1, 100, length(bytes) %/% 2, length(bytes) - 1)) {
    writeBin(bytes[seq_len(cut)], path)
    expect_refused(block_load(path), "format")
  }
  set.seed(3)
  for (at in sample(length(bytes), 25)) {
    flipped <- bytes
    flipped[at] <- xor(flipped[at], as.raw(0x10))
    writeBin(flipped, path)
    error <- tryCatch(block_load(path), tartan_error = identity)
    expect_s3_class(error, "tartan_error")
    expect_s3_class(tryCatch(block_verify(path), tartan_error = identity), "tartan_error")
  }
  unlink(path)
})

test_that("names and objects are checked, files stay as they were", {
  path <- file_path()
  a <- random_matrix()
  block_save(path, a)
  before <- tools::md5sum(path)
  expect_refused(block_load(path, "b"), "not_found", "b")
  expect_refused(block_load(path, "a", kind = "picture"), "argument", "kind is \"picture\"")
  expect_refused(block_save(path, "x\ny" = a), "argument", "name")
  expect_refused(block_save(path, a * 2), "argument", "no name")
  expect_refused(block_save(path), "argument", "nothing to save")
  expect_refused(block_save(path, x = TRUE), "argument", "the object \"x\" is TRUE, expected a BlockMatrix, a BlockLayout, a BlockSparsifier or numbers")
  expect_refused(block_save(path, a, gates = list(a = 1)), "shape", "gates")
  expect_refused(block_save(path, a, metadata = list(a = NA)), "argument", "metadata")
  expect_refused(block_save(path, a, compress = NA), "argument", "compress is NA")
  expect_refused(block_save(file.path(tempdir(), "no", "such", "place.h5"), a), "file")
  expect_identical(tools::md5sum(path), before)
  file <- block_file(path)
  expect_refused(block_remove(file, "b"), "not_found", "b")
  expect_refused(block_put(file, "l", a@layout, gates = 1), "argument", "layout")
  expect_refused(block_get(1, "a"), "argument", "file is 1")
  close(file)
  unlink(path)
})

# R cannot limit itself: a limit on the size of files, set by the shell, stands for a full disk, since write() fails in
# the middle either way.
test_that("a full disk leaves the old file", {
  skip_if(!nzchar(Sys.which("bash")))
  folder <- tempfile("disk")
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  path <- file.path(folder, "weights.h5")
  a <- block_matrix(diag(4), block = c(2, 2))
  block_save(path, a = a)
  before <- tools::md5sum(path)
  script <- file.path(folder, "save.R")
  writeLines(c(sprintf(".libPaths(%s)", paste(deparse(.libPaths()), collapse = "")),
               "suppressPackageStartupMessages(library(tartan))",
               "b <- block_matrix(matrix(1, 256, 256), block = c(16, 16))",
               sprintf("e <- tryCatch(block_save(%s, b = b), tartan_error = identity)", deparse(path)),
               "cat(class(e)[1], conditionMessage(e))"), script)
  command <- sprintf("trap '' XFSZ; ulimit -f 64; exec %s --vanilla %s", shQuote(file.path(R.home("bin"), "Rscript")),
                     shQuote(script))
  said <- system2("bash", c("-c", shQuote(command)), stdout = TRUE, stderr = TRUE)
  expect_match(said, "^tartan_error_file .*File too large", all = FALSE)
  expect_identical(tools::md5sum(path), before)
  expect_setequal(list.files(folder, all.files = TRUE, no.. = TRUE), c("save.R", "weights.h5"))
})

test_that("a name given twice is refused", {
  path <- tempfile(fileext = ".h5")
  a <- block_matrix(diag(4), block = c(2, 2))
  error <- tryCatch(block_save(path, a = a, a = a), tartan_error = identity)
  expect_s3_class(error, "tartan_error_argument")
  expect_match(conditionMessage(error), "the name \"a\" is given to two objects", fixed = TRUE)
  expect_false(file.exists(path))
})

test_that("what is given for no object is refused, before anything is written", {
  path <- tempfile(fileext = ".h5")
  A <- random_matrix()
  g <- runif(block_count(A))
  expect_refused(block_save(path, weights = A, gates = list(Weights = g)), "argument", "gates names \"Weights\"")
  expect_refused(block_save(path, weights = A, metadata = list(weight = "1")), "argument", "metadata names \"weight\"")
  expect_refused(block_save(path, weights = A, gates = g), "argument", "expected a list with the names of objects")
  expect_refused(block_save(path, weights = A, gates = list(g)), "argument", "expected a list with the names")
  expect_refused(block_save(path, weights = A, gates = list(weights = g, weights = g)), "argument", "twice")
  for (text in c("note", "{a: 1}", " ", "[1,]")) {
    expect_refused(block_save(path, weights = A, metadata = list(weights = text)), "argument", "expected JSON")
  }
  expect_false(file.exists(path))
  block_save(path, weights = A, gates = list(weights = g))
  expect_identical(block_gates(path, "weights"), g)
  unlink(path)
})

test_that("no name of an object is taken for the path", {
  path <- tempfile(fileext = ".h5")
  A <- random_matrix()
  block_save(path, p = A, pa = A * 2)
  expect_identical(block_list(path)$name, c("p", "pa"))
  expect_identical(as.matrix(block_load(path, "p")), as.matrix(A))
  block_save(pat = A, path, gates = list(pat = rep(1, block_count(A))))
  expect_identical(block_list(path)$name, "pat")
  block_save(path = path, p = A)
  expect_identical(block_list(path)$name, "p")
  unlink(path)
  expect_refused(block_save(p = A), "argument", "path is missing")
})

test_that("names may have slashes", {
  path <- file_path()
  a <- random_matrix()
  block_save(path, "layer/weights" = a)
  expect_identical(block_list(path)$name, "layer/weights")
  expect_identical(block_values(block_load(path)[["layer/weights"]]), block_values(a))
  unlink(path)
})

test_that("dimnames are kept", {
  path <- file_path()
  on.exit(unlink(path))
  odd <- c("plain", "gr\u00fc\u00df", "a \"quote\"", "back\\slash", "tab\tnew\nline", "[x, null]", "", "null", "u\\u0041", "\u001f")
  a <- random_matrix(c(10, 6), 2)
  both <- rows <- columns <- none <- a
  dimnames(both) <- list(odd, letters[1:6])
  rownames(rows) <- odd
  colnames(columns) <- letters[1:6]
  gates <- runif(block_count(a))
  notes <- list(both = "{ \"note\": [1, 2] }", columns = "{\"dimnames_of\": \"me\"}", none = "[1]")
  block_save(path, both, rows, columns, none, gates = list(both = gates), metadata = notes)
  found <- block_load(path)
  for (name in c("both", "rows", "columns", "none")) {
    expect_identical(dimnames(found[[name]]), dimnames(get(name)))
    expect_identical(as.matrix(found[[name]]), as.matrix(get(name)))
    expect_identical(block_metadata(path, name), if (is.null(notes[[name]])) "" else notes[[name]])
  }
  expect_identical(dimnames(block_load(path, "both")), list(odd, letters[1:6]))
  named <- random_matrix(c(3000, 2), 2)
  dimnames(named) <- list(paste("a longer name, number", 1:3000), NULL)
  block_save(path, named)
  expect_identical(dimnames(block_load(path, "named")), dimnames(named))
  expect_refused(block_save(path, both, metadata = list(both = "[1]")), "argument", "metadata is \"[1]\"", "dimnames")
})

test_that("a member `dimnames` that is no list of names of this size is metadata", {
  path <- file_path()
  on.exit(unlink(path))
  a <- random_matrix(c(4, 2), 2)
  for (text in c("{\"dimnames\": [[\"a\"], null]}", "{\"dimnames\": \"a\"}", "{\"dimnames\": [1, 2]}", "{\"dimnames\": []}",
                 "{\"dimnames\": [null, null, null]}", "{\"dimnames\": [[[\"a\"]], null]}", "[\"dimnames\"]")) {
    block_save(path, a, metadata = list(a = text))
    expect_identical(dimnames(block_load(path, "a")), list(NULL, NULL))
    expect_identical(block_metadata(path, "a"), text)
  }
  text <- "{ \"dimnames\" : [ [\"p\", null, \"\\u0041\\n\", \"\\\\\"], [\"x\" , \"y\"] ] , \"more\": {}}" # of another program
  block_save(path, a, metadata = list(a = text))
  expect_identical(dimnames(block_load(path, "a")), list(c("p", NA, "A\n", "\\"), c("x", "y")))
  expect_identical(block_metadata(path, "a"), "{ \"more\": {}}")
})

test_that("what was loaded can be saved with all that belongs to it", {
  path <- file_path()
  again <- file_path()
  on.exit(unlink(c(path, again)))
  a <- random_matrix()
  rownames(a) <- 1:21
  half <- block_cast(random_matrix(c(6, 8), c(2, 4), heads = 3), "bfloat16")
  only <- small_layout()
  file <- block_file()
  block_put(file, "a", a, gates = runif(block_count(a)), metadata = "{\"of\": \"a\"}")
  block_put(file, "half", half)
  block_put(file, "only", only, metadata = "{\"of\": \"only\"}")
  block_put(file, "half", random_layout(c(8, 8), 2), metadata = "{\"of\": \"a layout\"}") # the name of a matrix
  block_write(file, path)
  close(file)
  block_save(again, block_load(path))
  expect_identical(tools::md5sum(again)[[1L]], tools::md5sum(path)[[1L]])
  block_save(path, block_load(path), gates = list(half = rep(1, block_count(half))), metadata = list(a = "{}"))
  expect_identical(block_gates(path, "half"), rep(1, block_count(half)))
  expect_false(is.null(block_gates(path, "a")))
  expect_identical(block_metadata(path, "only"), "{\"of\": \"only\"}")
  block_save(path, list(x = a, y = only))
  expect_setequal(block_list(path)$name, c("x", "y"))
  expect_refused(block_save(path, list(a)), "argument", "no name")
  expect_refused(block_save(path, list()), "argument")
  for (read in list(block_gates, block_metadata, block_load)) {
    expect_refused(read(path, "none"), "not_found", "no matrix, array or layout \"none\"")
  }
})

test_that("objects keep the order in which they were saved", {
  path <- file_path()
  on.exit(unlink(path))
  w <- random_matrix()
  objects <- list(layer1 = w, layer2 = w, p = w@layout, layer10 = w, bias = c(1, 2), a = w)
  block_save(path, objects)
  expect_identical(block_list(path)$name, names(objects))
  expect_identical(names(block_load(path)), names(objects))
  block_save(path, block_load(path))
  expect_identical(names(block_load(path)), names(objects))
})

test_that("arrays of numbers lie beside matrices", {
  path <- file_path()
  on.exit(unlink(path))
  arrays <- list(bias = c(0.5, -1, NA), steps = 7L, m = matrix(1:6, 2), cube = array(runif(24), 2:4), none = numeric(0))
  block_save(path, c(arrays, list(w = random_matrix())))
  expect_identical(block_load(path)[names(arrays)], arrays)
  expect_identical(block_list(path)$kind, c(rep("array", 5), "matrix"))
  expect_identical(block_list(path)$layout[1:5], rep(NA_character_, 5))
  expect_identical(tartan:::.about(block_file(path), "cube")[3:6], c(3, 2:4)) # as other languages see it
  expect_identical(block_load(path, "cube", rows = c(2, 2)), arrays$cube[2, , , drop = FALSE])
  expect_identical(block_load(path, "bias", rows = c(1, 2)), arrays$bias[1:2])
  expect_error(block_load(path, "bias", rows = c(2, 4)), "rows is .*expected the first and the last row, of 1 to 3")
  expect_error(block_save(path, list(good = 1, bad = "text")), "\"bad\".*expected a BlockMatrix, a BlockLayout, a BlockSparsifier or numbers")
  expect_error(block_save(path, x = NA_integer_), "int32 cannot represent")
  expect_error(block_save(path, x = 1, gates = list(x = 1)), "gates are given for an array")
})

test_that("objects are added to a file and rows of a matrix are read", {
  path <- file_path()
  on.exit(unlink(path))
  a <- block_matrix(block_pattern("dense", c(32, 24), 8), init = "normal", seed = 1)
  dimnames(a) <- list(paste0("r", 1:32), NULL)
  block_save(path, a, append = TRUE)
  block_save(path, b = a * 2, step = 1L, append = TRUE)
  block_save(path, step = 2L, append = TRUE)
  expect_identical(block_list(path)$name, c("a", "b", "step"))
  expect_identical(block_load(path, "step"), 2L)
  expect_equal(as.matrix(block_load(path, "b")), as.matrix(a) * 2)
  expect_equal(as.matrix(block_load(path, "a", rows = c(9, 24))), as.matrix(a)[9:24, ])
  expect_error(block_load(path, "a", rows = c(2, 8)), "whole block rows")
  expect_error(block_load(path, rows = c(1, 8)), "without the name")
  expect_match(block_verify(path)[1], "seal: ok")
})

test_that("the values of some blocks are read without the rest", {
  path <- file_path()
  on.exit(unlink(path))
  a <- random_matrix(c(21, 14), c(4, 3))
  half <- block_cast(a, "bfloat16")
  block_save(path, a, half, bias = 1:3)
  all <- block_count(a)
  expect_identical(block_load(path, "a", blocks = c(3, 5)), block_values(a)[, , 3:5])
  expect_identical(block_load(path, "a", blocks = c(all, all)), block_values(a)[, , all, drop = FALSE])
  expect_identical(block_load(path, "half", blocks = c(1, all)), block_values(half))
  file <- block_file()
  block_put(file, "b", half)
  expect_identical(block_get(file, "b", blocks = c(2, 3)), block_values(half)[, , 2:3])
  for (range in list(c(0, 1), c(2, 1), c(1, all + 1), 1, c(1, 1.5), c(1, NA), "a")) {
    expect_refused(block_load(path, "a", blocks = range), "argument", paste("the first and the last block, of 1 to", all))
  }
  expect_refused(block_load(path, "bias", blocks = c(1, 2)), "argument", "\"bias\" is no matrix")
  expect_refused(block_load(path, "a", rows = c(1, 4), blocks = c(1, 2)), "argument", "expected one of them")
  expect_refused(block_load(path, blocks = c(1, 2)), "argument", "without the name")
})
