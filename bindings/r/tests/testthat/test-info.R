# SPDX-License-Identifier: Apache-2.0

test_that("the library tells about itself", {
  expect_match(tartan_info(), as.character(packageVersion("tartan")), fixed = TRUE)
  expect_output(print(tartan_info()), "tartan")
  expect_gte(tartan_threads(), 1)
})

test_that("checksums are of values, not of strides", {
  m <- matrix(rnorm(12), 3)
  expect_match(tartan_checksum(m), "^[0-9a-f]{32}$")
  expect_identical(tartan_checksum(m), tartan_checksum(m + 0))
  expect_false(tartan_checksum(m) == tartan_checksum(t(m)))
  expect_identical(tartan_checksum(1:3), tartan_checksum(c(1, 2, 3)))
})
