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

/* The kind that an attribute names; 0: none that this version knows. */
static int32_t kind_of(const char *text, bool layouts, bool is_group) {
    if (layouts) return is_group && strcmp(text, "layout") == 0 ? TARTAN_KIND_LAYOUT : 0;
    if (strcmp(text, "bsr") == 0) return TARTAN_KIND_MATRIX;
    return strcmp(text, "array") == 0 && !is_group ? TARTAN_KIND_ARRAY : 0;
}

static tartan_status describe_kind(tartan_i_call *call, hid_t object, bool layouts, int32_t *out) {
    char *text;
    const bool is_group = H5Iget_type(object) == H5I_GROUP;
    *out = 0;
    PASS(tartan_i_read_text(call, object, "kind", &text));
    /* HDF5 reads a lost variable-length text as empty; the object must not disappear from the list then. Datasets without a
     * kind come from other programs. */
    if (text == NULL && !is_group) return TARTAN_OK;
    if (text == NULL || text[0] == '\0') {
        tartan_i_free(text);
        return tartan_i_fail_format(call, "has no attribute kind, or an empty one");
    }
    *out = kind_of(text, layouts, is_group);
    tartan_i_free(text);
    return TARTAN_OK;
}

/* The name of the layout of a matrix. */
static tartan_status describe_place(tartan_i_call *call, hid_t object, bool escaped, char **out) {
    static const char prefix[] = "/layouts/";
    char *text;
    PASS(tartan_i_read_text(call, object, "layout", &text));
    const bool placed = text != NULL && strncmp(text, prefix, sizeof prefix - 1) == 0;
    if (placed) memmove(text, text + sizeof prefix - 1, strlen(text) - (sizeof prefix - 1) + 1);
    if (!placed || tartan_i_link_to_name(text, escaped) != NULL) {
        tartan_status status =
            tartan_i_fail_format(call, "its attribute layout is \"%s%.300s\", expected \"/layouts/<name>\"",
                                 placed ? prefix : "", text == NULL ? "" : text);
        tartan_i_free(text);
        return status;
    }
    *out = text;
    return TARTAN_OK;
}

/* Fills the rest of a listing, whose name and order are known. */
static tartan_status describe(tartan_i_call *call, hid_t object, bool layouts, bool escaped,
                              tartan_i_listing *listing) {
    PASS(describe_kind(call, object, layouts, &listing->kind));
    if (listing->kind == 0) return TARTAN_OK;
    PASS(tartan_i_read_integers(call, object, "order", 1, true, &listing->order));
    if (listing->kind == TARTAN_KIND_ARRAY) return TARTAN_OK;
    PASS(tartan_i_read_identity(call, object, listing->identity));
    if (listing->kind == TARTAN_KIND_LAYOUT) {
        int64_t implicit = 0;
        PASS(tartan_i_read_integers(call, object, "implicit", 1, true, &implicit));
        listing->implicit = implicit != 0;
        return TARTAN_OK;
    }
    listing->gates = H5Iget_type(object) == H5I_GROUP && H5Lexists(object, "gates", H5P_DEFAULT) > 0;
    return describe_place(call, object, escaped, &listing->layout);
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
    tartan_i_listing *place = &found->list[found->count];
    PASS(tartan_i_allocate(&place->name, (int64_t)strlen(name) + 1, 1));
    strcpy(place->name, name);
    place->order = place->created = info->corder_valid ? info->corder : 0;
    found->count++;
    return TARTAN_OK;
}

static herr_t visit_name(hid_t group, const char *name, const H5L_info_t *info, void *user) {
    (void)group;
    names *found = user;
    found->status = add_name(found, name, info);
    return found->status == TARTAN_OK ? 0 : -1;
}

