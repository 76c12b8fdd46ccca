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

/* Whether the bytes carry a seal that is right, told by its definition. */
static bool is_sealed(const uint8_t *data, size_t size) {
    XXH128_canonical_t hash;
    uint64_t length = 0;
    if (size < TARTAN_I_SEAL_BYTES) return false;
    for (int i = 0; i < 8; i++) length |= (uint64_t)data[24 + i] << 8 * i;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(data + TARTAN_I_SEAL_BYTES, size - TARTAN_I_SEAL_BYTES));
    return length == size && memcmp(hash.digest, data + 32, sizeof hash.digest) == 0;
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

/* The bytes as they are, then with the hash and length made right, so that what lies
 * behind those two comparisons is reached. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    inspect(data, size);
    if (size < TARTAN_I_SEAL_BYTES) return 0;
    uint8_t *copy = malloc(size);
    demand(copy != NULL, "no memory");
    memcpy(copy, data, size);
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(data + TARTAN_I_SEAL_BYTES, size - TARTAN_I_SEAL_BYTES));
    memcpy(copy + 32, hash.digest, sizeof hash.digest);
    for (int i = 0; i < 8; i++) copy[24 + i] = (uint8_t)((uint64_t)size >> 8 * i);
    inspect(copy, size);
    free(copy);
    return 0;
}
