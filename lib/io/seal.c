/* SPDX-License-Identifier: Apache-2.0 */
#include "io/seal.h"

#include "core/memory.h"
#include "io/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    MAGIC_BYTES = 16,
    HASH_AT = 32, /* of the seal of version 2 */
    OWN_HASH_AT = TARTAN_I_SEAL_BYTES - TARTAN_I_HASH_BYTES,
    READ_BYTES = 1 << 20,
    WRITE_BYTES = 1 << 30, /* Linux writes at most 2 GiB at once */
    LARGE_BYTES = 1 << 18,
    ATTEMPTS = 100
};

/* A high first byte, both kinds of line ends and an end-of-file mark reveal text-mode transfers. */
static const unsigned char magic[MAGIC_BYTES] = {0x89, 'T',  'A',  'R', 'T', 'A', 'N', '\r',
                                                 '\n', 0x1a, '\n', 's', 'e', 'a', 'l', 0};
static const unsigned char hdf5_signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

/* ---- The disk ---- */

static atomic_llong asked;
static atomic_llong fail_at = -1;

void tartan_i_disk_fail_at(int64_t n) {
    atomic_store(&asked, 0);
    atomic_store(&fail_at, n);
}

int64_t tartan_i_disk_asked(void) {
    return atomic_load(&asked);
}

static bool doomed(int error) {
    if (atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed) != atomic_load(&fail_at)) return false;
    errno = error;
    return true;
}

