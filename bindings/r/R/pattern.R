# SPDX-License-Identifier: Apache-2.0

block_pattern <- function(pattern, dim, block = c(32, 32), ..., heads = 1, seed = NULL) {
  parameters <- list(...)
  if (length(parameters) && (is.null(names(parameters)) || !all(nzchar(names(parameters))))) {
    .fail("argument", "a parameter of the pattern has no name, expected name = value")
  }
  for (name in names(parameters)) {
    value <- parameters[[name]]
    if (!(is.numeric(value) || is.character(value) || is.logical(value)) || length(value) != 1L || is.na(value)) {
      .fail("argument", "%s is %s, expected one value", name, .shown(value))
    }
    parameters[[name]] <- if (is.logical(value)) as.integer(value) else value
  }
  words <- vapply(parameters, function(value) if (is.numeric(value)) tartan_r_decimal(value) else as.character(value), "")
  text <- paste(names(parameters), words, sep = "=", collapse = " ")
  if (is.null(seed) && !.draws(.string(pattern, "pattern"))) seed <- 0
  .new_layout(tartan_layout_from_pattern(.frame(dim, block, heads), .string(pattern, "pattern"),
                                         if (length(parameters)) text, .seed(seed)))
}

# Whether a pattern is random: then it has the parameter `shared`.
.draws <- function(pattern) {
  known <- block_patterns()
  any(grepl("(^|\n)shared=", known$parameters[known$pattern == pattern]))
}

block_patterns <- function() {
  i <- seq_len(tartan_pattern_count()) - 1
  help <- vapply(i, tartan_pattern_help, "")
  data.frame(pattern = vapply(i, tartan_pattern_name, ""), what = sub("\n.*", "", help),
             parameters = ifelse(grepl("\n", help), sub("^[^\n]*\n", "", help), ""))
}
