# SPDX-License-Identifier: Apache-2.0
# Whether the slots of an object fit together. The C code checks the indices when it first uses a layout.

setValidity("BlockLayout", function(object) {
  frame <- object@frame
  if (length(frame) != 5L || !.is_whole(frame) || any(frame < c(0, 0, 1, 1, 1))) {
    return("slot \"frame\" is not rows, columns, block rows, block columns, heads")
  }
  if (length(object@pointers) != frame[5L] * .grid_of(object)[1L] + 1) {
    return("slot \"pointers\" does not have one number more than there are block rows")
  }
  if (length(object@columns) != object@pointers[length(object@pointers)]) {
    return("slot \"columns\" does not have one number for each block")
  }
  if (length(object@identity) != 1L || length(object@recipe) != 1L) return("slot \"identity\" or \"recipe\" is not one string")
  TRUE
})

setValidity("BlockMatrix", function(object) {
  if (length(object@dtype) != 1L || !(object@dtype %in% .dtypes)) return("slot \"dtype\" is not the name of a dtype")
  double <- object@dtype == "float64"
  if (typeof(object@values) != if (double) "double" else "raw") {
    return(sprintf("slot \"values\" is of type %s, which does not belong to %s", typeof(object@values), object@dtype))
  }
  layout <- object@layout
  bytes <- if (double) 1 else tartan_dtype_bytes(.dtype_code(object@dtype))
  if (length(layout@frame) != 5L || length(object@values) != prod(layout@frame[3:4]) * length(layout@columns) * bytes) {
    return("slot \"values\" does not have a number for each element of each block")
  }
  names <- lengths(object@Dimnames)
  if (length(names) != 2L || any(names != 0 & names != layout@frame[1:2])) {
    return("slot \"Dimnames\" does not have a name for each row or column")
  }
  TRUE
})
