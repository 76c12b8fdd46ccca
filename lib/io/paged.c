/* SPDX-License-Identifier: Apache-2.0 */
#include "io/paged.h"

#include "core/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 4 << 10, CACHED = 8, WORD = 8 };

/* A piece of the file that differs from what is on the disk. It ends where the old file does, if that comes first. */
typedef struct piece {
    int64_t at;
    unsigned char *bytes;
} piece;

typedef struct cached {
    int64_t page;
    uint64_t used;
    unsigned char *bytes; /* NULL: not used yet */
} cached;

struct tartan_i_paged {
    int fd;
    tartan_i_seal seal;
    unsigned char *list; /* the hashes of the pages up to seal.end */
    int64_t pages;
    cached cache[CACHED];
    uint64_t clock;
    piece *pieces; /* ascending */
    int64_t npieces, capacity;
    int64_t limit; /* pieces end here: where the old file does */
    bool adding;
    tartan_i_pages *written; /* while adding: what was written behind the old file */
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t page_begin(int64_t page) {
    return tartan_i_pages_begin(page, TARTAN_I_PAGE_BYTES);
}

static int64_t page_end(const tartan_i_paged *paged, int64_t page) {
    return smaller(page_begin(page + 1), paged->seal.end);
}

tartan_status tartan_i_paged_fail(const char *function, const char *path, int error) {
    if (error == EBADMSG) FAIL_IN(function, FORMAT, "%s: damaged: its bytes do not match its seal", path);
    if (error == ESTALE) FAIL_IN(function, FILE, "%s: was changed since it was opened: open it again", path);
    if (error == ENOMEM) FAIL_IN(function, MEMORY, "%s: %s", path, strerror(error));
    FAIL_IN(function, FILE, "%s: cannot be read or written: %s", path,
            error != 0 ? strerror(error) : "it became shorter while it was read");
}

/* ---- Pieces ---- */

/* The first piece that ends behind `offset`. */
static int64_t first_piece(const tartan_i_paged *paged, int64_t offset) {
    int64_t low = 0, high = paged->npieces;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (paged->pieces[middle].at + PIECE_BYTES <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Puts the pieces over `size` bytes that were read at `offset`. */
static void put_over(const tartan_i_paged *paged, unsigned char *bytes, int64_t size, int64_t offset) {
    for (int64_t i = first_piece(paged, offset); i < paged->npieces && paged->pieces[i].at < offset + size;
         i++) {
        const piece *p = &paged->pieces[i];
        const int64_t begin = larger(p->at, offset);
        const int64_t end = smaller(smaller(p->at + PIECE_BYTES, paged->limit), offset + size);
        if (end > begin) memcpy(bytes + (begin - offset), p->bytes + (begin - p->at), (size_t)(end - begin));
    }
}

static bool insert_piece(tartan_i_paged *paged, int64_t i, int64_t at) {
    unsigned char *bytes;
    if (paged->npieces == paged->capacity) {
        piece *more;
        const int64_t capacity = 2 * paged->capacity + 16;
        if (tartan_i_allocate(&more, capacity, sizeof *more) != TARTAN_OK) return false;
        if (paged->npieces > 0) memcpy(more, paged->pieces, (size_t)paged->npieces * sizeof *more);
        tartan_i_free(paged->pieces);
        paged->pieces = more;
        paged->capacity = capacity;
    }
    if (tartan_i_allocate_zeroed(&bytes, PIECE_BYTES, 1) != TARTAN_OK) return false;
    memmove(&paged->pieces[i + 1], &paged->pieces[i], (size_t)(paged->npieces - i) * sizeof *paged->pieces);
    paged->pieces[i] = (piece){at, bytes};
    paged->npieces++;
    return true;
}

static void drop_pieces(tartan_i_paged *paged) {
    for (int64_t i = 0; i < paged->npieces; i++) tartan_i_free(paged->pieces[i].bytes);
    paged->npieces = 0;
}

/* ---- Pages ---- */

/* Why a page is not what the list says: damage, or another process gave the file a new seal. */
static int find_reason(const tartan_i_paged *paged) {
    unsigned char mine[TARTAN_I_SEAL_BYTES], now[TARTAN_I_SEAL_BYTES];
    tartan_i_seal_make(&paged->seal, mine);
    return tartan_i_disk_read(paged->fd, now, sizeof now, 0) && memcmp(mine, now, sizeof now) != 0 ? ESTALE
                                                                                                   : EBADMSG;
}

/* Reads a page as the list knows it. The pieces of a journal belong to it; the pieces of an addition do not, yet. */
static bool read_page(tartan_i_paged *paged, int64_t page, unsigned char *bytes) {
    const int64_t begin = page_begin(page), size = page_end(paged, page) - begin;
    unsigned char hash[TARTAN_I_HASH_BYTES];
    if (!tartan_i_disk_read(paged->fd, bytes, size, begin)) return false;
    if (!paged->adding) put_over(paged, bytes, size, begin);
    tartan_i_hash(bytes, size, hash);
    if (memcmp(hash, paged->list + page * TARTAN_I_HASH_BYTES, sizeof hash) == 0) return true;
    errno = find_reason(paged);
    return false;
}

/* The page in the cache; NULL with the reason in errno. */
static const unsigned char *get_page(tartan_i_paged *paged, int64_t page) {
    cached *oldest = &paged->cache[0];
    for (int i = 0; i < CACHED; i++) {
        cached *slot = &paged->cache[i];
        if (slot->bytes != NULL && slot->page == page) {
            slot->used = ++paged->clock;
            return slot->bytes;
        }
        if (slot->used < oldest->used) oldest = slot;
    }
    if (oldest->bytes == NULL) {
        const int64_t size = smaller(TARTAN_I_PAGE_BYTES, paged->seal.end - TARTAN_I_SEAL_BYTES);
        if (tartan_i_allocate(&oldest->bytes, size, 1) != TARTAN_OK) {
            errno = ENOMEM;
            return NULL;
        }
    }
    oldest->page = -1;
    oldest->used = 0;
    if (!read_page(paged, page, oldest->bytes)) return NULL;
    oldest->page = page;
    oldest->used = ++paged->clock;
    return oldest->bytes;
}

/* The part that the list covers. */
static bool read_pages(tartan_i_paged *paged, unsigned char *bytes, int64_t size, int64_t offset) {
    while (size > 0) {
        const int64_t page = (offset - TARTAN_I_SEAL_BYTES) / TARTAN_I_PAGE_BYTES, begin = page_begin(page);
        const int64_t count = smaller(size, page_end(paged, page) - offset);
        if (offset == begin && count == TARTAN_I_PAGE_BYTES) {
            if (!read_page(paged, page, bytes)) return false;
        } else {
            const unsigned char *from = get_page(paged, page);
            if (from == NULL) return false;
            memcpy(bytes, from + (offset - begin), (size_t)count);
        }
        bytes += count, offset += count, size -= count;
    }
    return true;
}

bool tartan_i_paged_read(tartan_i_paged *paged, void *bytes, int64_t size, int64_t offset) {
    unsigned char *to = bytes;
    const int64_t begin = offset, all = size;
    if (offset < TARTAN_I_SEAL_BYTES) { /* HDF5 looks for its signature */
        const int64_t count = smaller(size, TARTAN_I_SEAL_BYTES - offset);
        if (!tartan_i_disk_read(paged->fd, to, count, offset)) return false;
        to += count, offset += count, size -= count;
    }
    const int64_t known = larger(0, smaller(size, paged->seal.end - offset));
    if (known > 0 && !read_pages(paged, to, known, offset)) return false;
    if (size > known && !tartan_i_disk_read(paged->fd, to + known, size - known, offset + known))
        return false;
    if (paged->adding) put_over(paged, bytes, all, begin);
    return true;
}

tartan_status tartan_i_paged_verify(const char *function, const char *path, tartan_i_paged *paged) {
    unsigned char *bytes;
    tartan_status status = TARTAN_OK;
    PASS(tartan_i_allocate(&bytes, TARTAN_I_PAGE_BYTES, 1));
    for (int64_t i = 0; status == TARTAN_OK && i < paged->pages; i++)
        if (!read_page(paged, i, bytes)) status = tartan_i_paged_fail(function, path, errno);
    tartan_i_free(bytes);
    return status;
}

/* ---- Opening ---- */

/* The journal: the number of pieces, the limit, the place of each piece; then the pieces. */
static int64_t journal_bytes(int64_t pieces) {
    return WORD * (2 + pieces) + PIECE_BYTES * pieces;
}

static tartan_status take_journal(const char *function, const char *path, tartan_i_paged *paged,
                                  const unsigned char *journal) {
    const int64_t size = paged->seal.journal_bytes;
    const int64_t count = size >= 2 * WORD ? (int64_t)tartan_i_little(journal, WORD) : -1;
    if (count < 0 || count > size / PIECE_BYTES || journal_bytes(count) != size)
        FAIL_IN(function, FORMAT, "%s: damaged: its journal has a wrong length", path);
    paged->limit = (int64_t)tartan_i_little(journal + WORD, WORD);
    const unsigned char *places = journal + 2 * WORD, *bytes = places + WORD * count;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = (int64_t)tartan_i_little(places + WORD * i, WORD);
        if (at < 0 || at % PIECE_BYTES != 0 || at >= paged->limit || paged->limit > paged->seal.end ||
            (i > 0 && at <= paged->pieces[i - 1].at))
            FAIL_IN(function, FORMAT, "%s: damaged: its journal has a wrong place", path);
        if (!insert_piece(paged, i, at)) return tartan_i_paged_fail(function, path, ENOMEM);
        memcpy(paged->pieces[i].bytes, bytes + PIECE_BYTES * i, PIECE_BYTES);
    }
    return TARTAN_OK;
}

static tartan_status read_journal(const char *function, const char *path, tartan_i_paged *paged, int64_t at) {
    unsigned char *journal, hash[TARTAN_I_HASH_BYTES];
    if (paged->seal.journal_bytes == 0) return TARTAN_OK;
    PASS(tartan_i_allocate(&journal, paged->seal.journal_bytes, 1));
    tartan_status status = TARTAN_OK;
    if (!tartan_i_disk_read(paged->fd, journal, paged->seal.journal_bytes, at))
        status = tartan_i_paged_fail(function, path, errno);
    tartan_i_hash(journal, paged->seal.journal_bytes, hash);
    if (status == TARTAN_OK && memcmp(hash, paged->seal.journal_hash, sizeof hash) != 0)
        status = tartan_i_paged_fail(function, path, find_reason(paged));
    if (status == TARTAN_OK) status = take_journal(function, path, paged, journal);
    tartan_i_free(journal);
    return status;
}

tartan_status tartan_i_paged_open(const char *function, const char *path, int fd, const tartan_i_seal *seal,
                                  tartan_i_paged **out) {
    tartan_i_paged *paged;
    unsigned char hash[TARTAN_I_HASH_BYTES];
    tartan_status status;
    PASS(tartan_i_allocate_zeroed(&paged, 1, sizeof *paged));
    paged->fd = fd;
    paged->seal = *seal;
    paged->pages = tartan_i_pages_count(seal->end, TARTAN_I_PAGE_BYTES);
    const int64_t bytes = paged->pages * TARTAN_I_HASH_BYTES;
    NEW(paged->list, bytes);
    if (!tartan_i_disk_read(fd, paged->list, bytes, seal->end)) {
        status = tartan_i_paged_fail(function, path, errno);
        goto fail;
    }
    tartan_i_hash(paged->list, bytes, hash);
    if (memcmp(hash, seal->list_hash, sizeof hash) != 0) {
        status = tartan_i_paged_fail(function, path, find_reason(paged));
        goto fail;
    }
    TRY(read_journal(function, path, paged, seal->end + bytes));
    *out = paged;
    return TARTAN_OK;
fail:
    tartan_i_paged_free(paged);
    return status;
}

void tartan_i_paged_free(tartan_i_paged *paged) {
    if (paged == NULL) return;
    drop_pieces(paged);
    for (int i = 0; i < CACHED; i++) tartan_i_free(paged->cache[i].bytes);
    tartan_i_pages_free(paged->written);
    tartan_i_free(paged->pieces);
    tartan_i_free(paged->list);
    tartan_i_free(paged);
}

const tartan_i_seal *tartan_i_paged_seal(const tartan_i_paged *paged) {
    return &paged->seal;
}

/* ---- Adding ---- */

static bool write_seal(tartan_i_paged *paged, const tartan_i_seal *seal) {
    unsigned char bytes[TARTAN_I_SEAL_BYTES];
    tartan_i_seal_make(seal, bytes);
    return tartan_i_disk_write(paged->fd, bytes, sizeof bytes, 0);
}

/* Steps 5 and 6, for the pieces of the journal that the seal names. */
static bool settle(tartan_i_paged *paged) {
    for (int64_t i = 0; i < paged->npieces; i++) {
        const piece *p = &paged->pieces[i];
        const int64_t begin = larger(p->at, TARTAN_I_SEAL_BYTES),
                      end = smaller(p->at + PIECE_BYTES, paged->limit);
        if (end > begin && !tartan_i_disk_write(paged->fd, p->bytes + (begin - p->at), end - begin, begin))
            return false;
    }
    if (!tartan_i_disk_synchronise(paged->fd)) return false;
    tartan_i_seal seal = paged->seal;
    seal.length -= seal.journal_bytes;
    seal.journal_bytes = 0;
    memset(seal.journal_hash, 0, sizeof seal.journal_hash);
    seal.growing = true; /* until the journal is cut off */
    if (!write_seal(paged, &seal) || !tartan_i_disk_truncate(paged->fd, seal.length) ||
        !tartan_i_disk_synchronise(paged->fd))
        return false;
    seal.growing = false;
    if (!write_seal(paged, &seal)) return false;
    paged->seal = seal;
    drop_pieces(paged);
    return true;
}

tartan_status tartan_i_paged_begin(const char *function, const char *path, tartan_i_paged *paged) {
    if (flock(paged->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        FAIL_IN(function, FILE, "%s: another process is adding to it", path);
    unsigned char mine[TARTAN_I_SEAL_BYTES], now[TARTAN_I_SEAL_BYTES];
    tartan_i_seal_make(&paged->seal, mine);
    if (!tartan_i_disk_read(paged->fd, now, sizeof now, 0)) return tartan_i_paged_fail(function, path, errno);
    if (memcmp(mine, now, sizeof now) != 0) return tartan_i_paged_fail(function, path, ESTALE);
    if (paged->seal.journal_bytes > 0 && !settle(paged)) return tartan_i_paged_fail(function, path, errno);
    PASS(tartan_i_pages_new(&paged->written));
    tartan_i_seal seal = paged->seal;
    seal.growing = true;
    if (!write_seal(paged, &seal) || !tartan_i_disk_truncate(paged->fd, seal.length) ||
        !tartan_i_disk_synchronise(paged->fd))
        return tartan_i_paged_fail(function, path, errno);
    paged->seal = seal;
    paged->limit = seal.length;
    paged->adding = true;
    return TARTAN_OK;
}

bool tartan_i_paged_write(tartan_i_paged *paged, const void *bytes, int64_t size, int64_t offset) {
    const unsigned char *from = bytes;
    while (size > 0 && offset < paged->limit) {
        const int64_t at = offset / PIECE_BYTES * PIECE_BYTES;
        const int64_t end = smaller(at + PIECE_BYTES, paged->limit), count = smaller(size, end - offset);
        const int64_t i = first_piece(paged, at);
        if (i == paged->npieces || paged->pieces[i].at != at) {
            unsigned char old[PIECE_BYTES];
            if (!tartan_i_paged_read(paged, old, end - at, at)) return false;
            if (!insert_piece(paged, i, at)) {
                errno = ENOMEM;
                return false;
            }
            memcpy(paged->pieces[i].bytes, old, (size_t)(end - at));
        }
        memcpy(paged->pieces[i].bytes + (offset - at), from, (size_t)count);
        from += count, offset += count, size -= count;
    }
    if (size <= 0) return true;
    if (!tartan_i_disk_write(paged->fd, from, size, offset)) return false;
    tartan_i_pages_wrote(paged->written, from, size, offset);
    return true;
}

/* The hash of a page of the new file. */
static bool hash_page(tartan_i_paged *paged, int64_t page, int64_t end, unsigned char *buffer,
                      unsigned char out_hash[TARTAN_I_HASH_BYTES]) {
    const int64_t begin = page_begin(page), size = smaller(TARTAN_I_PAGE_BYTES, end - begin);
    const int64_t next = first_piece(paged, begin);
    const bool changed = next < paged->npieces && paged->pieces[next].at < begin + size;
    if (page < paged->pages && page_end(paged, page) == begin + size && !changed) {
        memcpy(out_hash, paged->list + page * TARTAN_I_HASH_BYTES, TARTAN_I_HASH_BYTES);
        return true;
    }
    if (!changed && tartan_i_pages_known(paged->written, page, out_hash)) return true;
    if (!tartan_i_paged_read(paged, buffer, size, begin)) return false;
    tartan_i_hash(buffer, size, out_hash);
    return true;
}

/* Step 3: the list and the journal, which the caller frees; and the seal that names them. */
static tartan_status prepare(const char *function, const char *path, tartan_i_paged *paged, int64_t end,
                             int64_t unused, unsigned char **out_bytes, tartan_i_seal *out_seal) {
    const int64_t pages = tartan_i_pages_count(end, TARTAN_I_PAGE_BYTES), list = pages * TARTAN_I_HASH_BYTES;
    const int64_t journal = journal_bytes(paged->npieces);
    unsigned char *bytes = NULL, *buffer = NULL;
    tartan_status status;
    NEW(bytes, list + journal);
    NEW(buffer, TARTAN_I_PAGE_BYTES);
    for (int64_t i = 0; i < pages; i++)
        if (!hash_page(paged, i, end, buffer, bytes + i * TARTAN_I_HASH_BYTES)) {
            status = tartan_i_paged_fail(function, path, errno);
            goto fail;
        }
    unsigned char *to = bytes + list;
    tartan_i_put_little(to, WORD, (uint64_t)paged->npieces);
    tartan_i_put_little(to + WORD, WORD, (uint64_t)paged->limit);
    to += 2 * WORD;
    for (int64_t i = 0; i < paged->npieces; i++) {
        tartan_i_put_little(to + WORD * i, WORD, (uint64_t)paged->pieces[i].at);
        memcpy(to + WORD * paged->npieces + PIECE_BYTES * i, paged->pieces[i].bytes, PIECE_BYTES);
    }
    const int64_t old_list = paged->seal.length - paged->seal.end;
    *out_seal = (tartan_i_seal){.version = TARTAN_I_SEAL_VERSION,
                                .growing = true,
                                .length = end + list + journal,
                                .end = end,
                                .journal_bytes = journal,
                                .unused = paged->seal.unused + unused + old_list,
                                .generation = paged->seal.generation + 1};
    tartan_i_hash(bytes, list, out_seal->list_hash);
    tartan_i_hash(bytes + list, journal, out_seal->journal_hash);
    tartan_i_free(buffer);
    *out_bytes = bytes;
    return TARTAN_OK;
fail:
    tartan_i_free(buffer);
    tartan_i_free(bytes);
    return status;
}

tartan_status tartan_i_paged_commit(const char *function, const char *path, tartan_i_paged *paged,
                                    int64_t end, int64_t unused) {
    unsigned char *bytes = NULL;
    tartan_i_seal seal;
    struct stat mine, theirs;
    PASS(prepare(function, path, paged, end, unused, &bytes, &seal));
    bool done =
        tartan_i_disk_write(paged->fd, bytes, seal.length - end, end) && tartan_i_disk_synchronise(paged->fd);
    tartan_i_free(bytes);
    if (!done) return tartan_i_paged_fail(function, path, errno);
    if (fstat(paged->fd, &mine) != 0 || stat(path, &theirs) != 0 || mine.st_ino != theirs.st_ino ||
        mine.st_dev != theirs.st_dev)
        FAIL_IN(function, FILE, "%s: was replaced while objects were added to it", path);
    if (!write_seal(paged, &seal)) return tartan_i_paged_fail(function, path, errno);
    paged->seal = seal;
    paged->adding = false;
    if (tartan_i_disk_synchronise(paged->fd) && settle(paged)) return TARTAN_OK;
    FAIL_IN(function, FILE, "%s: the objects were added, but the file could not be completed: %s", path,
            strerror(errno));
}

void tartan_i_paged_rollback(tartan_i_paged *paged) {
    if (!paged->adding) return;
    tartan_i_seal seal = paged->seal;
    seal.growing = false;
    if (tartan_i_disk_truncate(paged->fd, seal.length) && tartan_i_disk_synchronise(paged->fd))
        (void)write_seal(paged, &seal);
    paged->adding = false;
}
