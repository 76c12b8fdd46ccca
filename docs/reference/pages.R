# SPDX-License-Identifier: Apache-2.0
# pages.R PACKAGE FOLDER: the help pages of the staged package as HTML, with an index.
arguments <- commandArgs(TRUE)
package <- arguments[1]
folder <- arguments[2]
dir.create(folder, recursive = TRUE, showWarnings = FALSE)
escape <- function(x) gsub("<", "&lt;", gsub("&", "&amp;", x, fixed = TRUE), fixed = TRUE)
rows <- character()
for (path in sort(list.files(file.path(package, "man"), pattern = "[.]Rd$", full.names = TRUE))) {
    rd <- tools::parse_Rd(path)
    name <- sub("[.]Rd$", "", basename(path))
    title <- trimws(paste(unlist(rd[[which(sapply(rd, attr, "Rd_tag") == "\\title")[1]]]), collapse = ""))
    tools::Rd2HTML(rd, file.path(folder, paste0(name, ".html")), package = "tartan", stages = c("build", "render"))
    rows <- c(rows, sprintf('<tr><td><a href="%s.html">%s</a></td><td>%s</td></tr>', name, escape(name), escape(title)))
}
writeLines(c('<!DOCTYPE html><html><head><meta charset="utf-8"><title>Tartan in R</title><link rel="stylesheet" href="R.css"></head><body>',
             "<h1>Tartan in R</h1>", "<table>", rows, "</table>", "</body></html>"), file.path(folder, "index.html"))
invisible(file.copy(file.path(R.home("doc"), "html", "R.css"), folder))
