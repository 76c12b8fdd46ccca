# SPDX-License-Identifier: Apache-2.0
# Packed sequences: one layout and one mask for sequences one after another.

packed_sequences <- function(lengths, block = c(32, 32), key_lengths = lengths, causal = TRUE, window = NULL,
                             align = c("end", "start"), heads = 1) {
  layout <- packed_layout(lengths, block, key_lengths, causal, window, align, heads)
  mask <- packed_mask(layout, lengths, key_lengths, causal, window, align)
  list(layout = layout, mask = if (length(mask@bits)) mask)
}

packed_layout <- function(lengths, block = c(32, 32), key_lengths = lengths, causal = TRUE, window = NULL,
                          align = c("end", "start"), heads = 1) {
  q <- .offsets(lengths, "lengths")
  k <- .offsets(key_lengths, "key_lengths")
  frame <- .frame(c(q[length(q)], k[length(k)]), block, heads)
  .new_layout(tartan_layout_from_sequences(frame, q, k, .sequence_options(causal, window, align)))
}

packed_mask <- function(layout, lengths, key_lengths = lengths, causal = TRUE, window = NULL,
                        align = c("end", "start")) {
  layout <- .expect_layout(layout, "layout")
  q <- .offsets(lengths, "lengths")
  k <- .offsets(key_lengths, "key_lengths")
  .new_mask(tartan_block_mask_from_sequences(layout, q, k, .sequence_options(causal, window, align)), layout)
}

.offsets <- function(lengths, name) {
  if (!is.null(lengths) && !.is_whole(lengths)) {
    .fail("argument", "%s is %s, expected whole numbers", name, .shown(lengths))
  }
  bad <- which(lengths < 0)
  if (length(bad)) .fail("argument", "%s[%d] is %.0f, expected 0 or more", name, bad[1L], lengths[bad[1L]])
  c(0, cumsum(as.double(lengths)))
}

.sequence_options <- function(causal, window, align) {
  causal <- .flag(causal, "causal")
  if (identical(align, c("end", "start"))) align <- "end"
  paste(c(sprintf("causal=%d", causal), if (!is.null(window)) sprintf("window=%.0f", .count(window, "window", 1)),
          if (!identical(align, "end")) paste0("align=", .string(align, "align"))), collapse = " ")
}

setMethod("&", signature("BlockMask", "BlockMask"), function(e1, e2) {
  .new_mask(tartan_block_mask_intersection(e1, e2), e1@layout)
})

# ---- Sequences that are padded to one length ----

padded_layout <- function(layout, lengths) {
  layout <- .expect_layout(layout, "layout")
  .new_layout(tartan_layout_from_lengths(layout, .lengths_of_keys(lengths, layout)))
}

padded_mask <- function(layout, lengths) {
  layout <- .expect_layout(layout, "layout")
  .new_mask(tartan_block_mask_from_lengths(layout, .lengths_of_keys(lengths, layout)), layout)
}

.lengths_of_keys <- function(lengths, layout) {
  if (!.is_whole(lengths)) .fail("argument", "lengths is %s, expected whole numbers of 0 to %.0f", .shown(lengths), layout@frame[2L])
  as.double(lengths)
}

# ---- Shorter lengths, other heads ----

block_cut <- function(x, rows, cols) {
  if (methods::is(x, "BlockMask")) return(mask_project(x, block_cut(x@layout, rows, cols)))
  .new_layout(tartan_layout_cut(.expect_layout(x, "x"), rows, cols))
}

block_take_heads <- function(x, heads) {
  x <- .expect_layout(x, "x")
  .new_layout(tartan_layout_take_heads(x, .index(heads, x@frame[5L], "heads", "heads")))
}

mask_project <- function(mask, layout) {
  .expect(mask, "BlockMask", "mask")
  layout <- .expect_layout(layout, "layout")
  .new_mask(tartan_block_mask_project(mask, layout), layout)
}
