/* SPDX-License-Identifier: Apache-2.0 */
#include "handles.h"

#include <string.h>

#define CLOSED "tartan_closed"

static void free_context(void *address) {
    tartan_context_free(address);
}
static void free_layout(void *address) {
    tartan_layout_free(address);
}
static void free_block_mask(void *address) {
    tartan_block_mask_free(address);
}
static void free_matrix(void *address) {
    tartan_matrix_free(address);
}
static void free_file(void *address) {
    tartan_file_free(address);
}
static void free_buffer(void *address) {
    tartan_buffer_free(address);
}

static void free_conv(void *address) {
    tartan_conv_free(address);
}
static void free_sparsifier(void *address) {
    tartan_sparsifier_free(address);
}

static const struct {
    const char *tag;
    void (*free)(void *address);
} types[] = {{"tartan_context", free_context},
             {"tartan_layout", free_layout},
             {"tartan_block_mask", free_block_mask},
             {"tartan_matrix", free_matrix},
             {"tartan_file", free_file},
             {"tartan_buffer", free_buffer},
             {"tartan_conv", free_conv},
             {"tartan_sparsifier", free_sparsifier}};

/* The type of a handle in `types`, or -1. */
static int type_of(SEXP handle) {
    SEXP tag = TYPEOF(handle) == EXTPTRSXP ? R_ExternalPtrTag(handle) : R_NilValue;
    for (int i = 0; i < (int)(sizeof types / sizeof *types); i++)
        if (tag == Rf_install(types[i].tag)) return i;
    return -1;
}

static void free_object(SEXP handle) {
    void *address = R_ExternalPtrAddr(handle);
    int type = type_of(handle);
    if (address == NULL || type < 0) return;
    R_ClearExternalPtr(handle);
    types[type].free(address);
}

/* What a handle holds must stay out of the files that R saves, as the value of a weak reference does. Such a
 * reference keeps its value as long as its key lives, even if nothing points to the reference itself. So each handle
 * has a list of a key and a reference, whose value is a mutable cell. The handle cannot be the key: object.size()
 * follows references to their keys and would go around in a circle. */
static SEXP cell_of(SEXP handle) {
    SEXP pair = R_ExternalPtrProtected(handle);
    return TYPEOF(pair) == LISTSXP ? R_WeakRefValue(CADR(pair)) : R_NilValue;
}

static SEXP add_cell(SEXP handle) {
    SEXP cell = PROTECT(Rf_cons(R_NilValue, R_NilValue));
    SEXP key = PROTECT(R_MakeExternalPtr(NULL, R_NilValue, R_NilValue));
    SEXP reference = PROTECT(R_MakeWeakRef(key, cell, R_NilValue, FALSE));
    R_SetExternalPtrProtected(handle, Rf_list2(key, reference));
    UNPROTECT(3);
    return cell;
}

static SEXP new_pointer(const char *tag) {
    SEXP pointer = PROTECT(R_MakeExternalPtr(NULL, Rf_install(tag), R_NilValue));
    add_cell(pointer);
    UNPROTECT(1);
    return pointer;
}

SEXP tartan_r_new_handle(const char *tag) {
    SEXP handle = PROTECT(new_pointer(tag));
    R_RegisterCFinalizerEx(handle, free_object, TRUE);
    UNPROTECT(1);
    return handle;
}

SEXP tartan_r_new_cache(void) {
    return new_pointer(TARTAN_R_CACHE);
}

tartan_r_state tartan_r_state_of(SEXP handle, const char *tag) {
    SEXP found = TYPEOF(handle) == EXTPTRSXP ? R_ExternalPtrTag(handle) : R_NilValue;
    if (found == Rf_install(tag))
        return R_ExternalPtrAddr(handle) != NULL || strcmp(tag, TARTAN_R_CACHE) == 0 ? TARTAN_R_OPEN
                                                                                     : TARTAN_R_RESTORED;
    return found == Rf_install(CLOSED) ? TARTAN_R_CLOSED : TARTAN_R_FOREIGN;
}

void *tartan_r_address(SEXP handle, const char *tag) {
    switch (tartan_r_state_of(handle, tag)) {
    case TARTAN_R_OPEN:
        return R_ExternalPtrAddr(handle);
    case TARTAN_R_CLOSED:
        tartan_r_fail(TARTAN_ERR_HANDLE, "the handle is closed, expected an open %s", tag);
    case TARTAN_R_RESTORED:
        tartan_r_fail(TARTAN_ERR_HANDLE, "the handle is from a saved session, expected an open %s", tag);
    default:
        break;
    }
    if (TYPEOF(handle) != EXTPTRSXP)
        tartan_r_fail(TARTAN_ERR_HANDLE, "the handle is of type %s, expected a %s", tartan_r_type(handle),
                      tag);
    SEXP found = R_ExternalPtrTag(handle);
    if (TYPEOF(found) != SYMSXP)
        tartan_r_fail(TARTAN_ERR_HANDLE, "the handle is foreign, expected a %s", tag);
    tartan_r_fail(TARTAN_ERR_HANDLE, "the handle is a %s, expected a %s", CHAR(PRINTNAME(found)), tag);
    return NULL;
}

void tartan_r_hold(SEXP handle, SEXP kept) {
    SEXP cell = cell_of(handle);
    SETCAR(cell == R_NilValue ? add_cell(handle) : cell, kept); /* one restored from a file has none */
}

SEXP tartan_r_held(SEXP handle) {
    SEXP cell = cell_of(handle);
    return cell == R_NilValue ? cell : CAR(cell);
}

void tartan_r_hold_beside(SEXP handle, SEXP kept) {
    SEXP cell = cell_of(handle);
    SETCDR(cell == R_NilValue ? add_cell(handle) : cell, kept);
}

SEXP tartan_r_held_beside(SEXP handle) {
    SEXP cell = cell_of(handle);
    return cell == R_NilValue ? cell : CDR(cell);
}

SEXP tartan_r_close(SEXP handle) {
    int cache = tartan_r_state_of(handle, TARTAN_R_CACHE) == TARTAN_R_OPEN;
    if (!cache && type_of(handle) < 0) return R_NilValue; /* closed already, or not ours */
    SEXP held = tartan_r_held(handle);
    if (cache && TYPEOF(held) == EXTPTRSXP) free_object(held);
    free_object(handle);
    R_SetExternalPtrTag(handle, Rf_install(CLOSED));
    if (held != R_NilValue) tartan_r_hold(handle, R_NilValue); /* after the object, which pointed to it */
    if (tartan_r_held_beside(handle) != R_NilValue) tartan_r_hold_beside(handle, R_NilValue);
    return R_NilValue;
}
