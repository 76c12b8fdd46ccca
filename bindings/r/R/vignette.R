# SPDX-License-Identifier: Apache-2.0
# The engine of the package's vignettes, which the build makes of notebooks: finished pages, to be copied. A page holds the code of
# its notebook if that runs without other files.

.register_vignette_engine <- function() {
  tools::vignetteEngine("asis", package = "tartan", pattern = "[.]html[.]asis$", weave = function(file, ...) {
    page <- sub("[.]asis$", "", basename(file))
    file.copy(file, page, overwrite = TRUE)
    page
  }, tangle = function(file, ...) {
    code <- sub("[.]html[.]asis$", ".R", basename(file))
    page <- readLines(file, encoding = "UTF-8")
    begin <- match("<script type=\"text/x-r\">", page)
    lines <- if (is.na(begin)) "# The code is in the page; its data are in the sources of Tartan."
             else page[begin + seq_len(match("</script>", page[-seq_len(begin)]) - 1L)]
    writeLines(lines, code)
    code
  })
}
