/* SPDX-License-Identifier: Apache-2.0
 * What hdf5.c, hdf5_write.c and hdf5_driver.c share: the only files that see HDF5. */
#ifndef TARTAN_IO_HDF5_PRIVATE_H
#define TARTAN_IO_HDF5_PRIVATE_H

#define H5_USE_110_API 1 /* newer releases then offer the functions of 1.10 under their names of then */
#include <hdf5.h>
#if H5_VERSION_GE(1, 13, 2)
#include <H5FDdevelop.h>
#endif

#include "core/memory.h"
#include "io/schema.h"
#include "io/seal.h"
#include "io/store.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files hold little-endian numbers, and this code moves them as they are: swap them here"
#endif

/* HDF5 is slow at converting and rounds 16-bit types badly, so values move as they are: the type in memory is
 * the type in the file. Attributes are small and may be converted. */

/* The descriptor under an HDF5 file, and what the driver knows of it. It outlives a file that HDF5 fails to close. */
typedef struct tartan_i_disk {
    H5FD_t hdf5; /* HDF5's part, which must come first */
    haddr_t end_allocated, end_written;
    int fd;    /* -1 once its owner has let go */
    int error; /* errno of the first failure, 0: none */
    bool writable;
    int references; /* changed under the lock */
    hid_t driver;   /* registered as long as the file may use it: HDF5 1.10's H5FD_close reads it last */
} tartan_i_disk;

/* Opens an HDF5 file (creates it, where writable) in a descriptor, through a driver of our own:
 *  - what is parsed is the very file that was verified or made, whatever becomes of its name;
 *  - a write that fails is remembered and reported as success, because HDF5 can close a file cleanly only if
 *    it can write. Who writes asks disk->error at the end.
 * *out_disk is let go with tartan_i_disk_release. */
tartan_status tartan_i_disk_open(const char *function, const char *path, int fd, bool writable,
                                 tartan_i_disk **out_disk, hid_t *out_file);
void tartan_i_disk_release(tartan_i_disk *disk);

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

/* The file type of a dtype, negative on failure: 16-bit and 8-bit types are described field by field, as HDF5
 * before 1.14 and 2.0 has no names for them. The caller closes it. */
hid_t tartan_i_hdf5_type(int32_t dtype);

#endif
