/* SPDX-License-Identifier: Apache-2.0
 * Chunks of whole items, written and read past HDF5's filters, which take longer than the disk. */
#include "io/fletcher.h"
#include "io/hdf5_check.h"

#include <string.h>

#define DIRECT H5_VERSION_GE(1, 10, 3)

static void store_checksum(unsigned char *chunk, int64_t bytes) {
    const uint32_t sum = tartan_i_fletcher32(chunk, bytes);
    for (int i = 0; i < TARTAN_I_FLETCHER_BYTES; i++) chunk[bytes + i] = (unsigned char)(sum >> 8 * i);
}

static bool checksum_holds(const unsigned char *chunk, int64_t bytes) {
    uint32_t stored = 0;
    for (int i = 0; i < TARTAN_I_FLETCHER_BYTES; i++) stored |= (uint32_t)chunk[bytes + i] << 8 * i;
    return stored == tartan_i_fletcher32(chunk, bytes);
}

bool tartan_i_hdf5_write_chunk(hid_t dataset, int64_t first, unsigned char *chunk, int64_t bytes) {
#if DIRECT
    const hsize_t start[TARTAN_MAX_NDIM] = {(hsize_t)first};
    store_checksum(chunk, bytes);
    return H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, start, (size_t)(bytes + TARTAN_I_FLETCHER_BYTES), chunk) >=
           0;
#else
    (void)dataset, (void)first, (void)chunk, (void)bytes;
    return false;
#endif
}

bool tartan_i_hdf5_writes_chunks(void) {
    return DIRECT;
}

/* The items of a chunk, if Fletcher-32 is the dataset's only filter and a chunk is as wide as the dataset; else 0. */
static int64_t chunk_items(const tartan_i_dataset *dataset, hid_t plist) {
    const int rank = dataset->rank;
    hsize_t chunk[TARTAN_MAX_NDIM];
    unsigned flags, info;
    size_t entries = 0;
    if (H5Pget_layout(plist) != H5D_CHUNKED || H5Pget_nfilters(plist) != 1 ||
        H5Pget_filter2(plist, 0, &flags, &entries, NULL, 0, NULL, &info) != H5Z_FILTER_FLETCHER32 ||
        H5Pget_chunk(plist, rank, chunk) != rank)
        return 0;
    for (int i = 1; i < rank; i++)
        if ((int64_t)chunk[i] != dataset->dims[i]) return 0;
    return (int64_t)chunk[0] <= dataset->dims[0] ? (int64_t)chunk[0] : 0;
}

#if DIRECT
/* *out_good is false where anything is unusual; then HDF5 may say what it is. */
static tartan_status read_one(const tartan_i_call *call, const tartan_i_dataset *dataset, int64_t first,
                              unsigned char *chunk, int64_t bytes, bool *out_good) {
    const hsize_t start[TARTAN_MAX_NDIM] = {(hsize_t)first};
    hsize_t stored = 0;
    uint32_t skipped = 0;
    *out_good = false;
    if (H5Dget_chunk_storage_size(dataset->id, start, &stored) < 0)
        return tartan_i_fail_hdf5(call, dataset->name);
    if (stored != (hsize_t)(bytes + TARTAN_I_FLETCHER_BYTES)) return TARTAN_OK;
    if (H5Dread_chunk(dataset->id, H5P_DEFAULT, start, &skipped, chunk) < 0)
        return tartan_i_fail_hdf5(call, dataset->name);
    *out_good = skipped == 0 && checksum_holds(chunk, bytes);
    return TARTAN_OK;
}
#endif

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

tartan_status tartan_i_hdf5_read_chunks(const tartan_i_call *call, const tartan_i_dataset *dataset,
                                        int64_t first, int64_t count, void *out, bool *out_done) {
    tartan_status status = TARTAN_OK;
    *out_done = false;
#if DIRECT
    hid_t plist = H5Dget_create_plist(dataset->id);
    const int64_t items = plist < 0 ? 0 : chunk_items(dataset, plist);
    tartan_i_hdf5_close(plist);
    if (items == 0) return TARTAN_OK;
    const int64_t item_bytes = dataset->bytes / dataset->dims[0], bytes = items * item_bytes,
                  end = first + count;
    unsigned char *chunk, *to = out;
    PASS(tartan_i_allocate(&chunk, bytes + TARTAN_I_FLETCHER_BYTES, 1));
    bool good = true;
    for (int64_t at = first / items * items; good && at < end; at += items) {
        const int64_t begin = at > first ? at : first, some = smaller(at + items, end) - begin;
        status = read_one(call, dataset, at, chunk, bytes, &good);
        if (good) memcpy(to, chunk + (begin - at) * item_bytes, (size_t)(some * item_bytes));
        to += some * item_bytes;
    }
    tartan_i_free(chunk);
    *out_done = good;
#else
    (void)call, (void)dataset, (void)first, (void)count, (void)out;
#endif
    return status;
}
