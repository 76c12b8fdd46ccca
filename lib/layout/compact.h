/* SPDX-License-Identifier: Apache-2.0
 * A layout without the block rows and columns that store nothing, for reductions of matrices whose blocks are few beside their
 * rows. */
#ifndef TARTAN_LAYOUT_COMPACT_H
#define TARTAN_LAYOUT_COMPACT_H

#include "layout/layout.h"

/* The layout without the block rows and block columns that store nothing in any head; block ids are the same, so values are, too.
 * The layout itself if that would leave out fewer than half of its rows and of its columns, or if its blocks differ in size. Made
 * on first use and kept in the layout, which must outlive the result. */
tartan_status tartan_i_layout_compact(const tartan_layout *layout, const tartan_layout **out);

#endif
