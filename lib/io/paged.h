/* SPDX-License-Identifier: Apache-2.0
 * A sealed file, read page by page: each page is verified before any of its bytes are used. And how objects are added to
 * such a file, so that a process killed at any moment leaves the old or the new file:
 *
 *  1. The seal says that the file is growing: what lies behind its length does not count.
 *  2. New bytes are written behind the end of the file. Changes of old bytes (the indices of groups, mostly) are kept
 *     aside in memory, in pieces of 4 KiB.
 *  3. The list of the page hashes of the new file and the journal, which has the changed pieces, follow. The file is
 *     synchronised.
 *  4. The switch: a new seal names the new list and the journal. The file is synchronised. From now on it is the new one:
 *     a reader puts the pieces of the journal over the pages that it reads.
 *  5. The pieces are written to their places, so that other programs find them, too, and the file is synchronised.
 *  6. A last seal without the journal; the file is cut behind the list.
 *
 * After 4 the rest may be done at any time: the next process that adds objects does it first. */
#ifndef TARTAN_IO_PAGED_H
#define TARTAN_IO_PAGED_H

#include "io/seal.h"

typedef struct tartan_i_paged tartan_i_paged;

/* For a file with a seal of version 3, open on `fd`, which stays the caller's. Errors: FORMAT, FILE, MEMORY. */
tartan_status tartan_i_paged_open(const char *function, const char *path, int fd, const tartan_i_seal *seal,
                                  tartan_i_paged **out);
void tartan_i_paged_free(tartan_i_paged *paged);

/* Reads verified bytes. On failure returns false, with the reason in errno: EBADMSG if they do not match the seal, ESTALE
 * if another process changed the file since it was opened, ENOMEM, the system's reason, or 0 at the end of the file. */
bool tartan_i_paged_read(tartan_i_paged *paged, void *bytes, int64_t size, int64_t offset);

/* Reads and verifies all pages. Errors: FORMAT, FILE, MEMORY. */
tartan_status tartan_i_paged_verify(const char *function, const char *path, tartan_i_paged *paged);

/* Fails for the reason in `error`, which a read or write left in errno. */
tartan_status tartan_i_paged_fail(const char *function, const char *path, int error);

/* ---- Adding. One process at a time: the file is locked, where the file system can. ---- */

/* Steps 1 and, if one is left, 5 and 6 of the last journal. The file must be open for writing. Errors: FILE, FORMAT,
 * MEMORY. */
tartan_status tartan_i_paged_begin(const char *function, const char *path, tartan_i_paged *paged);

/* Step 2: on failure returns false, with the reason in errno. */
bool tartan_i_paged_write(tartan_i_paged *paged, const void *bytes, int64_t size, int64_t offset);

/* Steps 3 to 6. `end` is where the new pages end, `unused` how many more of their bytes nothing uses. If it fails before
 * the switch, the file is the old one. Errors: FILE, FORMAT, MEMORY. */
tartan_status tartan_i_paged_commit(const char *function, const char *path, tartan_i_paged *paged,
                                    int64_t end, int64_t unused);

/* Takes back what was written behind the end, as far as the disk lets it. */
void tartan_i_paged_rollback(tartan_i_paged *paged);

/* The seal of the file as it is. */
const tartan_i_seal *tartan_i_paged_seal(const tartan_i_paged *paged);

#endif
