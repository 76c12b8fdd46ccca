/* SPDX-License-Identifier: Apache-2.0
 * Fuzzes the seal and the reading of sealed pages with raw bytes. Nothing that is called here knows HDF5: whatever is
 * damaged must be refused before anything is parsed, and what passes as sealed must be sealed. */
#include "core/memory.h"
#include "io/paged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static void demand(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

static void hash_bytes(const uint8_t *data, size_t size, unsigned char out[TARTAN_I_HASH_BYTES]) {
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(data, size));
    memcpy(out, hash.digest, TARTAN_I_HASH_BYTES);
}

/* The list of the hashes of the pages between the user block and `end`, by its definition. The caller frees it. */
static uint8_t *list_pages(const uint8_t *data, size_t end, size_t page_bytes, size_t *out_size) {
    size_t pages = 0;
    uint8_t *list = malloc((end / page_bytes + 1) * TARTAN_I_HASH_BYTES);
    demand(list != NULL, "no memory");
    for (size_t at = TARTAN_I_SEAL_BYTES; at < end; at += page_bytes, pages++)
        hash_bytes(data + at, end - at < page_bytes ? end - at : page_bytes,
                   list + pages * TARTAN_I_HASH_BYTES);
    *out_size = pages * TARTAN_I_HASH_BYTES;
    return list;
}

static void hash_list(const uint8_t *data, size_t end, size_t page_bytes,
                      unsigned char out[TARTAN_I_HASH_BYTES]) {
    size_t size;
    uint8_t *list = list_pages(data, end, page_bytes, &size);
    hash_bytes(list, size, out);
    free(list);
}

static uint64_t load(const uint8_t *at) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* Whether the bytes have a right seal of version 2, which covers all of the file. */
static bool is_sealed(const uint8_t *data, size_t size) {
    unsigned char hash[TARTAN_I_HASH_BYTES];
    if (size < TARTAN_I_SEAL_BYTES) return false;
    hash_list(data, size, TARTAN_I_OLD_PAGE_BYTES, hash);
    return load(data + 24) == size && memcmp(hash, data + 32, sizeof hash) == 0;
}

/* Whether the pages match the list of a seal of version 3. Those that a journal changes are not looked at. */
static bool pages_match(const uint8_t *data, const tartan_i_seal *seal) {
    unsigned char hash[TARTAN_I_HASH_BYTES];
    if (seal->journal_bytes > 0) return true;
    hash_list(data, (size_t)seal->end, TARTAN_I_PAGE_BYTES, hash);
    return memcmp(hash, seal->list_hash, sizeof hash) == 0;
}

static bool is_refusal(tartan_status status) {
    return status == TARTAN_ERR_FORMAT || status == TARTAN_ERR_VERSION;
}

/* Reads a file with a seal of version 3, by pages and by unaligned ranges. */
static void inspect_pages(const uint8_t *data, size_t size, const char *path, int fd,
                          const tartan_i_seal *seal) {
    tartan_i_paged *paged = NULL;
    demand(seal->end >= TARTAN_I_SEAL_BYTES && (size_t)seal->end <= size, "pages beyond the file");
    const tartan_status status = tartan_i_paged_open("fuzz", path, fd, seal, &paged);
    demand(status == TARTAN_OK || is_refusal(status), "the wrong refusal of pages");
    if (status != TARTAN_OK) return;
    const tartan_status verified = tartan_i_paged_verify("fuzz", path, paged);
    demand(verified == TARTAN_OK ? pages_match(data, seal) : is_refusal(verified), "pages let through");
    if (verified == TARTAN_OK) {
        uint8_t bytes[97];
        for (int64_t at = 0; at + (int64_t)sizeof bytes <= seal->end; at += 89)
            demand(tartan_i_paged_read(paged, bytes, sizeof bytes, at), "verified bytes cannot be read");
    }
    tartan_i_paged_free(paged);
}

static void inspect(const uint8_t *data, size_t size) {
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    char path[64];
    int memory = memfd_create("fuzz", MFD_CLOEXEC), fd = -1;
    tartan_i_seal seal = {0};
    demand(memory >= 0 && tartan_i_disk_write(memory, data, (int64_t)size, 0), "no room for the input");
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    tartan_status status = tartan_i_seal_open("fuzz", path, false, &fd, &seal);
    if (status == TARTAN_OK) {
        if (seal.version == TARTAN_I_SEAL_VERSION)
            inspect_pages(data, size, path, fd, &seal);
        else if (seal.version == TARTAN_I_OLD_SEAL_VERSION)
            demand(is_sealed(data, size), "let through");
        else
            demand(size >= 8 && memcmp(data, signature, 8) == 0, "let through without a seal");
        close(fd);
    } else {
        demand(fd == -1 && is_refusal(status), "the wrong refusal");
    }
    close(memory);
    demand(tartan_i_memory_live() == 0, "memory is left");
}

/* The input with a right length and hash of version 2. */
static void inspect_old(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size);
    demand(copy != NULL, "no memory");
    memcpy(copy, data, size);
    hash_list(data, size, TARTAN_I_OLD_PAGE_BYTES, copy + 32);
    for (int i = 0; i < 8; i++) copy[24 + i] = (uint8_t)((uint64_t)size >> 8 * i);
    inspect(copy, size);
    free(copy);
}

/* The input as the pages and the journal of a file with a right seal of version 3: its first two bytes say where the
 * journal begins. */
static void inspect_journal(const uint8_t *data, size_t size) {
    const size_t pages = 2 + (size_t)(data[0] | data[1] << 8) % (size - 1), journal = size - pages;
    const size_t end = TARTAN_I_SEAL_BYTES + pages;
    size_t list_bytes;
    uint8_t *copy = calloc(1, end + (end / TARTAN_I_PAGE_BYTES + 1) * TARTAN_I_HASH_BYTES + journal);
    demand(copy != NULL, "no memory");
    memcpy(copy + TARTAN_I_SEAL_BYTES, data, pages);
    uint8_t *list = list_pages(copy, end, TARTAN_I_PAGE_BYTES, &list_bytes);
    memcpy(copy + end, list, list_bytes);
    memcpy(copy + end + list_bytes, data + pages, journal);
    tartan_i_seal seal = {.end = (int64_t)end,
                          .journal_bytes = (int64_t)journal,
                          .length = (int64_t)(end + list_bytes + journal),
                          .growing = data[0] & 1};
    hash_bytes(list, list_bytes, seal.list_hash);
    hash_bytes(data + pages, journal, seal.journal_hash);
    tartan_i_seal_make(&seal, copy);
    inspect(copy, (size_t)seal.length);
    free(list);
    free(copy);
}

/* The bytes as they are, then with right hashes and lengths, so that the code behind those comparisons is reached. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    inspect(data, size);
    if (size >= 2) inspect_journal(data, size);
    if (size >= TARTAN_I_SEAL_BYTES) inspect_old(data, size);
    return 0;
}
