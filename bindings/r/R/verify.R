# SPDX-License-Identifier: Apache-2.0
# Checking files. HDF5 can crash or hang on a damaged file without a seal, so such a file is read by another R process.

.seal <- as.raw(c(0x89, utf8ToInt("TARTAN"), 0x0d, 0x0a, 0x1a, 0x0a, utf8ToInt("seal"), 0))

# Whether the library verifies all bytes before HDF5 sees any. What cannot be read is left to it, too.
.is_sealed <- function(path) {
  if (!file.exists(path) || dir.exists(path)) return(TRUE)
  first <- tryCatch(suppressWarnings(readBin(path, "raw", length(.seal))), error = function(e) .seal)
  identical(first, .seal)
}

.verified_here <- function(path) tartan_file_verify(path)

.verify_seconds <- function(path) 300 + file.size(path) %/% 2^20

# What the process runs: its arguments are the package libraries and the path, and where to leave the answer.
.verify_script <- function(given, answer) {
  sprintf('given <- readRDS(%s)
.libPaths(given$libraries)
answer <- tryCatch(list(report = tartan:::.verified_here(given$path)),
                   tartan_error = function(e) list(status = e$status, text = conditionMessage(e)))
saveRDS(answer, %s)', deparse(given), deparse(answer))
}

.verified_in_process <- function(path) {
  files <- tempfile(c("given", "answer", "script", "errors"))
  on.exit(unlink(files))
  saveRDS(list(libraries = .libPaths(), path = normalizePath(path)), files[1L])
  writeLines(.verify_script(files[1L], files[2L]), files[3L])
  seconds <- .verify_seconds(path)
  code <- suppressWarnings(system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", shQuote(files[3L])), stdout = FALSE,
                                   stderr = files[4L], timeout = seconds))
  if (code == 124L) .fail("format", "%s: damaged: HDF5 was still reading it after %.0f s", path, seconds)
  if (code == 127L) .fail("file", "%s: no process can be started to verify it", path)
  if (code > 1L) .fail("format", "%s: damaged: HDF5 crashed while reading it (%d)", path, code)
  if (!file.exists(files[2L])) {
    words <- c("it gave no reason", readLines(files[4L], warn = FALSE))
    .fail("internal", "the process that verifies %s failed: %s", path, words[length(words)])
  }
  answer <- readRDS(files[2L])
  if (is.null(answer$report)) .tartan_stop(answer$status, answer$text)
  answer$report
}

block_verify <- function(path) {
  path <- .path(path)
  report <- if (.is_sealed(path)) .verified_here(path) else .verified_in_process(path)
  strsplit(report, "\n", fixed = TRUE)[[1L]]
}
