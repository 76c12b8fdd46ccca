# SPDX-License-Identifier: Apache-2.0
# Dimnames in files: the first member of the JSON object that is a matrix's metadata,
#   {"dimnames": [["r1", "r2"], null], <the user's members>}
# All languages can read it. A list is that of rows, then of columns.

.json_string <- function(x) {
  x <- enc2utf8(x)
  x <- gsub("\\", "\\\\", x, fixed = TRUE)
  x <- gsub("\"", "\\\"", x, fixed = TRUE)
  for (code in which(vapply(1:31, function(i) any(grepl(intToUtf8(i), x, fixed = TRUE)), NA))) {
    x <- gsub(intToUtf8(code), sprintf("\\u%04x", code), x, fixed = TRUE)
  }
  paste0("\"", x, "\"")
}
.json_unescaped <- function(x) {
  escaped <- grepl("\\", x, fixed = TRUE)
  x[escaped] <- vapply(x[escaped], function(one) {
    parts <- regmatches(one, gregexpr("\\\\u[0-9a-fA-F]{4}|\\\\.|[^\\\\]+", one, perl = TRUE))[[1L]]
    plain <- c(n = "\n", t = "\t", r = "\r", b = "\b", f = "\f")
    paste(vapply(parts, function(part) {
      if (startsWith(part, "\\u")) return(intToUtf8(strtoi(substring(part, 3L), 16L)))
      if (!startsWith(part, "\\")) return(part)
      kind <- substring(part, 2L)
      if (kind %in% names(plain)) plain[[kind]] else kind
    }, ""), collapse = "")
  }, "", USE.NAMES = FALSE)
  x
}

# The metadata to store for a matrix of these dimnames.
.with_names <- function(metadata, names) {
  if (!length(unlist(names))) return(metadata)
  if (is.null(metadata)) metadata <- "{}"
  if (!grepl("^\\s*\\{", metadata)) {
    .fail("argument", "metadata is %s, expected a JSON object ({...}), since the dimnames are stored in it", .shown(metadata))
  }
  lists <- vapply(names, function(n) {
    if (length(n)) paste0("[", paste(ifelse(is.na(n), "null", .json_string(n)), collapse = ","), "]") else "null"
  }, "")
  more <- if (grepl("^\\s*\\{\\s*\\}", metadata)) "" else ","
  sub("{", paste0("{\"dimnames\":[", paste(lists, collapse = ","), "]", more), metadata, fixed = TRUE)
}

# The characters from `first` on. substring() ends after a million.
.from <- function(text, first) substr(text, first, nchar(text))

# What .with_names has stored: list(names, metadata), the names NULL if there are none of this size.
.without_names <- function(text, size) {
  begin <- regexpr("^\\s*\\{\\s*\"dimnames\"\\s*:\\s*(?=\\[)", text, perl = TRUE)
  if (begin < 0L) return(list(names = NULL, metadata = text))
  rest <- .from(text, attr(begin, "match.length") + 1L)
  found <- gregexpr("\"(?:[^\"\\\\]++|\\\\.)*+\"|[\\[\\]]|[^\\s,\"\\[\\]]++", rest, perl = TRUE)[[1L]]
  tokens <- regmatches(rest, list(found))[[1L]]
  depth <- cumsum((tokens == "[") - (tokens == "]"))
  end <- match(0L, depth)
  names <- if (!is.na(end)) .names_from_tokens(tokens[seq_len(end)], depth[seq_len(end)], size)
  if (is.null(names)) return(list(names = NULL, metadata = text))
  rest <- sub("^\\s*,", "", .from(rest, found[end] + 1L))
  members <- paste0(sub("\\{.*", "{", substr(text, 1L, attr(begin, "match.length"))), rest)
  list(names = names, metadata = if (grepl("^\\s*\\{\\s*\\}\\s*$", members)) "" else members)
}
.names_from_tokens <- function(tokens, depth, size) {
  lists <- list()
  open <- 0L
  for (i in which(depth == 1L | tokens == "[")) { # list ends, null, and list beginnings
    if (tokens[i] == "[" && depth[i] == 2L) open <- i
    else if (tokens[i] == "]" && depth[i] == 1L) lists <- c(lists, list(tokens[seq_len(i - open - 1L) + open]))
    else if (tokens[i] == "null") lists <- c(lists, list(NULL))
    else if (i > 1L) return(NULL)
  }
  if (length(lists) != 2L || any(lengths(lists) != 0 & lengths(lists) != size)) return(NULL)
  lapply(lists, function(n) {
    if (!length(n)) return(NULL)
    strings <- .json_unescaped(substr(n, 2L, nchar(n) - 1L))
    replace(strings, n == "null", NA_character_)
  })
}
