/* SPDX-License-Identifier: Apache-2.0
 * Fuzzes the seal with raw bytes. Nothing that is called here knows HDF5: whatever is damaged must be
 * refused before anything is parsed, and what passes as sealed must be sealed. */
#include "core/memory.h"
#include "io/seal.h"

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

/* The hash of the bytes after the user block, by its definition. */
static void hash_pages(const uint8_t *data, size_t size, unsigned char out[TARTAN_I_HASH_BYTES]) {
    XXH128_canonical_t hash;
    XXH3_state_t all;
    XXH3_INITSTATE(&all);
    XXH3_128bits_reset(&all);
    for (size_t at = TARTAN_I_SEAL_BYTES; at < size; at += TARTAN_I_PAGE_BYTES) {
        const size_t left = size - at;
        XXH128_canonicalFromHash(
            &hash, XXH3_128bits(data + at, left < TARTAN_I_PAGE_BYTES ? left : TARTAN_I_PAGE_BYTES));
        XXH3_128bits_update(&all, hash.digest, sizeof hash.digest);
    }
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(&all));
    memcpy(out, hash.digest, TARTAN_I_HASH_BYTES);
}

/* Whether the bytes have a right seal, by its definition. */
static bool is_sealed(const uint8_t *data, size_t size) {
    unsigned char hash[TARTAN_I_HASH_BYTES];
    uint64_t length = 0;
    if (size < TARTAN_I_SEAL_BYTES) return false;
    for (int i = 0; i < 8; i++) length |= (uint64_t)data[24 + i] << 8 * i;
    hash_pages(data, size, hash);
    return length == size && memcmp(hash, data + 32, sizeof hash) == 0;
}

static void inspect(const uint8_t *data, size_t size) {
    char path[64];
    int memory = memfd_create("fuzz", MFD_CLOEXEC), fd = -1;
    bool sealed = false;
    demand(memory >= 0 && tartan_i_disk_write(memory, data, (int64_t)size, 0), "no room for the input");
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    tartan_status status = tartan_i_seal_open("fuzz", path, &fd, &sealed);
    if (status == TARTAN_OK) {
        static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
        demand(sealed ? is_sealed(data, size) : size >= 8 && memcmp(data, signature, 8) == 0, "let through");
        close(fd);
    } else {
        demand(fd == -1 && (status == TARTAN_ERR_FORMAT || status == TARTAN_ERR_VERSION),
               "the wrong refusal");
    }
    close(memory);
    demand(tartan_i_memory_live() == 0, "memory is left");
}

/* The bytes as they are, then with the right hash and length, so that the code behind those two comparisons is reached. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    inspect(data, size);
    if (size < TARTAN_I_SEAL_BYTES) return 0;
    uint8_t *copy = malloc(size);
    demand(copy != NULL, "no memory");
    memcpy(copy, data, size);
    hash_pages(data, size, copy + 32);
    for (int i = 0; i < 8; i++) copy[24 + i] = (uint8_t)((uint64_t)size >> 8 * i);
    inspect(copy, size);
    free(copy);
    return 0;
}
