# SPDX-License-Identifier: Apache-2.0
# Rscript run_tests.R DIRECTORY [FILES]: testthat, as TAP for Meson, of all files or of those whose names have FILES; with
# TARTAN_TEST_RESULTS also as JUnit XML in r.xml or r-FILES.xml.
library(testthat)

escaped <- function(text) {
  for (pair in list(c("&", "&amp;"), c("<", "&lt;"), c(">", "&gt;"), c("\"", "&quot;"))) {
    text <- gsub(pair[1L], pair[2L], text, fixed = TRUE)
  }
  gsub("[^\t\n\r -~]", "?", text)
}

# One <testcase> for each test_that(). testthat's own JUnit reporter needs another package.
write_junit <- function(results, path) {
  state <- function(result, kinds) Filter(function(r) inherits(r, kinds), result$results)
  cases <- vapply(results, function(result) {
    bad <- state(result, c("expectation_failure", "expectation_error"))
    skipped <- state(result, "expectation_skip")
    inside <- if (length(bad)) {
      sprintf("<failure message=\"%s\"/>", escaped(conditionMessage(bad[[1L]])))
    } else if (length(skipped)) {
      "<skipped/>"
    } else ""
    sprintf("<testcase classname=\"%s\" name=\"%s\" time=\"%.3f\">%s</testcase>", escaped(result$file),
            escaped(result$test), result$real, inside)
  }, "")
  count <- function(mark) sum(grepl(mark, cases, fixed = TRUE))
  writeLines(c("<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
               sprintf("<testsuite name=\"r\" tests=\"%d\" failures=\"%d\" skipped=\"%d\">", length(cases),
                       count("<failure"), count("<skipped")), cases, "</testsuite>"), path)
}

list_reporter <- ListReporter$new()
chosen <- commandArgs(TRUE)[-1L]
test_dir(commandArgs(TRUE)[1L], filter = if (length(chosen)) chosen, package = "tartan", load_package = "installed", stop_on_failure = FALSE,
         reporter = MultiReporter$new(reporters = list(TapReporter$new(), list_reporter)))
directory <- Sys.getenv("TARTAN_TEST_RESULTS")
if (nzchar(directory)) {
  dir.create(directory, showWarnings = FALSE, recursive = TRUE)
  write_junit(list_reporter$get_results(), file.path(directory, paste0(paste(c("r", chosen), collapse = "-"), ".xml")))
}
