/* SPDX-License-Identifier: Apache-2.0
 * Shared by the hdf5*.c files, the only ones that use HDF5. */
#ifndef TARTAN_IO_HDF5_PRIVATE_H
#define TARTAN_IO_HDF5_PRIVATE_H

#define H5_USE_110_API 1 /* newer releases then offer the functions of 1.10 under their old names */
#include <hdf5.h>
#if H5_VERSION_GE(1, 13, 2)
#include <H5FDdevelop.h>
#endif

#include "core/memory.h"
#include "io/paged.h"
#include "io/schema.h"
#include "io/seal.h"
#include "io/store.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files hold little-endian numbers, and this code does not swap bytes"
#endif

/* HDF5 converts slowly and rounds 16-bit types badly, so values are never converted: the type in memory is the type
 * in the file. Attributes are small and may be converted. */

typedef enum tartan_i_access {
    TARTAN_I_READ,
    TARTAN_I_MAKE, /* a new file on an empty descriptor */
    TARTAN_I_ADD,  /* objects to a file; a paged one, after tartan_i_paged_begin */
} tartan_i_access;

/* The descriptor under an HDF5 file, and the state of its driver. It outlives a file that HDF5 fails to close. */
typedef struct tartan_i_disk {
    H5FD_t hdf5; /* HDF5's part; must come first */
    haddr_t end_allocated, end_written;
    int fd;    /* -1 once the owner has released it */
    int error; /* errno of the first failure, 0: none */
    tartan_i_access access;
    tartan_i_pages *pages;           /* of a new file: the owner's */
    tartan_i_paged *paged;           /* of a sealed file: the owner's; NULL: bytes are not verified */
    int references;                  /* changed under the lock */
    int address_bytes, length_bytes; /* of an address and of a size in a file that was there before */
    int64_t base;                    /* where its addresses begin */
    hid_t driver; /* registered as long as the file may use it: HDF5 1.10's H5FD_close reads it last */
} tartan_i_disk;

/* Opens an HDF5 file on a descriptor, through a driver of our own. `pages` are told of every change of a new file, `paged`
 * verifies what is read of a sealed one:
 *  - HDF5 parses the very file that was verified or made, whatever happens to its name;
 *  - a failed write is recorded and reported to HDF5 as success, because HDF5 can close a file cleanly only if it can
 *    write. Callers that write check disk->error at the end.
 * Release *out_disk with tartan_i_disk_release. */
tartan_status tartan_i_disk_open(const char *function, const char *path, int fd, tartan_i_access access,
                                 tartan_i_pages *pages, tartan_i_paged *paged, tartan_i_disk **out_disk,
                                 hid_t *out_file);
void tartan_i_disk_release(tartan_i_disk *disk);

/* Bytes of the file past HDF5, verified as those that HDF5 reads; false with disk->error. */
bool tartan_i_disk_take(tartan_i_disk *disk, void *bytes, int64_t size, int64_t at);

/* One thread at a time, and no text on stderr; leave undoes enter. */
typedef struct tartan_i_quiet {
    H5E_auto2_t handler;
    void *user;
} tartan_i_quiet;
tartan_i_quiet tartan_i_hdf5_enter(void);
void tartan_i_hdf5_leave(tartan_i_quiet quiet);

/* Fails for the last HDF5 call with the innermost text that HDF5 has for it, or with the system's reason if
 * the disk failed. `where` is the object, `what` what was tried. */
tartan_status tartan_i_hdf5_fail(const char *function, const tartan_i_disk *disk, tartan_status otherwise,
                                 const char *where, const char *what);

/* Closes an id of any kind; those that were never opened are welcome. */
static inline void tartan_i_hdf5_close(hid_t id) {
    if (id > 0) H5Idec_ref(id);
}

/* Writes the chunk of `bytes` bytes that begins at item `first`, and the checksum of a dataset whose only filter is
 * Fletcher-32; `chunk` has room for it. Older versions of HDF5 cannot do this. */
bool tartan_i_hdf5_writes_chunks(void);
bool tartan_i_hdf5_write_chunk(hid_t dataset, int64_t first, unsigned char *chunk, int64_t bytes);

/* The file type of a dtype, negative on failure: 16-bit and 8-bit types are described field by field, as HDF5
 * before 1.14 and 2.0 has no names for them. The caller closes it. */
hid_t tartan_i_hdf5_type(int32_t dtype);

#endif
