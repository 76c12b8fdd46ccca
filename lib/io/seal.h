/* SPDX-License-Identifier: Apache-2.0
 * The seal that detects damage of a file, and the temporary file that makes saving atomic. No HDF5 here: HDF5 parses
 * no byte of a sealed file that was not verified before. */
#ifndef TARTAN_IO_SEAL_H
#define TARTAN_IO_SEAL_H

#include "io/pages.h"

/* The seal fills HDF5's user block, the first 512 bytes of the file, so one write of one sector replaces it:
 *    0  16 bytes  magic
 *   16  uint32    version of the seal, 3 (numbers are little-endian)
 *   20  uint32    size of the user block, 512
 *   24  uint64    length of the file in bytes
 *   32  16 bytes  hash of the list of page hashes (pages.h)
 *   48  uint64    where the pages end and the list begins
 *   56  uint64    bytes of the journal, which follows the list (paged.h)
 *   64  16 bytes  hash of the journal
 *   80  uint64    bytes of the pages that nothing uses any more
 *   88  uint64    how often the file was sealed
 *   96  uint32    1 while objects are added: then the file may be longer than the seal says
 *  100  zeros
 *  496  16 bytes  hash of the seal up to here
 * Version 2 has the hash of the hashes of the pages of all the file at 32, and zeros behind. */
enum { TARTAN_I_SEAL_BYTES = 512, TARTAN_I_SEAL_VERSION = 3, TARTAN_I_OLD_SEAL_VERSION = 2 };

typedef struct tartan_i_seal {
    int32_t version; /* 0: the file has none */
    bool growing;
    int64_t length, end, journal_bytes, unused;
    uint64_t generation;
    unsigned char list_hash[TARTAN_I_HASH_BYTES], journal_hash[TARTAN_I_HASH_BYTES];
} tartan_i_seal;

/* The bytes of a seal of this version. */
void tartan_i_seal_make(const tartan_i_seal *seal, unsigned char out[TARTAN_I_SEAL_BYTES]);

/* Little-endian numbers of `count` bytes. */
uint64_t tartan_i_little(const unsigned char *bytes, int count);
void tartan_i_put_little(unsigned char *bytes, int count, uint64_t value);

/* Opens a file for reading. The seal itself is verified, and of version 2 all of the file; with version 3, pages are
 * verified as they are read. A file with HDF5's signature at byte 0 is accepted as unsealed; anything else is refused.
 * The caller closes *out_fd. With `writable` the file is opened for reading and writing.
 * Errors: FILE, FORMAT, VERSION, MEMORY. */
tartan_status tartan_i_seal_open(const char *function, const char *path, bool writable, int *out_fd,
                                 tartan_i_seal *out_seal);

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
bool tartan_i_disk_synchronise(int fd);

/* For tests: make the n-th change of the disk from now (write, truncate, synchronise, rename) fail, counted from 0
 * (-1: none); the number of changes since then. */
void tartan_i_disk_fail_at(int64_t n);
int64_t tartan_i_disk_asked(void);

#endif
