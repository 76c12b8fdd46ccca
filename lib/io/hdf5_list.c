/* SPDX-License-Identifier: Apache-2.0
 * Listing the objects of a file without reading them. */
#include "io/hdf5_check.h"

#include <stdlib.h>
#include <string.h>

void tartan_i_listing_free(tartan_i_listing *listing, int64_t count) {
    for (int64_t i = 0; listing != NULL && i < count; i++) {
        tartan_i_free(listing[i].name);
        tartan_i_free(listing[i].layout);
    }
    tartan_i_free(listing);
}

/* Fills one listing from its open group; *out_known tells whether this version knows the kind. */
static tartan_status describe(tartan_i_call *call, hid_t object, int32_t kind, bool escaped,
                              tartan_i_listing *listing, bool *out_known) {
    static const char prefix[] = "/layouts/";
    tartan_status status;
    char *text = NULL;
    TRY(tartan_i_read_text(call, object, "kind", &text));
    /* HDF5 reads a lost variable-length text as empty; the object must not disappear from the list then. */
    if (text == NULL || text[0] == '\0') {
        status = tartan_i_fail_format(call, "has no attribute kind, or an empty one");
        goto fail;
    }
    *out_known = strcmp(text, kind == TARTAN_KIND_LAYOUT ? "layout" : "bsr") == 0;
    tartan_i_free(text);
    text = NULL;
    if (!*out_known) return TARTAN_OK;
    TRY(tartan_i_read_identity(call, object, listing->identity));
    if (kind == TARTAN_KIND_LAYOUT) {
        int64_t implicit = 0;
        TRY(tartan_i_read_integers(call, object, "implicit", 1, true, &implicit));
        listing->implicit = implicit != 0;
        return TARTAN_OK;
    }
    listing->gates = H5Lexists(object, "gates", H5P_DEFAULT) > 0;
    TRY(tartan_i_read_text(call, object, "layout", &text));
    const bool placed = text != NULL && strncmp(text, prefix, sizeof prefix - 1) == 0;
    if (placed) memmove(text, text + sizeof prefix - 1, strlen(text) - (sizeof prefix - 1) + 1);
    if (!placed || tartan_i_link_to_name(text, escaped) != NULL) {
        status =
            tartan_i_fail_format(call, "its attribute layout is \"%s%.300s\", expected \"/layouts/<name>\"",
                                 placed ? prefix : "", text == NULL ? "" : text);
        goto fail;
    }
    listing->layout = text;
    return TARTAN_OK;
fail:
    tartan_i_free(text);
    return status;
}

typedef struct names {
    tartan_i_call *call;
    tartan_i_listing *list;
    int64_t count, capacity;
    tartan_status status;
} names;

static tartan_status add_name(names *found, const char *name, const H5L_info_t *info) {
    if (info->type != H5L_TYPE_HARD)
        return tartan_i_fail_format(found->call, "\"%s\" is not a hard link", name);
    if (found->count == found->capacity) {
        int64_t capacity = 2 * found->capacity + 16;
        tartan_i_listing *list;
        PASS(tartan_i_allocate_zeroed(&list, capacity, sizeof *list));
        if (found->count > 0) memcpy(list, found->list, (size_t)found->count * sizeof *list);
        tartan_i_free(found->list);
        found->list = list;
        found->capacity = capacity;
    }
    char **place = &found->list[found->count].name;
    PASS(tartan_i_allocate(place, (int64_t)strlen(name) + 1, 1));
    strcpy(*place, name);
    found->count++;
    return TARTAN_OK;
}

static herr_t visit_name(hid_t group, const char *name, const H5L_info_t *info, void *user) {
    (void)group;
    names *found = user;
    found->status = add_name(found, name, info);
    return found->status == TARTAN_OK ? 0 : -1;
}

static int compare_names(const void *left, const void *right) {
    const tartan_i_listing *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* Opens the object of a link and turns `name`, the link's, into the object's. */
static tartan_status open_listed(tartan_i_call *call, bool escaped, hid_t group, char *name, hid_t *out) {
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0) return tartan_i_fail_hdf5(call, "cannot be opened");
    const char *fault = tartan_i_link_to_name(name, escaped);
    if (fault != NULL) {
        tartan_i_hdf5_close(object);
        return tartan_i_fail_format(call, "the name of an object %s", fault);
    }
    *out = object;
    return TARTAN_OK;
}

/* Keeps the names of groups of a kind that this version knows. */
static tartan_status describe_all(const char *function, tartan_i_reader *reader, int32_t kind, hid_t group,
                                  names *found) {
    int64_t kept = 0;
    tartan_status status = TARTAN_OK;
    for (int64_t i = 0; i < found->count; i++) {
        tartan_i_listing one = found->list[i];
        found->list[i] = (tartan_i_listing){0};
        tartan_i_call call = tartan_i_call_for(function, reader, kind, one.name);
        bool known = false;
        hid_t object = -1;
        if (status == TARTAN_OK) status = open_listed(&call, reader->escaped, group, one.name, &object);
        if (status == TARTAN_OK && H5Iget_type(object) == H5I_GROUP)
            status = describe(&call, object, kind, reader->escaped, &one, &known);
        tartan_i_hdf5_close(object);
        if (known && status == TARTAN_OK) {
            found->list[kept++] = one;
        } else {
            tartan_i_free(one.name);
            tartan_i_free(one.layout);
        }
    }
    found->count = kept;
    /* HDF5 sorts by the names of links, in which '/' is "%2F". */
    if (reader->escaped && kept > 1) qsort(found->list, (size_t)kept, sizeof *found->list, compare_names);
    return status;
}

static tartan_status list_objects(const char *function, tartan_i_reader *reader, int32_t kind, names *found) {
    tartan_status status;
    hid_t group = -1;
    htri_t there = H5Lexists(reader->file, tartan_i_group_of(kind), H5P_DEFAULT);
    if (there == 0) return TARTAN_OK;
    TRY(tartan_i_open_child(found->call, reader->file, tartan_i_group_of(kind), H5I_GROUP, &group));
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_name, found) < 0) {
        status = found->status;
        if (status == TARTAN_OK) status = tartan_i_fail_hdf5(found->call, "its objects cannot be listed");
        goto fail;
    }
    status = describe_all(function, reader, kind, group, found);
fail:
    tartan_i_hdf5_close(group);
    return status;
}

tartan_status tartan_i_reader_list(const char *function, tartan_i_reader *reader, int32_t kind,
                                   tartan_i_listing **out, int64_t *out_count) {
    tartan_i_call call = tartan_i_call_for(function, reader, kind, NULL);
    names found = {.call = &call};
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = list_objects(function, reader, kind, &found);
    tartan_i_hdf5_leave(quiet);
    if (status != TARTAN_OK) {
        tartan_i_listing_free(found.list, found.count);
        return status;
    }
    *out = found.list;
    *out_count = found.count;
    return TARTAN_OK;
}
