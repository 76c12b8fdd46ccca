/* SPDX-License-Identifier: Apache-2.0
 * Files: named layouts, matrices and arrays in one HDF5 file. docs/file_format.md describes the format. */
#ifndef TARTAN_IO_H
#define TARTAN_IO_H

#include "tartan/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A collection of named layouts, matrices and dense arrays that was read from a file, will be written to one, or
 * both. Only one thread at a time may use it. */
typedef struct tartan_file tartan_file;

typedef enum tartan_kind {
    TARTAN_KIND_LAYOUT = 1,
    TARTAN_KIND_MATRIX = 2,
    TARTAN_KIND_ARRAY = 3,
} tartan_kind;

enum { TARTAN_KEEP_PLAIN = 0, TARTAN_KEEP_COMPRESSED = 1 };

/* Create an empty collection. The caller frees it. Errors: MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_file_create(tartan_file **out);

/* Open the file at `path` (UTF-8) for reading. The cost does not depend on the objects in the file, which are
 * neither listed nor read yet.
 *
 * Every byte is verified before use, by the checksum of its page; the seal covers these checksums. Damage is thus
 * found when an object that contains it is read; tartan_file_verify checks the whole file. A file without a seal
 * (written by another program) is checked as it is read, and tartan_file_sealed returns 0. Damage in such a file may
 * go unnoticed, or may crash or hang HDF5 itself; `tartan verify` reads it in a separate process.
 *
 * Objects are read on request from the file that was opened, which may be renamed, removed or replaced in the
 * meantime. If tartan_file_append changes it, later reads fail (FILE) and never mix old and new.
 * Errors: FILE (cannot be opened or read), FORMAT (damaged, truncated, or not a Tartan file), VERSION (the schema has
 * a newer major version), MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_file_open(const char *path, tartan_file **out);

/* Free a collection; NULL is allowed. Layouts and matrices read from it stay valid. */
TARTAN_API void tartan_file_free(tartan_file *file);

/* Read the list of objects, in time linear in their number. The functions that count objects and describe the i-th
 * do so on first use, but cannot report why it failed. Errors: as for tartan_file_open. */
TARTAN_API tartan_status tartan_file_list(tartan_file *file);

/* tartan_file_count: the number of objects; -1 for a bad handle, or if the list cannot be read. tartan_file_name,
 * tartan_file_kind: the name and tartan_kind of the i-th object, in the order in which objects were first put (in a
 * file of a schema older than 1.2, or of another program: layouts first, by name); NULL and 0 if i is out of range.
 * The name is valid until the collection changes.
 * tartan_file_sealed: whether the file has a valid seal, 1 or 0. */
TARTAN_API int64_t tartan_file_count(const tartan_file *file);
TARTAN_API const char *tartan_file_name(const tartan_file *file, int64_t i);
TARTAN_API int32_t tartan_file_kind(const tartan_file *file, int64_t i);
TARTAN_API int32_t tartan_file_sealed(const tartan_file *file);

/* The index i of the object with this tartan_kind and name; -1 if there is none. */
TARTAN_API int64_t tartan_file_find(const tartan_file *file, int32_t kind, const char *name);

/* Whether an object with this tartan_kind and name exists, 1 or 0. This does not read the list of objects. */
TARTAN_API int32_t tartan_file_has(tartan_file *file, int32_t kind, const char *name);

/* The same for any kind, and what the object is. out_index receives 11 numbers: the kind (0: no such object; a matrix
 * or an array takes precedence over a layout), the dtype, and for an array the number of dimensions and the shape; 0
 * where a number does not apply.
 * Errors: SHAPE (nout_index), FORMAT, FILE, MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_file_describe(tartan_file *file, const char *name, int64_t *out_index,
                                              int64_t nout_index);

/* The identity of the i-th object's layout (see tartan_layout_identity), to find matrices that share it; NULL if i is
 * out of range and for an array. */
TARTAN_API const char *tartan_file_layout_identity(const tartan_file *file, int64_t i);

/* Put a layout, a matrix or an array under `name`, in place of an object with that name, else after all others.
 * Layouts have a name space of their own; a matrix and an array cannot have the same name. The layout of a matrix is
 * stored once for all matrices that share it: under the name of an equal layout in the collection, else under its
 * identity. In the second case it is not an object of its own and is not counted or listed. Values of matrices are
 * not copied; they are read when the file is saved, so a matrix must live until its object is replaced or removed or
 * the collection is freed. Layouts are reference-counted and may be freed at once. Arrays are copied. They may have
 * any dtype, integers included, any shape and any strides, and keep their indices.
 *     dtype     the dtype in which to store an array; 0: its own. Floating-point arrays are converted to other
 *               floating-point dtypes; f64 also to i32 if all elements are whole numbers
 *     gates     NULL, or [blocks] of f32 or f64; copied
 *     metadata  NULL or "" for none, or any JSON text in UTF-8, which is stored verbatim
 * Names have 1 to 255 bytes of UTF-8, contain no control characters, and are not "." or "..".
 * Errors: ARGUMENT (name, metadata), SHAPE or DTYPE (gates), UNSUPPORTED (a matrix in device memory), MEMORY, HANDLE.
 * */