static int compare_orders(const void *left, const void *right) {
    const tartan_i_listing *a = left, *b = right;
    if (a->order != b->order) return a->order < b->order ? -1 : 1;
    return a->created < b->created ? -1 : a->created > b->created;
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

static tartan_status describe_object(tartan_i_call *call, hid_t object, bool layouts, bool escaped,
                                     tartan_i_listing *one) {
    const H5I_type_t type = H5Iget_type(object);
    return type == H5I_GROUP || type == H5I_DATASET ? describe(call, object, layouts, escaped, one)
                                                    : TARTAN_OK;
}

/* Keeps the names of objects of a kind that this version knows. */
static tartan_status describe_all(const char *function, tartan_i_reader *reader, bool layouts, hid_t group,
                                  names *found) {
    int64_t kept = 0;
    tartan_status status = TARTAN_OK;
    for (int64_t i = 0; i < found->count; i++) {
        tartan_i_listing one = found->list[i];
        found->list[i] = (tartan_i_listing){0};
        tartan_i_call call =
            tartan_i_call_for(function, reader, layouts ? TARTAN_KIND_LAYOUT : TARTAN_KIND_MATRIX, one.name);
        hid_t object = -1;
        if (status == TARTAN_OK) status = open_listed(&call, reader->escaped, group, one.name, &object);
        if (status == TARTAN_OK) status = describe_object(&call, object, layouts, reader->escaped, &one);
        tartan_i_hdf5_close(object);
        if (one.kind != 0 && status == TARTAN_OK) {
            found->list[kept++] = one;
        } else {
            tartan_i_free(one.name);
            tartan_i_free(one.layout);
        }
    }
    found->count = kept;
    return status;
}

/* In files that do not track the order of creation, objects are ordered by name, layouts first. HDF5 sorts by the names
 * of links, in which '/' is "%2F". */
static void sort(hid_t group, bool layouts, names *found) {
    unsigned tracked = 0;
    hid_t plist = H5Gget_create_plist(group);
    const bool ordered = plist >= 0 && H5Pget_link_creation_order(plist, &tracked) >= 0 && tracked != 0;
    tartan_i_hdf5_close(plist);
    if (found->count > 1)
        qsort(found->list, (size_t)found->count, sizeof *found->list,
              ordered ? compare_orders : compare_names);
    for (int64_t i = 0; !ordered && i < found->count; i++) found->list[i].order = layouts ? 0 : i;
}

static tartan_status list_objects(const char *function, tartan_i_reader *reader, bool layouts, names *found) {
    tartan_status status;
    hid_t group = -1;
    const char *name = tartan_i_group_of(layouts ? TARTAN_KIND_LAYOUT : TARTAN_KIND_MATRIX);
    htri_t there = H5Lexists(reader->file, name, H5P_DEFAULT);
    if (there == 0) return TARTAN_OK;
    TRY(tartan_i_open_child(found->call, reader->file, name, H5I_GROUP, &group));
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_name, found) < 0) {
        status = found->status;
        if (status == TARTAN_OK) status = tartan_i_fail_hdf5(found->call, "its objects cannot be listed");
        goto fail;
    }
    status = describe_all(function, reader, layouts, group, found);
    if (status == TARTAN_OK) sort(group, layouts, found);
fail:
    tartan_i_hdf5_close(group);
    return status;
}

tartan_status tartan_i_reader_list(const char *function, tartan_i_reader *reader, bool layouts,
                                   tartan_i_listing **out, int64_t *out_count) {
    tartan_i_call call = tartan_i_call_for(function, reader, 0, NULL);
    names found = {.call = &call};
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = list_objects(function, reader, layouts, &found);
    tartan_i_hdf5_leave(quiet);
    if (status != TARTAN_OK) {
        tartan_i_listing_free(found.list, found.count);
        return status;
    }
    *out = found.list;
    *out_count = found.count;
    return TARTAN_OK;
}

/* Whether the group of this kind of objects, and in it a link of the name, is there; the object is opened then. */
static tartan_status open_named(tartan_i_call *call, tartan_i_reader *reader, int32_t kind, const char *name,
                                hid_t *out) {
    char link[TARTAN_I_LINK_BYTES + 1];
    hid_t group = -1;
    const char *parent = tartan_i_group_of(kind);
    htri_t there = H5Lexists(reader->file, parent, H5P_DEFAULT);
    if (there == 0) return TARTAN_OK;
    if (reader->escaped) tartan_i_name_to_link(name, link);
    const char *child = reader->escaped ? link : name;
    if (strchr(child, '/') != NULL) return TARTAN_OK;
    PASS(tartan_i_open_child(call, reader->file, parent, H5I_GROUP, &group));
    tartan_status status = TARTAN_OK;
    there = H5Lexists(group, child, H5P_DEFAULT);
    if (there < 0) status = tartan_i_fail_hdf5(call, "its links cannot be read");
    if (there > 0) status = tartan_i_open_child(call, group, child, H5I_BADID, out);
    tartan_i_hdf5_close(group);
    return status;
}

tartan_status tartan_i_reader_find(const char *function, tartan_i_reader *reader, bool layouts,
                                   const char *name, tartan_i_listing *out) {
    const int32_t kind = layouts ? TARTAN_KIND_LAYOUT : TARTAN_KIND_MATRIX;
    tartan_i_call call = tartan_i_call_for(function, reader, kind, name);
    hid_t object = -1;
    *out = (tartan_i_listing){0};
    if (tartan_i_name_fault(name) != NULL) return TARTAN_OK;
    tartan_i_quiet quiet = tartan_i_hdf5_enter();
    tartan_status status = open_named(&call, reader, kind, name, &object);
    if (status == TARTAN_OK && object >= 0) status = describe(&call, object, layouts, reader->escaped, out);
    tartan_i_hdf5_close(object);
    tartan_i_hdf5_leave(quiet);
    return status;
}
