/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hdf5_private.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

/* ---- The lock, errors, types ---- */

/* Not every build of HDF5 is thread-safe, and those that are use one lock as well. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

tartan_i_quiet tartan_i_hdf5_enter(void) {
    tartan_i_quiet quiet = {0};
    pthread_mutex_lock(&lock);
    H5Eget_auto2(H5E_DEFAULT, &quiet.handler, &quiet.user);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return quiet;
}

void tartan_i_hdf5_leave(tartan_i_quiet quiet) {
    H5Eclear2(H5E_DEFAULT);
    H5Eset_auto2(H5E_DEFAULT, quiet.handler, quiet.user);
    pthread_mutex_unlock(&lock);
}

typedef struct innermost {
    char text[200];
    bool memory;
} innermost;

static herr_t keep_first(unsigned n, const H5E_error2_t *error, void *user) {
    innermost *found = user;
    if (n == 0 && error->desc != NULL) strncpy(found->text, error->desc, sizeof found->text - 1);
    if (error->maj_num == H5E_RESOURCE && (error->min_num == H5E_NOSPACE || error->min_num == H5E_CANTALLOC))
        found->memory = true;
    return 0;
}

tartan_status tartan_i_hdf5_fail(const char *function, const tartan_i_disk *disk, tartan_status otherwise,
                                 const char *where, const char *what) {
    innermost found = {.text = "HDF5 gives no reason"};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &found);
    if (disk != NULL && (disk->error == EBADMSG || disk->error == ESTALE || disk->error == ENOMEM))
        return tartan_i_paged_fail(function, where, disk->error);
    if (disk != NULL && disk->error != 0)
        return tartan_i_fail(TARTAN_ERR_FILE, function, "%s: %s: %s", where, what, strerror(disk->error));
    return tartan_i_fail(found.memory ? TARTAN_ERR_MEMORY : otherwise, function, "%s: %s: %s", where, what,
                         found.text);
}

static hid_t small_float(size_t exponent_bits, size_t mantissa_bits, size_t bias) {
    const size_t bits = 1 + exponent_bits + mantissa_bits;
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    if (type >= 0 && H5Tset_fields(type, bits - 1, mantissa_bits, exponent_bits, 0, mantissa_bits) >= 0 &&
        H5Tset_size(type, bits / 8) >= 0 && H5Tset_ebias(type, bias) >= 0)
        return type;
    tartan_i_hdf5_close(type);
    return -1;
}

hid_t tartan_i_hdf5_type(int32_t dtype) {
    switch (dtype) {
    case TARTAN_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case TARTAN_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case TARTAN_F16:
        return small_float(5, 10, 15);
    case TARTAN_BF16:
        return small_float(8, 7, 127);
    case TARTAN_F8E4M3:
        return small_float(4, 3, 7);
    case TARTAN_F8E5M2:
        return small_float(5, 2, 15);
    case TARTAN_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case TARTAN_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case TARTAN_I64:
        return H5Tcopy(H5T_STD_I64LE);
    default:
        return -1;
    }
}

/* ---- The driver ---- */

static void let_go(tartan_i_disk *disk) {
    if (--disk->references == 0) tartan_i_free(disk);
}

void tartan_i_disk_release(tartan_i_disk *disk) {
    if (disk == NULL) return;
    disk->fd = -1;
    if (disk->driver > 0) H5FDunregister(disk->driver);
    disk->driver = 0;
    let_go(disk);
}

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t most) {
    (void)name, (void)flags, (void)most;
    tartan_i_disk *const *info = H5Pget_driver_info(fapl);
    struct stat about;
    if (info == NULL || fstat((*info)->fd, &about) != 0) return NULL;
    tartan_i_disk *disk = *info;
    disk->references++;
    disk->hdf5 = (H5FD_t){0};
    disk->end_allocated = 0;
    disk->end_written = (haddr_t)about.st_size;
    if (disk->paged != NULL) {
        const tartan_i_seal *seal = tartan_i_paged_seal(disk->paged);
        disk->end_written = (haddr_t)(disk->access == TARTAN_I_ADD ? seal->length : seal->end);
    }
    return &disk->hdf5;
}

static herr_t driver_close(H5FD_t *base) {
    let_go((tartan_i_disk *)base);
    return 0;
}

