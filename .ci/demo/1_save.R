# SPDX-License-Identifier: Apache-2.0
# The demonstration, part 1, in R: a real sparsity pattern becomes a layout and is saved as HDF5.
suppressPackageStartupMessages({library(Matrix); library(tartan)})
path <- commandArgs(trailingOnly = TRUE)[[1]]

data(USCounties) # which of 3111 counties of the USA touch
started <- proc.time()[["elapsed"]]
order <- reorder_rcm(USCounties)
counties <- block_matrix(USCounties[order, order], block = c(8, 8))
cat(sprintf("R       %d x %d counties, %d entries -> %d blocks of 8 x 8, density %.4f, in %.0f ms\n", nrow(USCounties),
            ncol(USCounties), nnzero(USCounties), block_count(counties), block_density(counties),
            1e3 * (proc.time()[["elapsed"]] - started)))
block_save(path, counties = counties)
cat(sprintf("R       saved pattern %s and weights \"counties\"\n", block_identity(counties)))
