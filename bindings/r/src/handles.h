/* SPDX-License-Identifier: Apache-2.0
 * Handles: external pointers to objects of the library. The tag, a symbol, names the type. A finalizer frees the
 * object. Objects that a handle keeps alive are in a weak reference, which neither saveRDS nor identical() follows. */
#ifndef TARTAN_R_HANDLES_H
#define TARTAN_R_HANDLES_H

#include "fail.h"

/* A handle without an object. It is made before the object, so that a failed allocation leaks nothing. */
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

/* Sets what the handle keeps alive, replacing the previous one; and gets it: NULL if there is nothing or the handle
 * was restored. */
void tartan_r_hold(SEXP handle, SEXP kept);
SEXP tartan_r_held(SEXP handle);

/* The same for what was made of the object. */
void tartan_r_hold_beside(SEXP handle, SEXP kept);
SEXP tartan_r_held_beside(SEXP handle);

/* Frees the object, or what a cache holds. Closing twice is fine. */
SEXP tartan_r_close(SEXP handle);

/* A handle without its own object: the cache of an object that can be made again. */
#define TARTAN_R_CACHE "tartan_cache"
SEXP tartan_r_new_cache(void);

#endif
