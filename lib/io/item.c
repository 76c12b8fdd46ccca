/* SPDX-License-Identifier: Apache-2.0
 * The parts of an object of a collection: in memory if it was put, else read from the file. */
#include "io/file.h"

#include <string.h>

tartan_status tartan_i_source_read(const char *function, tartan_file *file, int64_t i) {
    tartan_i_source *source = &file->sources[i];
    if (source->layout != NULL) return TARTAN_OK;
    PASS(tartan_i_reader_layout(function, file->reader, source->name, &source->layout));
    memcpy(source->identity, source->layout->identity, sizeof source->identity);
    return TARTAN_OK;
}

tartan_status tartan_i_item_layout(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_layout **out_lent) {
    if (item->source >= 0) PASS(tartan_i_source_read(function, file, item->source));
    *out_lent = item->source >= 0 ? file->sources[item->source].layout : item->layout;
    return TARTAN_OK;
}

tartan_status tartan_i_item_matrix(const char *function, tartan_file *file, const tartan_i_item *item,
                                   tartan_matrix **out, bool *out_owned) {
    *out_owned = item->source >= 0;
    if (item->source < 0) {
        *out = item->matrix;
        return TARTAN_OK;
    }
    PASS(tartan_i_source_read(function, file, item->source));
    const tartan_i_source *source = &file->sources[item->source];
    return tartan_i_reader_matrix(function, file->reader, item->name, source->name, source->layout, out);
}

tartan_status tartan_i_item_gates(const char *function, tartan_file *file, const tartan_i_item *item,
                                  double **out, bool *out_owned) {
    *out_owned = item->source >= 0 && item->has_gates;
    *out = item->gates;
    if (!*out_owned) return TARTAN_OK;
    PASS(tartan_i_source_read(function, file, item->source));
    return tartan_i_reader_gates(function, file->reader, item->name,
                                 file->sources[item->source].layout->blocks, out);
}

tartan_status tartan_i_item_metadata(const char *function, tartan_file *file, const tartan_i_item *item,
                                     char **out, bool *out_owned) {
    *out_owned = item->source >= 0;
    *out = item->metadata;
    if (!*out_owned) return TARTAN_OK;
    return tartan_i_reader_metadata(function, file->reader, item->kind, item->name, out);
}
