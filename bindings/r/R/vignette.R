# SPDX-License-Identifier: Apache-2.0
# The engine of the package's vignettes, which the build makes of notebooks: finished pages, to be copied.

.register_vignette_engine <- function() {
  tools::vignetteEngine("asis", package = "tartan", pattern = "[.]html[.]asis$", weave = function(file, ...) {
    page <- sub("[.]asis$", "", basename(file))
    file.copy(file, page, overwrite = TRUE)
    page
  }, tangle = function(file, ...) {
    code <- sub("[.]html[.]asis$", ".R", basename(file))
    writeLines("# The code is in the page.", code)
    code
  })
}
