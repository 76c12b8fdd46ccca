# SPDX-License-Identifier: Apache-2.0

.onLoad <- function(libname, pkgname) {
  if (tartan_abi_version() != TARTAN_ABI_VERSION) {
    stop("libtartan has ABI ", tartan_abi_version(), ", this package was built for ", TARTAN_ABI_VERSION)
  }
  .register_vignette_engine()
}

.onUnload <- function(libpath) {
  tartan_r_set_context(NULL)
  gc() # finalizers are in the library
  library.dynam.unload("tartan", libpath)
}
