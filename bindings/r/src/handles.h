/* SPDX-License-Identifier: Apache-2.0
 * Handles: external pointers to objects of the library. The tag, a symbol, names the type. A finalizer frees the
 * object. What a handle keeps alive hangs on a weak reference, which neither saveRDS nor identical() follows. */
#ifndef TARTAN_R_HANDLES_H
#define TARTAN_R_HANDLES_H

#include "fail.h"

/* A handle without an object. Made before the object is, so that a failed allocation leaks nothing. */
SEXP tartan_r_new_handle(const char *tag);

typedef enum tartan_r_state {
    TARTAN_R_OPEN,
    TARTAN_R_CLOSED,
    TARTAN_R_RESTORED, /* from a saved session */
    TARTAN_R_FOREIGN,  /* not of this type */
} tartan_r_state;
tartan_r_state tartan_r_state_of(SEXP handle, const char *tag);

/* The object of an open handle; anything else is refused. */
void *tartan_r_address(SEXP handle, const char *tag);

/* What the handle keeps alive instead of what it kept before; NULL where there is nothing, or it was restored. */
void tartan_r_hold(SEXP handle, SEXP kept);
SEXP tartan_r_held(SEXP handle);

/* Frees the object, or what a cache holds. Closing twice is fine. */
SEXP tartan_r_close(SEXP handle);

/* A handle that has no object of its own, for what an R object makes anew when it must. */
#define TARTAN_R_CACHE "tartan_cache"
SEXP tartan_r_new_cache(void);

#endif
