# SPDX-License-Identifier: Apache-2.0
# Writes the contiguity matrix of 3111 counties of the USA, USCounties of R's Matrix package, as Matrix Market:
#   Rscript make_us_counties.R us_counties.mtx
library(Matrix)
path <- commandArgs(trailingOnly = TRUE)[[1]]
data(USCounties)
invisible(writeMM(USCounties, path))
