# SPDX-License-Identifier: Apache-2.0
# Files without a seal are verified by a process of their own, which may crash.

# A file as another program writes it: ours without its seal.
foreign_file <- function() {
  path <- file.path(tempfile("verify"), "gr\u00f6\u00dfe 1.h5")
  dir.create(dirname(path))
  block_save(path, w = random_matrix())
  bytes <- readBin(path, "raw", file.size(path))
  writeBin(bytes[-(1:512)], path)
  path
}
replaced <- function(..., code) {
  values <- list(...)
  space <- asNamespace("tartan")
  old <- mget(names(values), space)
  set <- function(values) for (name in names(values)) utils::assignInNamespace(name, values[[name]], space)
  set(values)
  on.exit(set(old))
  force(code)
}

test_that("unsealed files are read elsewhere, sealed ones here", {
  path <- foreign_file()
  here <- strsplit(tartan:::.verified_here(path), "\n")[[1L]]
  replaced(.verified_here = function(path) stop("HDF5 reads an unsealed file in this process"),
           code = expect_identical(block_verify(path), here))
  expect_match(here, "seal: none", all = FALSE)
  block_save(path, w = random_matrix())
  replaced(.verified_in_process = function(path) stop("a process for a sealed file"),
           code = expect_match(block_verify(path), "seal: ok", all = FALSE))
})

test_that("what the process finds is refused here", {
  path <- foreign_file()
  bytes <- readBin(path, "raw", file.size(path))
  writeBin(bytes[seq_len(length(bytes) - 100)], path)
  expect_refused(block_verify(path), "format", "e 1.h5: cannot be read as HDF5: truncated")
  writeLines("text", path)
  expect_refused(block_verify(path), "format", "is not an HDF5 file")
  unlink(path)
  expect_refused(block_verify(path), "file")
  expect_refused(block_verify(dirname(path)), "file")
})

test_that("a crash and a hang are damage, a process that cannot work is none", {
  skip_on_os("windows")
  path <- foreign_file()
  script <- function(line) function(given, answer) line
  replaced(.verify_script = script("tools::pskill(Sys.getpid(), 11)"),
           code = expect_refused(block_verify(path), "format", "HDF5 crashed while reading it"))
  replaced(.verify_script = script("repeat NULL"), .verify_seconds = function(path) 2,
           code = expect_refused(block_verify(path), "format", "HDF5 was still reading it after 2 s"))
  replaced(.verify_script = script("stop('no such luck')"), code = expect_refused(block_verify(path), "internal", "failed:"))
})
