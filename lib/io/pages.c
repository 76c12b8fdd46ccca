/* SPDX-License-Identifier: Apache-2.0 */
#include "io/pages.h"

#include "core/memory.h"
#include "io/seal.h"

#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL /* so that the size of its state matches the code that uses it */
#include <xxhash.h>

typedef struct page {
    unsigned char hash[TARTAN_I_HASH_BYTES];
    bool known;
} page;

/* Bytes are written mostly in ascending order. `at` is where the last of them ended; if all of the page around `at`
 * was written in order so far, `whole` is true and `state` has its bytes up to there. */
struct tartan_i_pages {
    XXH3_state_t state;
    int64_t at;
    bool whole;
    page *list;
    int64_t count, capacity; /* pages from `count` on are unknown */
};

int64_t tartan_i_pages_count(int64_t end, int64_t page_bytes) {
    return (end - TARTAN_I_SEAL_BYTES + page_bytes - 1) / page_bytes;
}

int64_t tartan_i_pages_begin(int64_t i, int64_t page_bytes) {
    return TARTAN_I_SEAL_BYTES + i * page_bytes;
}

static int64_t page_of(int64_t offset) {
    return (offset - TARTAN_I_SEAL_BYTES) / TARTAN_I_PAGE_BYTES;
}

static int64_t begin_of(int64_t index) {
    return tartan_i_pages_begin(index, TARTAN_I_PAGE_BYTES);
}

static void put_hash(unsigned char out[TARTAN_I_HASH_BYTES], XXH128_hash_t hash) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(out, canonical.digest, TARTAN_I_HASH_BYTES);
}

void tartan_i_hash(const void *bytes, int64_t size, unsigned char out_hash[TARTAN_I_HASH_BYTES]) {
    put_hash(out_hash, XXH3_128bits(bytes, (size_t)size));
}

tartan_status tartan_i_pages_new(tartan_i_pages **out) {
    tartan_i_pages *pages;
    PASS(tartan_i_allocate_zeroed(&pages, 1, sizeof *pages));
    XXH3_INITSTATE(&pages->state);
    pages->at = TARTAN_I_SEAL_BYTES;
    *out = pages;
    return TARTAN_OK;
}

void tartan_i_pages_free(tartan_i_pages *pages) {
    if (pages == NULL) return;
    tartan_i_free(pages->list);
    tartan_i_free(pages);
}

/* Without memory for its hash the page stays unknown and is read back. */
static void keep_hash(tartan_i_pages *pages, int64_t index) {
    if (index >= pages->capacity) {
        page *list;
        const int64_t capacity = 2 * index + 64;
        if (tartan_i_allocate_zeroed(&list, capacity, sizeof *list) != TARTAN_OK) return;
        if (pages->count > 0) memcpy(list, pages->list, (size_t)pages->count * sizeof *list);
        tartan_i_free(pages->list);
        pages->list = list;
        pages->capacity = capacity;
    }
    put_hash(pages->list[index].hash, XXH3_128bits_digest(&pages->state));
    pages->list[index].known = true;
    if (index >= pages->count) pages->count = index + 1;
}

/* Pages from `first` to `last` change. */
static void forget(tartan_i_pages *pages, int64_t first, int64_t last) {
    for (int64_t i = first; i <= last && i < pages->count; i++) pages->list[i].known = false;
    if (first <= page_of(pages->at) && page_of(pages->at) <= last) pages->whole = false;
}

void tartan_i_pages_wrote(tartan_i_pages *pages, const void *bytes, int64_t size, int64_t offset) {
    const unsigned char *from = bytes;
    if (size <= 0) return;
    if (offset != pages->at) {
        forget(pages, page_of(offset), page_of(offset + size - 1));
        if (offset < pages->at) return;
        pages->at = offset;
        pages->whole = false;
    }
    for (int64_t left = size; left > 0;) {
        const int64_t index = page_of(pages->at), inside = pages->at - begin_of(index);
        const int64_t room = TARTAN_I_PAGE_BYTES - inside, count = left < room ? left : room;
        if (inside == 0) {
            XXH3_128bits_reset(&pages->state);
            pages->whole = true;
        }
        if (pages->whole) XXH3_128bits_update(&pages->state, from, (size_t)count);
        if (pages->whole && count == room) keep_hash(pages, index);
        pages->at += count;
        from += count;
        left -= count;
    }
}

void tartan_i_pages_cut(tartan_i_pages *pages, int64_t length) {
    forget(pages, page_of(length), INT64_MAX);
}

bool tartan_i_pages_known(const tartan_i_pages *pages, int64_t i,
                          unsigned char out_hash[TARTAN_I_HASH_BYTES]) {
    if (pages == NULL || i >= pages->count || !pages->list[i].known) return false;
    memcpy(out_hash, pages->list[i].hash, TARTAN_I_HASH_BYTES);
    return true;
}

tartan_status tartan_i_pages_list(const char *function, const char *path, int fd, int64_t end,
                                  int64_t page_bytes, const tartan_i_pages *pages, unsigned char **out_list,
                                  int64_t *out_bytes) {
    const int64_t count = tartan_i_pages_count(end, page_bytes);
    unsigned char *list = NULL, *buffer = NULL;
    tartan_status status;
    NEW(list, count * TARTAN_I_HASH_BYTES);
    NEW(buffer, page_bytes);
    for (int64_t i = 0; i < count; i++) {
        unsigned char *hash = list + i * TARTAN_I_HASH_BYTES;
        if (tartan_i_pages_known(pages, i, hash)) continue;
        const int64_t begin = tartan_i_pages_begin(i, page_bytes), left = end - begin;
        const int64_t size = left < page_bytes ? left : page_bytes;
        if (!tartan_i_disk_read(fd, buffer, size, begin)) {
            status = tartan_i_fail(TARTAN_ERR_FILE, function, "%s: cannot be read: %s", path,
                                   errno ? strerror(errno) : "it became shorter while it was read");
            goto fail;
        }
        tartan_i_hash(buffer, size, hash);
    }
    tartan_i_free(buffer);
    *out_list = list;
    *out_bytes = count * TARTAN_I_HASH_BYTES;
    return TARTAN_OK;
fail:
    tartan_i_free(buffer);
    tartan_i_free(list);
    return status;
}