TARTAN_API tartan_status tartan_file_put_layout(tartan_file *file, const char *name,
                                                const tartan_layout *layout, const char *metadata);
TARTAN_API tartan_status tartan_file_put_matrix(tartan_file *file, const char *name, tartan_matrix *matrix,
                                                const tartan_array *gates, const char *metadata);
TARTAN_API tartan_status tartan_file_put_array(tartan_file *file, const char *name, const tartan_array *array,
                                               int32_t dtype, const char *metadata);

/* Remove an object. If a matrix uses a removed layout, the layout is saved under its identity. Errors: NOT_FOUND,
 * HANDLE. */
TARTAN_API tartan_status tartan_file_remove(tartan_file *file, int32_t kind, const char *name);

/* Read one object, or the layout of a matrix without its values; the caller frees it. Everything is checked before
 * use: a file never yields an invalid layout. Matrices that share a layout in the file share it in memory.
 * Errors: NOT_FOUND, FORMAT, FILE, MEMORY, OVERFLOW, HANDLE. */
TARTAN_API tartan_status tartan_file_get_layout(tartan_file *file, const char *name, tartan_layout **out);
TARTAN_API tartan_status tartan_file_get_matrix(tartan_file *file, const char *name, tartan_matrix **out);
TARTAN_API tartan_status tartan_file_get_matrix_layout(tartan_file *file, const char *name,
                                                       tartan_layout **out);

/* Read part of an array: the elements from index `first` of its first dimension on, as many as `array` has along
 * that dimension. `array` has the dtype and, except for the first dimension, the shape of the stored array, in CPU
 * memory with any strides. Read an array without dimensions with first = 0. Errors: DTYPE, SHAPE, and those of
 * tartan_file_get_matrix. */
TARTAN_API tartan_status tartan_file_get_array(tartan_file *file, const char *name, int64_t first,
                                               tartan_array *array);

/* Read rows row_begin .. row_end - 1 of a matrix with one head, at boundaries of block rows, without the other
 * values. The result has row_end - row_begin rows. Errors: SHAPE, UNSUPPORTED (more heads), and those of
 * tartan_file_get_matrix. */
TARTAN_API tartan_status tartan_file_get_rows(tartan_file *file, const char *name, int64_t row_begin,
                                              int64_t row_end, tartan_matrix **out);

/* Read blocks of a matrix from block id `first` on, as many as `array` has, without the other values. `array` is
 * [count, block_rows, block_cols] of a floating-point dtype, to which the values are converted. Errors: DTYPE, SHAPE,
 * and those of tartan_file_get_matrix. */
TARTAN_API tartan_status tartan_file_get_blocks(tartan_file *file, const char *name, int64_t first,
                                                tartan_array *array);

/* tartan_file_has_gates: whether gates are stored with the matrix, 1 or 0.
 * tartan_file_get_gates: writes them as f64 to out_gates [blocks]. Errors: NOT_FOUND (also if there are no gates),
 * SHAPE (nout_gates), and those of tartan_file_get_matrix. */
TARTAN_API int32_t tartan_file_has_gates(tartan_file *file, const char *name);
TARTAN_API tartan_status tartan_file_get_gates(tartan_file *file, const char *name, double *out_gates,
                                               int64_t nout_gates);

/* The metadata of an object, "" if it has none. The caller frees the text. */
TARTAN_API tartan_status tartan_file_get_metadata(tartan_file *file, int32_t kind, const char *name,
                                                  char **out_text);

/* Write the collection to a temporary file beside `path`, synchronise it to disk and rename it, so a reader sees
 * either the old or the new file, complete. Symbolic links are followed, even if their target does not exist yet. On
 * failure the old file is unchanged and the temporary file is removed.
 *     compression  TARTAN_KEEP_PLAIN, or TARTAN_KEEP_COMPRESSED (shuffle and gzip)
 * Errors: FILE (the text gives the system's reason, for instance a full disk), FORMAT, MEMORY, HANDLE. */
TARTAN_API tartan_status tartan_file_save(tartan_file *file, const char *path, int32_t compression);

/* Add the objects of the collection to the file at `path`, where they replace objects with the same names, without
 * rewriting the others. If the file does not exist, saves a new one. The cost does not depend on the rest of the
 * file, except for a list of 16 bytes for each 256 KiB of it. A process that is killed at any moment leaves the old
 * or the new file, and a failure leaves the old one; docs/file_format.md explains how. Replacing objects leaves
 * unused space. The whole file is rewritten, as by tartan_file_save, if that space exceeds half of it, if a layout is
 * replaced, or if the file has an older seal. Only one process at a time may append; another one fails (FILE).
 * Errors: those of tartan_file_open and tartan_file_save, UNSUPPORTED (the file has no seal). */
TARTAN_API tartan_status tartan_file_append(tartan_file *file, const char *path, int32_t compression);

/* Read every object of the file and check it against its seal, checksums and identities. `out_text`: NULL, or
 * receives a report with one line per object, which the caller frees. Errors: those of tartan_file_open and
 * tartan_file_get_matrix. */
TARTAN_API tartan_status tartan_file_verify(const char *path, char **out_text);

#ifdef __cplusplus
}
#endif
#endif