/* For HDF5 two open files are always different, so the default comparison by address is right. */
static herr_t driver_query(const H5FD_t *base, unsigned long *flags) {
    const tartan_i_disk *disk = (const tartan_i_disk *)base;
    if (flags == NULL) return 0;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
             H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    /* HDF5 copies from beyond its collected metadata where an address in a damaged file is near 2^64. */
    if (disk == NULL || disk->access != TARTAN_I_READ || disk->paged != NULL)
        *flags |= H5FD_FEAT_ACCUMULATE_METADATA;
    return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *base, H5FD_mem_t type) {
    (void)type;
    return ((const tartan_i_disk *)base)->end_allocated;
}

static herr_t driver_set_eoa(H5FD_t *base, H5FD_mem_t type, haddr_t end) {
    (void)type;
    ((tartan_i_disk *)base)->end_allocated = end;
    return 0;
}

static haddr_t driver_get_eof(const H5FD_t *base, H5FD_mem_t type) {
    (void)type;
    return ((const tartan_i_disk *)base)->end_written;
}

static bool read_bytes(tartan_i_disk *disk, void *bytes, int64_t size, int64_t at) {
    return disk->paged != NULL ? tartan_i_paged_read(disk->paged, bytes, size, at)
                               : tartan_i_disk_read(disk->fd, bytes, size, at);
}

static bool write_bytes(tartan_i_disk *disk, const void *bytes, int64_t size, int64_t at) {
    return disk->paged != NULL ? tartan_i_paged_write(disk->paged, bytes, size, at)
                               : tartan_i_disk_write(disk->fd, bytes, size, at);
}

bool tartan_i_disk_take(tartan_i_disk *disk, void *bytes, int64_t size, int64_t at) {
    if (read_bytes(disk, bytes, size, at)) return true;
    disk->error = errno != 0 ? errno : EIO;
    return false;
}

/* Bytes past the end of the file read as zeros: HDF5 may read space that it has not written yet. */
static herr_t driver_read(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t size, void *bytes) {
    (void)type, (void)dxpl;
    tartan_i_disk *disk = (tartan_i_disk *)base;
    if (at > INT64_MAX || size > INT64_MAX - at) return -1;
    size_t have = at >= disk->end_written ? 0 : (size_t)(disk->end_written - at);
    if (have > size) have = size;
    memset((char *)bytes + have, 0, size - have);
    if (have == 0 || read_bytes(disk, bytes, (int64_t)have, (int64_t)at)) return 0;
    if (disk->access != TARTAN_I_READ && disk->error != 0) {
        memset(bytes, 0, have); /* it was never written; the file is lost already */
        return 0;
    }
    disk->error = errno != 0 ? errno : EIO;
    return -1;
}

static herr_t driver_write(H5FD_t *base, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t size,
                           const void *bytes) {
    (void)type, (void)dxpl;
    tartan_i_disk *disk = (tartan_i_disk *)base;
    if (disk->access == TARTAN_I_READ || at > INT64_MAX || size > INT64_MAX - at) return -1;
    if (disk->error == 0 && !write_bytes(disk, bytes, (int64_t)size, (int64_t)at))
        disk->error = errno != 0 ? errno : EIO;
    if (disk->pages != NULL) tartan_i_pages_wrote(disk->pages, bytes, (int64_t)size, (int64_t)at);
    if (at + size > disk->end_written) disk->end_written = at + size;
    return 0;
}

static herr_t driver_truncate(H5FD_t *base, hid_t dxpl, hbool_t closing) {
    (void)dxpl, (void)closing;
    tartan_i_disk *disk = (tartan_i_disk *)base;
    if (disk->access == TARTAN_I_READ || disk->end_allocated == disk->end_written) return 0;
    if (disk->error == 0 && !tartan_i_disk_truncate(disk->fd, (int64_t)disk->end_allocated))
        disk->error = errno != 0 ? errno : EIO;
    if (disk->pages != NULL) tartan_i_pages_cut(disk->pages, (int64_t)disk->end_allocated);
    disk->end_written = disk->end_allocated;
    return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 2)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)600, /* from the range for unregistered drivers */
#endif
    .name = "tartan",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(tartan_i_disk *),
    .open = driver_open,
    .close = driver_close,
    .query = driver_query,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .truncate = driver_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

