/* SPDX-License-Identifier: Apache-2.0
 * Texts of variable length lie in heaps, which have no checksums. HDF5 takes their sizes and places on trust: in a damaged file it goes
 * round in circles, reads beyond its memory or writes there. So HDF5 tells where a text is, and it is read here. */
#include "io/hdf5_check.h"

#include <string.h>

enum { MOST_REFERENCE = 4 + 8 + 4, OBJECT_INDEX_BYTES = 2 };
#define MOST_HEAP ((int64_t)1 << 31)

static uint64_t number_at(const unsigned char *bytes, int count) {
    uint64_t n = 0;
    for (int i = count - 1; i >= 0; i--) n = n << 8 | bytes[i];
    return n;
}

/* A conversion of texts to references, which are what is stored: nothing is to be done. The only target it knows is ours. */
static const char tag[] = "reference of a text";

static herr_t keep_reference(hid_t source, hid_t target, H5T_cdata_t *data, size_t count, size_t stride,
                             size_t background_stride, void *bytes, void *background, hid_t plist) {
    (void)source, (void)count, (void)stride, (void)background_stride, (void)bytes, (void)background,
        (void)plist;
    if (data->command != H5T_CONV_INIT) return 0;
    data->need_bkg = H5T_BKG_NO;
    if (H5Tget_class(target) != H5T_OPAQUE) return -1;
    char *found = H5Tget_tag(target);
    const bool is_ours = found != NULL && strcmp(found, tag) == 0;
    H5free_memory(found);
    return is_ours ? 0 : -1;
}

/* HDF5 reads as much as the type says, whatever is stored; but it makes whole chunks of what it finds. */
static bool is_stored(hid_t id, bool attribute, int size) {
    if (attribute) return H5Aget_storage_size(id) >= (hsize_t)size;
    hid_t plist = H5Dget_create_plist(id);
    const bool chunked = H5Pget_layout(plist) == H5D_CHUNKED;
    tartan_i_hdf5_close(plist);
    return chunked || H5Dget_storage_size(id) >= (hsize_t)size;
}

static herr_t read_reference(hid_t id, bool attribute, hid_t text, int size, unsigned char *out) {
    hid_t target = H5Tcreate(H5T_OPAQUE, (size_t)size);
    herr_t failed = target < 0 ? -1 : H5Tset_tag(target, tag);
    if (failed >= 0) failed = H5Tregister(H5T_PERS_SOFT, tag, text, target, keep_reference);
    if (failed >= 0) {
        failed =
            attribute ? H5Aread(id, target, out) : H5Dread(id, target, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
        H5Tunregister(H5T_PERS_SOFT, tag, text, target, keep_reference);
    }
    tartan_i_hdf5_close(target);
    return failed;
}

/* The object of a heap, NULL if it is not there once or the objects do not follow each other up to the end. */
static const unsigned char *find_object(const unsigned char *heap, uint64_t end, int length_bytes,
                                        uint64_t wanted, uint64_t *out_length) {
    const uint64_t header = 8 + (uint64_t)(length_bytes + 7) / 8 * 8; /* of the heap, and of an object */
    const unsigned char *found = NULL;
    for (uint64_t at = header; at < end && end - at >= header;) {
        const uint64_t index = number_at(heap + at, OBJECT_INDEX_BYTES),
                       length = number_at(heap + at + 8, length_bytes), left = end - at;
        if (length > left) return NULL;
        const uint64_t step = index == 0 ? length : header + (length + 7) / 8 * 8;
        if (step == 0 || step > left) return NULL;
        if (index == wanted) {
            if (found != NULL) return NULL;
            found = heap + at + header;
            *out_length = length;
        }
        at += step;
    }
    return found;
}

/* Reads the heap at a place of the file; NULL without a failure if there is none. */
static tartan_status read_heap(const tartan_i_call *call, const char *name, int64_t at, int64_t *out_bytes,
                               unsigned char **out) {
    static const unsigned char signature[8] = {'G', 'C', 'O', 'L', 1};
    tartan_i_disk *disk = call->disk;
    const int64_t end = (int64_t)disk->end_written;
    unsigned char begin[8 + 8];
    *out = NULL;
    if (end - at < (int64_t)sizeof begin) return TARTAN_OK;
    if (!tartan_i_disk_take(disk, begin, sizeof begin, at)) return tartan_i_fail_hdf5(call, name);
    const uint64_t bytes = number_at(begin + 8, disk->length_bytes);
    if (memcmp(begin, signature, sizeof signature) != 0 || bytes < sizeof begin ||
        bytes > (uint64_t)MOST_HEAP || bytes > (uint64_t)(end - at))
        return TARTAN_OK;
    PASS(tartan_i_allocate(out, (int64_t)bytes, 1));
    *out_bytes = (int64_t)bytes;
    if (tartan_i_disk_take(disk, *out, (int64_t)bytes, at)) return TARTAN_OK;
    tartan_i_free(*out);
    return tartan_i_fail_hdf5(call, name);
}

tartan_status tartan_i_read_heap_text(const tartan_i_call *call, hid_t id, bool attribute, hid_t type,
                                      const char *name, char **out) {
    const tartan_i_disk *disk = call->disk;
    const int size = 4 + disk->address_bytes + 4;
    unsigned char reference[MOST_REFERENCE] = {0}, *heap = NULL;
    if (!is_stored(id, attribute, size))
        return tartan_i_fail_format(call, "%s should hold %d bytes, but fewer are stored", name, size);
    if (read_reference(id, attribute, type, size, reference) < 0) return tartan_i_fail_hdf5(call, name);
    const uint64_t length = number_at(reference, 4), place = number_at(reference + 4, disk->address_bytes),
                   index = number_at(reference + 4 + disk->address_bytes, 4);
    if (length == 0 || place == 0) return tartan_i_allocate_zeroed(out, 1, 1);
    int64_t heap_bytes = 0;
    if (place <= INT64_MAX && (int64_t)place <= INT64_MAX - disk->base)
        PASS(read_heap(call, name, (int64_t)place + disk->base, &heap_bytes, &heap));
    uint64_t found_length = 0;
    const unsigned char *found =
        heap == NULL || index == 0
            ? NULL
            : find_object(heap, (uint64_t)heap_bytes, disk->length_bytes, index, &found_length);
    if (found == NULL || found_length != length) {
        tartan_i_free(heap);
        return tartan_i_fail_format(call, "%s: damaged: its text is not in the heap that it names", name);
    }
    tartan_status status;
    TRY(tartan_i_allocate(out, (int64_t)length + 1, 1));
    memcpy(*out, found, length);
    (*out)[length] = '\0';
fail:
    tartan_i_free(heap);
    return status;
}
