# SPDX-License-Identifier: Apache-2.0
# Every refusal is a condition of class c("tartan_error_<what>", "tartan_error", "error", "condition").

# C's names of arguments and its options, which are one text there, in the words of R.
.r_words <- list(
  c("^in_size ", "size "), c("^options has '([a-z_]+)=(.*)', expected \\1 to be ", "\\1 is \\2, expected "),
  c("^options has ([a-z_]+), which needs causal=1", "\\1 is given, which needs causal = TRUE"),
  c("^parameters has '([a-z_]+)=(.*)', expected", "\\1 is \\2, expected"),
  c("^parameters has '([a-z_]+)', which pattern", "\\1 is given, which pattern"),
  c("tartan_sparsifier_add_growth", "sparsifier_add_growth()"), c("tartan_sparsifier_add_scores", "sparsifier_observe()"), c("\\bblock_mask\\b", "mask"), c("\\bin_size\\b", "size"), c("has a row for each edge class", "has a column for each edge class"), c("^bias (has shape .* \\(one slope for each head\\))", "slopes \\1"),
  c("^bias (has shape \\[[0-9]*\\], expected \\[[0-9]+\\]) or \\[bias_heads, n\\].*", "slopes \\1"),
  c("^bias has shape \\[([0-9]+), ([0-9]+)\\], expected \\[(.*), (an odd number of distances)\\]",
    "distance_bias has shape [\\2, \\1], expected [\\4, \\3]"),
  c("^bias has shape \\[([0-9]+), ([0-9]+)\\], expected \\[(.*), ([0-9]+)\\], a number for each block",
    "block_bias has shape [\\2, \\1], expected [\\4, \\3], a number for each block"),
  c("^options has neither size nor output", "neither size nor output is given"),
  c("^options has size and output", "size and output are given"),
  c(", but options has no preactivate=1", ", which needs preactivate = TRUE"))

# Shapes in texts about the operations of the schema, in R's order: "[2, 3]" is 3 x 2. Of images (order 1) the spatial
# lengths keep their order, of matrices (2) rows and columns do.
.in_r_order <- function(message, order) {
  found <- gregexpr("(?<!\\w)\\[[^]]*\\]", message, perl = TRUE) # "labels[2]" is an element
  regmatches(message, found) <- lapply(regmatches(message, found), function(shapes) vapply(shapes, function(shape) {
    sizes <- strsplit(substr(shape, 2L, nchar(shape) - 1L), ", ", fixed = TRUE)[[1L]]
    n <- length(sizes)
    if (!n) return("one number")
    sizes[sizes == "rest..."] <- "..."
    places <- if (order == 1L && n > 2L) c(seq_len(n)[-(1:2)], 2L, 1L) else if (order == 2L && n > 1L) c(n - 1L, n, rev(seq_len(n - 2L)))
              else rev(seq_len(n))
    paste(sizes[places], collapse = " x ")
  }, ""))
  gsub(" has shape ", " is ", message, fixed = TRUE)
}

# Places in texts about layouts and matrices, which C counts from 0.
.zero_based <- c("\\b(?:block row|block column|block|head) \\K\\d+\\b(?! x| block)", "\\b(?:for|at) \\(\\K\\d+(?=, \\d+\\))",
                 "\\b(?:for|at) \\(\\d+, \\K\\d+(?=\\))", "\\w\\[\\K\\d+(?=\\])", "\\b(?:id|j)\\[\\d+\\] is \\K\\d+",
                 "\\bj\\[\\d+\\] is \\d+ after \\K\\d+")
.from_one <- function(message) {
  for (words in list(c("\\brow_bounds\\b", "rows"), c("\\bcol_bounds\\b", "cols"), c("\\bids\\[", "id["), c("\\bblock_cols\\[", "j["), c("\\brow_pointers\\[", "p["))) {
    message <- gsub(words[1L], words[2L], message, perl = TRUE)
  }
  for (pattern in .zero_based) {
    found <- gregexpr(pattern, message, perl = TRUE)
    regmatches(message, found) <- lapply(regmatches(message, found), function(n) sprintf("%.0f", as.double(n) + 1))
  }
  message
}

# The C code calls this as well, with the text of tartan_last_error(), which begins with the name of a function of C: the
# condition's call is the user's.
.tartan_stop <- function(code, message) {
  what <- tolower(sub("^ERR_", "", tartan_status_name(code)))
  if (grepl("^tartan_[a-z0-9_]+: ", message)) {
    of_file <- startsWith(message, "tartan_file_") # the names in it are the user's
    if (grepl("^tartan_(layout|matrix)_", message)) message <- .from_one(message)
    op <- .operations[[sub("^tartan_([a-z0-9_]+): .*", "\\1", message)]]
    message <- sub("^tartan_[a-z0-9_]+: ", "", message)
    if (!of_file) for (words in .r_words) message <- sub(words[1L], words[2L], message, perl = TRUE)
    if (!is.null(op)) message <- .in_r_order(message, max(op$orders))
  }
  stop(structure(list(message = message, call = .user_call(sys.nframe()), status = code),
                 class = c(paste0("tartan_error_", what), "tartan_error", "error", "condition")))
}

# The call that the user wrote: the outermost of the calls of this package, base R and methods that led to
# `frame`. The frame below called C code or .fail.
# For methods of cbind2 and rbind2 it is that of cbind or rbind, which call them.
.user_call <- function(frame) {
  parents <- sys.parents()
  found <- NULL
  frame <- frame - 1L
  while (frame > 0L) {
    f <- sys.function(frame)
    home <- environmentName(topenv(environment(f)))
    if (home == "tartan" || identical(f, base::cbind) || identical(f, base::rbind)) found <- sys.call(frame)
    else if (!(home %in% c("base", "methods"))) break
    # A promise that C code forces may count a later frame as its parent.
    frame <- if (parents[frame] < frame) parents[frame] else frame - 1L
  }
  found
}

# .fail("shape", "b has %s rows, expected %s", 7, 8); numbers are shown in full, text in quotes.
.fail <- function(what, format, ...) {
  .tartan_stop(get(paste0("TARTAN_ERR_", toupper(what)), mode = "integer"), sprintf(format, ...))
}

# A value as shown in error messages: short, whatever its size.
.shown <- function(x) {
  if (is.null(x)) return("NULL")
  if (!is.atomic(x)) return(paste("an object of class", class(x)[1L]))
  first <- utils::head(as.vector(x), 6L)
  text <- if (is.character(first)) encodeString(first, quote = "\"")
          else if (is.double(first)) tartan_r_decimal(first) else format(first, digits = 15L, trim = TRUE)
  long <- nchar(text) > 60L
  text[long] <- paste0(substr(text[long], 1L, 56L), "...", if (is.character(first)) "\"")
  if (length(x) == 1L) return(text)
  paste0("c(", paste(text, collapse = ", "), if (length(x) > 6L) ", ...", ")")
}

# The return value of generated functions: NULL, the only output, or a list of outputs.
.tartan_outputs <- function(outputs) {
  if (length(outputs) == 2L) outputs[[2L]] else if (length(outputs) > 2L) outputs[-1L]
}
