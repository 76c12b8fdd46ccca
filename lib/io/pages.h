/* SPDX-License-Identifier: Apache-2.0
 * The hashes of a file's pages, which its seal covers. Pages that are written from end to end are hashed while their
 * bytes are in the cache, so that sealing a file need not read it back. */
#ifndef TARTAN_IO_PAGES_H
#define TARTAN_IO_PAGES_H

#include "core/status.h"

/* Pages begin after the user block; the last one may be shorter. All hashes are XXH3-128 in canonical form. Files of
 * the older seal, version 2, have larger pages. */
enum { TARTAN_I_PAGE_BYTES = 1 << 18, TARTAN_I_OLD_PAGE_BYTES = 1 << 20, TARTAN_I_HASH_BYTES = 16 };

/* The number of pages of a file whose pages end at `end`, and where the i-th begins. */
int64_t tartan_i_pages_count(int64_t end, int64_t page_bytes);
int64_t tartan_i_pages_begin(int64_t i, int64_t page_bytes);

void tartan_i_hash(const void *bytes, int64_t size, unsigned char out_hash[TARTAN_I_HASH_BYTES]);

/* What has been written to one file so far. */
typedef struct tartan_i_pages tartan_i_pages;

tartan_status tartan_i_pages_new(tartan_i_pages **out);
void tartan_i_pages_free(tartan_i_pages *pages);

/* Must follow every change of the file: `size` bytes were written at `offset`, or the file was cut to `length`. */
void tartan_i_pages_wrote(tartan_i_pages *pages, const void *bytes, int64_t size, int64_t offset);
void tartan_i_pages_cut(tartan_i_pages *pages, int64_t length);

/* The hash of the i-th page, if it was written from end to end. */
bool tartan_i_pages_known(const tartan_i_pages *pages, int64_t i,
                          unsigned char out_hash[TARTAN_I_HASH_BYTES]);

/* The hashes of all pages up to `end`, one after another, which the caller frees. Reads the pages that `pages` does
 * not know (NULL: all). Errors: FILE, MEMORY. */
tartan_status tartan_i_pages_list(const char *function, const char *path, int fd, int64_t end,
                                  int64_t page_bytes, const tartan_i_pages *pages, unsigned char **out_list,
                                  int64_t *out_bytes);

#endif