bool tartan_i_disk_read(int fd, void *bytes, int64_t size, int64_t offset) {
    char *at = bytes;
    while (size > 0) {
        ssize_t n = pread(fd, at, size < READ_BYTES ? (size_t)size : READ_BYTES, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = 0;
        if (n <= 0) return false;
        at += n, size -= n, offset += n;
    }
    return true;
}

/* Has the system begin to write a large range to the disk now, so that synchronising does not wait for all of it. The
 * last page may not be complete yet. */
static void write_behind(int fd, int64_t size, int64_t offset) {
#ifdef SYNC_FILE_RANGE_WRITE
    const int64_t begin = offset & ~(int64_t)4095, end = (offset + size) & ~(int64_t)4095;
    if (size >= LARGE_BYTES) (void)!sync_file_range(fd, begin, end - begin, SYNC_FILE_RANGE_WRITE);
#else
    (void)fd, (void)size, (void)offset;
#endif
}

bool tartan_i_disk_write(int fd, const void *bytes, int64_t size, int64_t offset) {
    if (doomed(ENOSPC)) return false;
    const char *at = bytes;
    const int64_t all = size, begin = offset;
    while (size > 0) {
        ssize_t n = pwrite(fd, at, size < WRITE_BYTES ? (size_t)size : WRITE_BYTES, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n, size -= n, offset += n;
    }
    write_behind(fd, all, begin);
    return true;
}

bool tartan_i_disk_truncate(int fd, int64_t size) {
    return !doomed(ENOSPC) && ftruncate(fd, (off_t)size) == 0;
}

bool tartan_i_disk_synchronise(int fd) {
    return !doomed(EIO) && fsync(fd) == 0;
}

/* ---- The seal ---- */

uint64_t tartan_i_little(const unsigned char *bytes, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

void tartan_i_put_little(unsigned char *bytes, int count, uint64_t value) {
    for (int i = 0; i < count; i++) bytes[i] = (unsigned char)(value >> 8 * i);
}

void tartan_i_seal_make(const tartan_i_seal *seal, unsigned char out[TARTAN_I_SEAL_BYTES]) {
    memset(out, 0, TARTAN_I_SEAL_BYTES);
    memcpy(out, magic, MAGIC_BYTES);
    tartan_i_put_little(out + 16, 4, TARTAN_I_SEAL_VERSION);
    tartan_i_put_little(out + 20, 4, TARTAN_I_SEAL_BYTES);
    tartan_i_put_little(out + 24, 8, (uint64_t)seal->length);
    memcpy(out + 32, seal->list_hash, TARTAN_I_HASH_BYTES);
    tartan_i_put_little(out + 48, 8, (uint64_t)seal->end);
    tartan_i_put_little(out + 56, 8, (uint64_t)seal->journal_bytes);
    memcpy(out + 64, seal->journal_hash, TARTAN_I_HASH_BYTES);
    tartan_i_put_little(out + 80, 8, (uint64_t)seal->unused);
    tartan_i_put_little(out + 88, 8, seal->generation);
    tartan_i_put_little(out + 96, 4, seal->growing);
    tartan_i_hash(out, OWN_HASH_AT, out + OWN_HASH_AT);
}

static tartan_status fail_length(const char *function, const char *path, int64_t length, uint64_t sealed) {
    FAIL_IN(function, FORMAT, "%s: %s: it has %" PRId64 " bytes, its seal says %" PRIu64, path,
            (uint64_t)length < sealed ? "truncated" : "damaged", length, sealed);
}

/* Version 2: the whole file is read. */
static tartan_status verify_old_seal(const char *function, const char *path, int fd, int64_t length,
                                     const unsigned char bytes[TARTAN_I_SEAL_BYTES]) {
    const uint64_t sealed_length = tartan_i_little(bytes + 24, 8);
    if (sealed_length != (uint64_t)length) return fail_length(function, path, length, sealed_length);
    unsigned char hash[TARTAN_I_HASH_BYTES], *list;
    int64_t list_bytes;
    PASS(tartan_i_pages_list(function, path, fd, length, TARTAN_I_OLD_PAGE_BYTES, NULL, &list, &list_bytes));
    tartan_i_hash(list, list_bytes, hash);
    tartan_i_free(list);
    if (memcmp(bytes + HASH_AT, hash, sizeof hash) != 0)
        FAIL_IN(function, FORMAT, "%s: damaged: its bytes do not match its seal", path);
    bool clean = tartan_i_little(bytes + 20, 4) == TARTAN_I_SEAL_BYTES;
    for (int i = HASH_AT + TARTAN_I_HASH_BYTES; i < TARTAN_I_SEAL_BYTES; i++) clean &= bytes[i] == 0;
    if (!clean) FAIL_IN(function, FORMAT, "%s: damaged: its seal has bytes that do not belong there", path);
    return TARTAN_OK;
}

static tartan_status read_seal(const char *function, const char *path, int fd, int64_t length,
                               const unsigned char bytes[TARTAN_I_SEAL_BYTES], tartan_i_seal *out) {
    const uint64_t version = tartan_i_little(bytes + 16, 4);
    if (version > TARTAN_I_SEAL_VERSION)
        FAIL_IN(function, VERSION, "%s: its seal is of version %" PRIu64 ", this library knows version %d",
                path, version, TARTAN_I_SEAL_VERSION);
    if (version < TARTAN_I_OLD_SEAL_VERSION)
        FAIL_IN(function, FORMAT, "%s: damaged: its seal is of version %" PRIu64, path, version);
    out->version = (int32_t)version;
    if (version == TARTAN_I_OLD_SEAL_VERSION) {
        out->length = out->end = length;
        return verify_old_seal(function, path, fd, length, bytes);
    }
    unsigned char again[TARTAN_I_SEAL_BYTES];
    out->length = (int64_t)tartan_i_little(bytes + 24, 8);
    memcpy(out->list_hash, bytes + 32, TARTAN_I_HASH_BYTES);
    out->end = (int64_t)tartan_i_little(bytes + 48, 8);
    out->journal_bytes = (int64_t)tartan_i_little(bytes + 56, 8);
    memcpy(out->journal_hash, bytes + 64, TARTAN_I_HASH_BYTES);
    out->unused = (int64_t)tartan_i_little(bytes + 80, 8);
    out->generation = tartan_i_little(bytes + 88, 8);
    out->growing = tartan_i_little(bytes + 96, 4) != 0;
    tartan_i_seal_make(out, again);
    if (memcmp(bytes, again, sizeof again) != 0)
        FAIL_IN(function, FORMAT, "%s: damaged: its seal does not match itself", path);
    if (length < out->length || (length > out->length && !out->growing))
        return fail_length(function, path, length, (uint64_t)out->length);
    const bool inside =
        out->end >= TARTAN_I_SEAL_BYTES && out->end <= out->length && out->journal_bytes >= 0 &&
        out->length - out->end - TARTAN_I_HASH_BYTES * tartan_i_pages_count(out->end, TARTAN_I_PAGE_BYTES) ==
            out->journal_bytes;
    if (!inside) FAIL_IN(function, FORMAT, "%s: damaged: the parts of its seal do not agree", path);
    return TARTAN_OK;
}

/* Checks the first bytes of an open regular file. */
static tartan_status inspect(const char *function, const char *path, int fd, int64_t length,
                             tartan_i_seal *out) {
    unsigned char head[TARTAN_I_SEAL_BYTES + sizeof hdf5_signature] = {0};
    int64_t have = length < (int64_t)sizeof head ? length : (int64_t)sizeof head;
    if (!tartan_i_disk_read(fd, head, have, 0))
        FAIL_IN(function, FILE, "%s: cannot be read: %s", path,
                errno ? strerror(errno) : "it became shorter while it was read");
    if (length == 0) FAIL_IN(function, FORMAT, "%s: is empty (0 bytes)", path);
    *out = (tartan_i_seal){.length = length, .end = length};
    if (memcmp(head, hdf5_signature, sizeof hdf5_signature) == 0) return TARTAN_OK;
    if (memcmp(head, magic, MAGIC_BYTES) == 0) {
        if (have < (int64_t)sizeof head)
            FAIL_IN(function, FORMAT, "%s: truncated: %" PRId64 " bytes are left", path, length);
        return read_seal(function, path, fd, length, head, out);
    }
    /* If such a file were accepted, one damaged byte in the magic would disable the seal. */
    if (memcmp(head + TARTAN_I_SEAL_BYTES, hdf5_signature, sizeof hdf5_signature) == 0)
        FAIL_IN(function, FORMAT, "%s: damaged, or not one of Tartan's: its user block is not a seal", path);
    FAIL_IN(function, FORMAT, "%s: is not an HDF5 file", path);
}

tartan_status tartan_i_seal_open(const char *function, const char *path, bool writable, int *out_fd,
                                 tartan_i_seal *out_seal) {
    /* O_NONBLOCK: do not wait for a FIFO, which is refused below. */
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    if (fd < 0) FAIL_IN(function, FILE, "%s: cannot be opened: %s", path, strerror(errno));
    tartan_status status = TARTAN_OK;
    if (fstat(fd, &about) != 0)
        status = tartan_i_fail(TARTAN_ERR_FILE, function, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = tartan_i_fail(TARTAN_ERR_FILE, function, "%s: is %s, expected a file", path,
                               S_ISDIR(about.st_mode) ? "a directory" : "a device or a pipe");
    else
        status = inspect(function, path, fd, about.st_size, out_seal);
    if (status != TARTAN_OK)
        close(fd);
    else
        *out_fd = fd;
    return status;
}

/* ---- The temporary file ---- */

/* A random name of constant length; O_EXCL fails if it exists. */
static tartan_status open_temporary(tartan_i_target *target, int64_t directory_length, mode_t mode) {
    tartan_status status;
    NEW(target->temporary, directory_length + 64);
    for (int attempt = 0; attempt < ATTEMPTS && target->fd < 0; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t seed[4] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid(),
                            (uint64_t)(uintptr_t)target + (uint64_t)attempt};
        snprintf(target->temporary, (size_t)directory_length + 64, "%.*s.tartan-%016" PRIx64 ".tmp",
                 (int)directory_length, target->path, XXH3_64bits(seed, sizeof seed));
        target->fd = open(target->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (target->fd < 0 && errno != EEXIST) break;
    }
    if (target->fd < 0) {
        status = tartan_i_fail(TARTAN_ERR_FILE, target->function, "%s: no file can be made beside it: %s",
                               target->path, strerror(errno));
        tartan_i_free(target->temporary);
        target->temporary = NULL;
        return status;
    }
    /* The new file gets the permissions of the old one; if the system refuses, it keeps the default ones. */
    if (mode != 0 && fchmod(target->fd, mode) != 0) errno = 0;
    return TARTAN_OK;
fail:
    return status;
}

static void release(tartan_i_target *target) {
    if (target->fd >= 0) close(target->fd);
    if (target->directory_fd >= 0) close(target->directory_fd);
    tartan_i_pages_free(target->pages);
    tartan_i_free(target->path);
    tartan_i_free(target->temporary);
    *target = (tartan_i_target){.fd = -1, .directory_fd = -1};
}

void tartan_i_target_discard(tartan_i_target *target) {
    if (target->temporary != NULL) unlink(target->temporary);
    release(target);
}

/* Where a new file named `path` belongs: at the end of the chain of symbolic links, if `path` is one. */
static tartan_status follow_links(const char *function, const char *path, char out[PATH_MAX]) {
    char link[PATH_MAX];
    int64_t length = snprintf(out, PATH_MAX, "%s", path);
    while (length < PATH_MAX) {
        const ssize_t size = readlink(out, link, sizeof link - 1);
        if (size < 0) return TARTAN_OK; /* not a link: the file itself, or nothing yet */
        const char *slash = strrchr(out, '/');
        const int64_t folder = link[0] == '/' || slash == NULL ? 0 : slash - out + 1;
        length = folder + snprintf(out + folder, (size_t)(PATH_MAX - folder), "%.*s", (int)size, link);
    }
    FAIL_IN(function, FILE, "%s: %s", path, strerror(ENAMETOOLONG));
}

tartan_status tartan_i_target_open(const char *function, const char *path, tartan_i_target *out) {
    tartan_i_target target = {.function = function, .fd = -1, .directory_fd = -1};
    char resolved[PATH_MAX];
    struct stat about;
    mode_t mode = 0;
    if (stat(path, &about) == 0) {
        if (!S_ISREG(about.st_mode))
            FAIL_IN(function, FILE, "%s: is %s, expected a file or nothing", path,
                    S_ISDIR(about.st_mode) ? "a directory" : "a device or a pipe");
        mode = about.st_mode & 07777;
        /* Renaming onto a symbolic link would replace the link and leave its target unchanged. */
        if (realpath(path, resolved) != NULL) path = resolved;
    } else if (errno == ENOENT) {
        PASS(follow_links(function, path, resolved));
        path = resolved;
    } else {
        FAIL_IN(function, FILE, "%s: %s", path, strerror(errno));
    }
    tartan_status status;
    TRY(tartan_i_copy_text(path, &target.path));
    TRY(tartan_i_pages_new(&target.pages));
    const char *slash = strrchr(target.path, '/');
    int64_t directory_length = slash == NULL ? 0 : slash - target.path + 1;
    TRY(open_temporary(&target, directory_length, mode));
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%.*s.", (int)directory_length, target.path);
    target.directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *out = target;
    return TARTAN_OK;
fail:
    tartan_i_target_discard(&target);
    return status;
}

tartan_status tartan_i_target_commit(tartan_i_target *target) {
    tartan_status status;
    unsigned char bytes[TARTAN_I_SEAL_BYTES], *list = NULL;
    int64_t list_bytes = 0;
    struct stat about;
    if (fstat(target->fd, &about) != 0) goto system_fail;
    TRY(tartan_i_pages_list(target->function, target->path, target->fd, about.st_size, TARTAN_I_PAGE_BYTES,
                            target->pages, &list, &list_bytes));
    tartan_i_seal seal = {.length = about.st_size + list_bytes, .end = about.st_size, .generation = 1};
    tartan_i_hash(list, list_bytes, seal.list_hash);
    tartan_i_seal_make(&seal, bytes);
    if (!tartan_i_disk_write(target->fd, list, list_bytes, seal.end)) goto system_fail;
    if (!tartan_i_disk_write(target->fd, bytes, sizeof bytes, 0)) goto system_fail;
    if (!tartan_i_disk_synchronise(target->fd)) goto system_fail;
    if (doomed(EIO) || rename(target->temporary, target->path) != 0) goto system_fail;
    /* The new file is in place. This makes the rename itself survive a power failure; on file systems that do not
     * support it, either complete file may be found afterwards. */
    if (target->directory_fd >= 0) (void)!fsync(target->directory_fd);
    tartan_i_free(list);
    release(target);
    return TARTAN_OK;
system_fail:
    status = tartan_i_fail(TARTAN_ERR_FILE, target->function, "%s: cannot be written: %s", target->path,
                           strerror(errno));
fail:
    tartan_i_free(list);
    tartan_i_target_discard(target);
    return status;
}
