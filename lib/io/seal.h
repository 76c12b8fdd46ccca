/* SPDX-License-Identifier: Apache-2.0
 * The seal that detects damage of a file, and the temporary file that makes saving atomic. No HDF5 here: a sealed
 * file is verified before HDF5 parses any of it. */
#ifndef TARTAN_IO_SEAL_H
#define TARTAN_IO_SEAL_H

#include "io/pages.h"

/* The seal fills HDF5's user block, the first 512 bytes of the file:
 *    0  16 bytes  magic
 *   16  uint32    version of the seal, 2 (numbers are little-endian)
 *   20  uint32    size of the user block, 512
 *   24  uint64    length of the file in bytes
 *   32  16 bytes  hash of the hashes of all pages after the user block (pages.h)
 *   48  zeros */
enum { TARTAN_I_SEAL_BYTES = 512, TARTAN_I_SEAL_VERSION = 2 };

/* Opens a file for reading. A sealed file is verified as a whole; a file with HDF5's signature at byte 0 is
 * accepted as unsealed; anything else is refused. The caller closes *out_fd.
 * Errors: FILE, FORMAT, VERSION, MEMORY. */
tartan_status tartan_i_seal_open(const char *function, const char *path, int *out_fd, bool *out_sealed);

/* A file being written, under a temporary name beside `path`. */
typedef struct tartan_i_target {
    const char *function;
    char *path; /* symbolic links resolved */
    char *temporary;
    int fd, directory_fd;  /* -1: not open */
    tartan_i_pages *pages; /* must follow what is written to fd */
} tartan_i_target;

/* Open it; then commit (seal, synchronise, rename) or discard it. Both release everything. On failure the file at
 * `path` is unchanged and the temporary file is removed. Errors: FILE, MEMORY. */
tartan_status tartan_i_target_open(const char *function, const char *path, tartan_i_target *out);
tartan_status tartan_i_target_commit(tartan_i_target *target);
void tartan_i_target_discard(tartan_i_target *target);

/* Read and write whole ranges at an offset. On failure they return false, with the reason in errno or 0 at the end
 * of the file. */
bool tartan_i_disk_read(int fd, void *bytes, int64_t size, int64_t offset);
bool tartan_i_disk_write(int fd, const void *bytes, int64_t size, int64_t offset);
bool tartan_i_disk_truncate(int fd, int64_t size);

/* For tests: make the n-th change of the disk from now (write, truncate, synchronise, rename) fail, counted from 0
 * (-1: none); the number of changes since then. */
void tartan_i_disk_fail_at(int64_t n);
int64_t tartan_i_disk_asked(void);

#endif
