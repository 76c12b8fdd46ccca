/* SPDX-License-Identifier: Apache-2.0
 * Files: named layouts, matrices and arrays in one HDF5 file. docs/file_format.md describes what is in it. */
#ifndef TARTAN_IO_H
#define TARTAN_IO_H

#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A collection of named layouts, matrices and dense arrays that was read from a file, will be written to one, or both. Only one
 * thread at a time may use it. */
typedef struct tartan_file tartan_file;

typedef enum tartan_kind {
    TARTAN_KIND_LAYOUT = 1,
    TARTAN_KIND_MATRIX = 2,
    TARTAN_KIND_ARRAY = 3,
} tartan_kind;

enum { TARTAN_KEEP_PLAIN = 0, TARTAN_KEEP_COMPRESSED = 1 };

/* An empty collection. The caller frees it. Errors: MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_file_create(tartan_file **out);

/* Opens the file at `path` (UTF-8) for reading. What this costs does not depend on the objects in the file: neither are
 * they listed, nor read. Every byte is verified before it is used, by the checksum of its page, which the seal covers; so
 * damage is found when an object is read that it is part of, and tartan_file_verify finds it everywhere. A file without a
 * seal (written by another program) is checked as it is read, and tartan_file_sealed returns 0. Damage in such a file may
 * go unnoticed, or may crash or hang HDF5 itself; `tartan verify` reads it in a separate process. Objects are read on
 * request from the file that was opened: it may be renamed, removed or replaced in the meantime. If tartan_file_append
 * changes it, what is read then fails (FILE) and never mixes old and new.
 * Errors: FILE (cannot be opened or read), FORMAT (damaged, truncated, not one of ours), VERSION (schema of
 * a newer major version), MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_file_open(const char *path, tartan_file **out);

/* Frees a collection; NULL is allowed. Layouts and matrices got from it live on. */
TARTAN_API void tartan_file_free(tartan_file *file);

/* Reads the list of objects, whose cost is linear in their number. The functions that count objects and tell the i-th do
 * so on first use, but cannot say why it failed. Errors: as tartan_file_open. */
TARTAN_API tartan_status tartan_file_list(tartan_file *file);

/* The number of objects; -1 for a bad handle, or if the list cannot be read.
 * The name and tartan_kind of the i-th object, in the order in which they were put first (a file of a schema older than
 * 1.2, or of another program: layouts first, in order of name); NULL and 0 out of range. The name is valid until the
 * collection changes.
 * Whether the file has a valid seal: 1 or 0. */
TARTAN_API int64_t tartan_file_count(const tartan_file *file);
TARTAN_API const char *tartan_file_name(const tartan_file *file, int64_t i);
TARTAN_API int32_t tartan_file_kind(const tartan_file *file, int64_t i);
TARTAN_API int32_t tartan_file_sealed(const tartan_file *file);

/* The i of the object of a tartan_kind and name, -1 if there is none. */
TARTAN_API int64_t tartan_file_find(const tartan_file *file, int32_t kind, const char *name);

/* Whether there is an object of a tartan_kind and name, 1 or 0, without a look at the other objects. */
TARTAN_API int32_t tartan_file_has(tartan_file *file, int32_t kind, const char *name);

/* The same for any kind, and what the object is: its kind (0: there is no such object; a matrix or an array takes precedence
 * over a layout), its dtype, and of an array its number of dimensions and its shape, 11 numbers in all; 0 where there is
 * nothing to tell.
 * Errors: SHAPE (nout_index), FORMAT, FILE, MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_file_describe(tartan_file *file, const char *name, int64_t *out_index,
                                              int64_t nout_index);

/* The identity of the i-th object's layout (see tartan_layout_identity), to find the matrices that share it; NULL
 * out of range and for an array. */
TARTAN_API const char *tartan_file_layout_identity(const tartan_file *file, int64_t i);

/* Puts a layout, a matrix or an array under `name`, at the place of an object of that name, else behind the others.
 * Layouts have names of their own; a matrix and an array cannot have the same. The layout of a matrix is
 * stored once for all matrices that share it: under the name of an equal layout in the collection, else under its
 * identity. In the second case it is not an object of its own and is not counted or listed. Values of matrices are not
 * copied but read when the file is saved, so a matrix must live until its object is replaced or removed or the
 * collection is freed. Layouts are reference-counted and may be freed at once. Arrays are copied; they may be of any dtype,
 * integers included, and of any shape and strides, and come back with the same indices.
 *   dtype     in which an array is stored; 0: in its own. Numbers are converted to other ones, f64 also to i32 if all are
 *             whole
 *   gates     NULL, or [blocks] of f32 or f64; copied
 *   metadata  NULL or "" for none, or any JSON text in UTF-8, which is kept as it is
 * Names: 1 to 255 bytes of UTF-8, no control character, not "." or "..".
 * Errors: ARGUMENT (name, metadata), SHAPE or DTYPE (gates), UNSUPPORTED (a matrix in device memory), MEMORY,
 * HANDLE. */
