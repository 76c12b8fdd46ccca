library(testthat)
library(tartan)

test_check("tartan")
