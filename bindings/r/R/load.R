# SPDX-License-Identifier: Apache-2.0

.onLoad <- function(libname, pkgname) {
  .state$constants <- as.list(tartan_r_constants())
  if (tartan_abi_version() != .state$constants$abi) {
    stop("libtartan has ABI ", tartan_abi_version(), ", the package was built for ", .state$constants$abi)
  }
  codes <- -(1:14)
  .state$status <- as.list(stats::setNames(codes, tolower(sub("^ERR_", "", vapply(codes, tartan_status_name, "")))))
}

.onUnload <- function(libpath) {
  .state$context <- NULL
  gc() # finalizers are in the library
  library.dynam.unload("tartan", libpath)
}
