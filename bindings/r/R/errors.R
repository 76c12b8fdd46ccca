# SPDX-License-Identifier: Apache-2.0
# Every refusal is a condition of class c("tartan_error_<what>", "tartan_error", "error", "condition").

# What the package keeps while it is loaded: the constants of the headers, the status codes, the open context.
.state <- new.env(parent = emptyenv())

# Called by the C side as well, with the text of tartan_last_error().
.tartan_stop <- function(code, message) {
  what <- tolower(sub("^ERR_", "", tartan_status_name(code)))
  stop(structure(list(message = message, call = NULL, status = code),
                 class = c(paste0("tartan_error_", what), "tartan_error", "error", "condition")))
}

# .fail("shape", "b has %s rows, expected %s", 7, 8); numbers are shown in full, text in quotes.
.fail <- function(what, format, ...) {
  .tartan_stop(.state$status[[what]], sprintf(format, ...))
}

# A value as a refusal shows it.
.shown <- function(x) {
  if (is.null(x)) return("NULL")
  if (!is.atomic(x)) return(paste("an object of class", class(x)[1L]))
  text <- if (is.character(x)) encodeString(x, quote = "\"") else format(x, digits = 15L, trim = TRUE)
  if (length(x) == 1L) return(text)
  paste0("c(", paste(utils::head(text, 6L), collapse = ", "), if (length(x) > 6L) ", ...", ")")
}

# What the generated functions return: NULL, the one output, or the list of outputs.
.tartan_outputs <- function(outputs) {
  if (length(outputs) == 2L) outputs[[2L]] else if (length(outputs) > 2L) outputs[-1L]
}
