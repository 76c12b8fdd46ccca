/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/backend.h"
#include "core/cpu.h"
#include "core/parallel.h"

static void add_backend(tartan_i_text *text, const char *name, int32_t device_type) {
    const char *reason = "";
    const tartan_backend *backend = tartan_i_backend_find(device_type, &reason);
    int32_t devices = backend != NULL ? backend->devices(&reason) : 0;
    tartan_i_text_add(text, "{\"name\": \"%s\", \"loaded\": %s, \"devices\": [", name,
                      backend != NULL ? "true" : "false");
    for (int32_t i = 0; i < devices; i++) {
        char description[512];
        backend->describe(i, description, sizeof description);
        tartan_i_text_add(text, "%s%s", i > 0 ? ", " : "", description);
    }
    tartan_i_text_add(text, "]");
    if (devices == 0) {
        tartan_i_text_add(text, ", \"reason\": ");
        tartan_i_text_add_json(text, reason);
    }
    tartan_i_text_add(text, "}");
}

tartan_status tartan_info(char **out_text) {
    CHECK_OUT(out_text);
    tartan_i_text text = {0};
    char detected[64];
    tartan_i_cpu_list(tartan_i_cpu_detect(), detected, sizeof detected);
    tartan_i_text_add(&text, "{\"tartan\": \"%s\", \"abi\": %d, ", tartan_version(), tartan_abi_version());
    tartan_i_text_add(&text, "\"cpu\": {\"detected\": \"%s\", \"kernels\": \"%s\", \"threads\": %d}, ",
                      detected, tartan_cpu_kernels(), tartan_i_default_threads());
    tartan_i_text_add(&text, "\"backends\": [");
    add_backend(&text, "cpu", TARTAN_CPU);
    tartan_i_text_add(&text, ", ");
    add_backend(&text, "cuda", TARTAN_CUDA);
    tartan_i_text_add(&text, "]}");
    if (text.status != TARTAN_OK) {
        tartan_i_free(text.data);
        return text.status;
    }
    *out_text = text.data;
    return TARTAN_OK;
}