TARTAN_API tartan_status tartan_file_put_layout(tartan_file *file, const char *name,
                                                const tartan_layout *layout, const char *metadata);
TARTAN_API tartan_status tartan_file_put_matrix(tartan_file *file, const char *name, tartan_matrix *matrix,
                                                const tartan_array *gates, const char *metadata);
TARTAN_API tartan_status tartan_file_put_array(tartan_file *file, const char *name, const tartan_array *array,
                                               int32_t dtype, const char *metadata);

/* Removes the object. If a matrix uses a removed layout, the layout is saved under its identity. Errors:
 * NOT_FOUND, HANDLE. */
TARTAN_API tartan_status tartan_file_remove(tartan_file *file, int32_t kind, const char *name);

/* Reads one object, or the layout of a matrix without its values; the caller frees it. Everything is checked before it is used; a file never yields an invalid
 * layout. Matrices that share a layout in the file share it in memory.
 * Errors: NOT_FOUND, FORMAT, FILE, MEMORY, OVERFLOW, HANDLE. */
TARTAN_API tartan_status tartan_file_get_layout(tartan_file *file, const char *name, tartan_layout **out);
TARTAN_API tartan_status tartan_file_get_matrix(tartan_file *file, const char *name, tartan_matrix **out);
TARTAN_API tartan_status tartan_file_get_matrix_layout(tartan_file *file, const char *name,
                                                       tartan_layout **out);

/* Reads the elements of an array from index `first` of its first dimension on, as many as `out` has there, without the
 * rest. `out` has the dtype and, but for the first dimension, the shape of the array, in CPU memory with any strides. An
 * array without dimensions is read with first = 0. Errors: DTYPE, SHAPE, and those of tartan_file_get_matrix. */
TARTAN_API tartan_status tartan_file_get_array(tartan_file *file, const char *name, int64_t first,
                                               tartan_array *array);

/* Reads rows row_begin .. row_end - 1 of a matrix of one head, whole block rows, without the other values: the result has
 * row_end - row_begin rows. Errors: SHAPE, UNSUPPORTED (more heads), and those of tartan_file_get_matrix. */
TARTAN_API tartan_status tartan_file_get_rows(tartan_file *file, const char *name, int64_t row_begin,
                                              int64_t row_end, tartan_matrix **out);

/* Reads the blocks of a matrix from block id `first` on, as many as `array` has, without the rest. `array`: [count,
 * block_rows, block_cols], to whose dtype of numbers they are converted. Errors: DTYPE, SHAPE, and those of tartan_file_get_matrix. */
TARTAN_API tartan_status tartan_file_get_blocks(tartan_file *file, const char *name, int64_t first,
                                                tartan_array *array);

/* tartan_file_has_gates: whether gates are stored with the matrix, 1 or 0.
 * tartan_file_get_gates: writes them as f64 into out_gates [blocks]. Errors: NOT_FOUND (also if there are none),
 * SHAPE (nout_gates), and those of tartan_file_get_matrix. */
TARTAN_API int32_t tartan_file_has_gates(tartan_file *file, const char *name);
TARTAN_API tartan_status tartan_file_get_gates(tartan_file *file, const char *name, double *out_gates,
                                               int64_t nout_gates);

/* The metadata of an object, "" if none was given. The caller frees the text. */
TARTAN_API tartan_status tartan_file_get_metadata(tartan_file *file, int32_t kind, const char *name,
                                                  char **out_text);

/* Writes the collection to a temporary file beside `path`, synchronises it and renames it, so a reader sees the
 * complete old or new file. Symbolic links are followed, even if their target does not exist yet. On failure the
 * old file is unchanged and the temporary file is removed.
 *   compression  TARTAN_KEEP_PLAIN, or TARTAN_KEEP_COMPRESSED (shuffle and gzip)
 * Errors: FILE (the text carries the system's reason, a full disk included), FORMAT, MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_file_save(tartan_file *file, const char *path, int32_t compression);

/* Adds the objects of the collection to the file at `path`, where they replace those of their names, without writing the
 * others; where there is no file, it is saved. What it costs does not depend on the rest of the file, but for a list of 16
 * bytes for each 256 KiB of it. A process that is killed at any moment leaves the old or the new file, and a failure the
 * old one; docs/file_format.md says how. Replacing leaves room that nothing uses: when that is more than half of the file,
 * and where a layout is replaced or the file has an older seal, it is written anew as a whole, as tartan_file_save does.
 * One process at a time: another one fails (FILE).
 * Errors: those of tartan_file_open and tartan_file_save, UNSUPPORTED (the file has no seal). */
TARTAN_API tartan_status tartan_file_append(tartan_file *file, const char *path, int32_t compression);

/* Reads every object of the file and checks it against its seal, checksums and identities.
 * `out_text`: NULL, or a report with one line per object, which the caller frees. Errors: as tartan_file_open and
 * tartan_file_get_matrix. */
TARTAN_API tartan_status tartan_file_verify(const char *path, char **out_text);

#ifdef __cplusplus
}
#endif
#endif
