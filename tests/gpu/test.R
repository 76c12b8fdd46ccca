# SPDX-License-Identifier: Apache-2.0
# Runs the tests of the R package that use devices, on those in TARTAN_TEST_DEVICES. Prints the kernels that a product and
# attention choose for each dtype, then the number of tests; fails if a test fails.
library(testthat)
library(tartan)

device <- strsplit(Sys.getenv("TARTAN_TEST_DEVICES", "cuda"), " ")[[1L]][1L]
context <- tartan_context(device)
print(context)
layout <- block_pattern("banded", c(1024, 1024), 64)
kernel_of <- function(text) regmatches(text, regexpr("\"kernel\": \"[^\"]*\", \"why\": \"[^\"]*\"", text))
for (dtype in c("float64", "float32", "float16", "bfloat16")) {
  w <- to_device(block_matrix(layout), context, dtype = dtype)
  x <- to_device(matrix(1, 1024, 256), context, dtype = dtype)
  q <- to_device(array(1, c(64, 1024, 2)), context, dtype = dtype)
  cat(dtype, ": product: ", kernel_of(explain(w %*% x)), "\n", sep = "")
  cat(dtype, ": attention: ", kernel_of(explain(attention(q, q, q, layout))), "\n", sep = "")
}

results <- ListReporter$new()
test_dir("bindings/r/tests/testthat", package = "tartan", load_package = "none", filter = "^(device|device-layouts|device-products|attention|products)$",
         stop_on_failure = FALSE, reporter = results)
bad <- checks <- 0
for (result in results$get_results()) {
  problems <- Filter(function(r) inherits(r, c("expectation_failure", "expectation_error")), result$results)
  skipped <- Filter(function(r) inherits(r, "expectation_skip"), result$results)
  for (r in c(problems, skipped)) cat(result$test, ": ", conditionMessage(r), "\n", sep = "")
  bad <- bad + (length(problems) > 0)
  checks <- checks + length(result$results) - length(problems) - length(skipped)
}
total <- length(results$get_results())
cat(total - bad, " of ", total, " test cases passed, with ", checks, " checks\n", sep = "")
quit(status = if (bad > 0 || total == 0) 1L else 0L)