static hid_t open_or_create(hid_t plist, tartan_i_access access) {
    static const char name[] = "tartan"; /* the driver has the open file, so this name is not used */
    if (access == TARTAN_I_READ) return H5Fopen(name, H5F_ACC_RDONLY, plist);
    if (access == TARTAN_I_ADD) return H5Fopen(name, H5F_ACC_RDWR, plist);
    hid_t create = H5Pcreate(H5P_FILE_CREATE), file = -1;
    if (create >= 0 && H5Pset_userblock(create, TARTAN_I_SEAL_BYTES) >= 0 &&
        H5Pset_obj_track_times(create, false) >= 0) /* of the root group: equal content gives equal files */
        file = H5Fcreate(name, H5F_ACC_TRUNC, create, plist);
    tartan_i_hdf5_close(create);
    return file;
}

/* The formats of 1.10 take the least room, and views need them anyway. */
static hid_t make_access(hid_t driver_id, tartan_i_disk *disk) {
    hid_t plist = H5Pcreate(H5P_FILE_ACCESS);
    if (plist >= 0 && driver_id >= 0 && H5Pset_driver(plist, driver_id, &disk) >= 0 &&
        H5Pset_fclose_degree(plist, H5F_CLOSE_STRONG) >= 0 &&
        H5Pset_libver_bounds(plist, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0)
        return plist;
    tartan_i_hdf5_close(plist);
    return -1;
}

/* A file ends with its HDF5 part. A copy of one of ours without the seal may still have the list of the pages behind. */
static bool ends_well(const tartan_i_disk *disk) {
    if (disk->end_allocated == disk->end_written) return true;
    const int64_t end = (int64_t)disk->end_allocated,
                  extra = (int64_t)(disk->end_written - disk->end_allocated);
    return disk->paged == NULL && disk->end_written > disk->end_allocated &&
           extra ==
               TARTAN_I_HASH_BYTES * tartan_i_pages_count(end + TARTAN_I_SEAL_BYTES, TARTAN_I_PAGE_BYTES);
}

/* How addresses and sizes are written in a file, with 8 bytes in all but exotic ones. */
static bool read_sizes(hid_t file, tartan_i_disk *disk) {
    size_t address = 0, length = 0;
    hsize_t base = 0;
    hid_t plist = H5Fget_create_plist(file);
    const bool read =
        plist >= 0 && H5Pget_sizes(plist, &address, &length) >= 0 && H5Pget_userblock(plist, &base) >= 0;
    tartan_i_hdf5_close(plist);
    disk->address_bytes = (int)address;
    disk->length_bytes = (int)length;
    disk->base = (int64_t)base;
    return read && address <= sizeof(uint64_t) && length <= sizeof(uint64_t) && base <= INT64_MAX;
}

tartan_status tartan_i_disk_open(const char *function, const char *path, int fd, tartan_i_access access,
                                 tartan_i_pages *pages, tartan_i_paged *paged, tartan_i_disk **out_disk,
                                 hid_t *out_file) {
    tartan_i_disk *disk;
    const bool writable = access != TARTAN_I_READ;
    PASS(tartan_i_allocate(&disk, 1, sizeof *disk));
    *disk = (tartan_i_disk){.fd = fd, .access = access, .pages = pages, .paged = paged, .references = 1};
    /* The file keeps the driver registered, so the driver does not outlive the last file. */
    hid_t id = H5FDregister(&driver), plist = make_access(id, disk), file = -1;
    if (plist >= 0) file = open_or_create(plist, access);
    tartan_status status = TARTAN_OK;
    if (file < 0)
        status = tartan_i_hdf5_fail(function, disk, writable ? TARTAN_ERR_FILE : TARTAN_ERR_FORMAT, path,
                                    writable ? "cannot be written" : "cannot be read as HDF5");
    else if (!writable && !ends_well(disk))
        status = tartan_i_fail(TARTAN_ERR_FORMAT, function,
                               "%s: damaged: it has %" PRIu64 " bytes, its HDF5 part should end at %" PRIu64,
                               path, (uint64_t)disk->end_written, (uint64_t)disk->end_allocated);
    else if (access != TARTAN_I_MAKE && !read_sizes(file, disk))
        status = tartan_i_hdf5_fail(function, disk, TARTAN_ERR_FORMAT, path, "cannot be read as HDF5");
    /* What is added comes behind all that is in the file, the list of its pages included. */
    if (access == TARTAN_I_ADD && disk->end_allocated < disk->end_written)
        disk->end_allocated = disk->end_written;
    tartan_i_hdf5_close(plist);
    disk->driver = id;
    if (status != TARTAN_OK) {
        if (file > 0) H5Fclose(file);
        tartan_i_disk_release(disk);
        return status;
    }
    *out_disk = disk;
    *out_file = file;
    return TARTAN_OK;
}
