# SPDX-License-Identifier: Apache-2.0
# The package has its own context, opened on first use.

# R CMD check allows two threads. The library itself respects OMP_THREAD_LIMIT.
.thread_limit <- function() {
  checking <- tolower(Sys.getenv("_R_CHECK_LIMIT_CORES_"))
  if (nzchar(checking) && checking != "false") 2 else Inf
}

# A handle of a context; the options are named numbers and texts.
.new_context <- function(device, ...) {
  options <- list(...)
  values <- vapply(options, function(x) if (is.numeric(x)) tartan_r_decimal(x) else x, "")
  handle <- tartan_context_create(device, paste0(names(options), "=", values, collapse = " "))
  if (device == "cpu") tartan_r_let_interrupt(handle)
  handle
}

.open_context <- function(threads = 0) {
  context <- .new_context("cpu", threads = threads)
  if (threads == 0 && tartan_context_threads(context) > .thread_limit()) {
    context <- .new_context("cpu", threads = .thread_limit())
  }
  context
}

# The C code calls this when it first needs the package's own context, denoted by NULL.
.open_own_context <- function(unused) tartan_r_set_context(.open_context())

tartan_threads <- function(threads) {
  old <- tartan_context_threads(NULL)
  if (missing(threads)) return(old)
  if (is.null(threads)) threads <- 0
  tartan_r_set_context(.open_context(.count(threads, "threads", 0, .Machine$integer.max)))
  invisible(old)
}

tartan_info <- function() structure(tartan_describe(), class = "tartan_info")

print.tartan_info <- function(x, ...) {
  cat(x, "\n", sep = "")
  invisible(x)
}

tartan_checksum <- function(x) {
  if (!is.numeric(x)) .fail("dtype", "x is %s, expected numbers", .shown(x))
  if (!is.double(x)) storage.mode(x) <- "double"
  tartan_array_checksum(x)
}
