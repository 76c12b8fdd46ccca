/* SPDX-License-Identifier: Apache-2.0
 * The backend of each device type. The CPU's is built in. CUDA's is a plug-in, opened on first use and searched for
 * in the folder TARTAN_PLUGIN_PATH, beside libtartan, in tartan/ beside it, and where it was installed. The reason
 * why a plug-in could not be loaded is kept. */
#include "backend/backend.h"

#include "backend/operation.h"
#include "core/interrupt.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TARTAN_I_PLUGIN_DIR
#define TARTAN_I_PLUGIN_DIR ""
#endif

#define CUDA_PLUGIN "libtartan_cuda.so"

enum { REASON_ROOM = PATH_MAX + 128, INSTALLED_TYPES = 16 };

static pthread_once_t cuda_once = PTHREAD_ONCE_INIT;
static const tartan_backend *cuda_backend;
static char cuda_reason[REASON_ROOM];

const tartan_host tartan_i_host = {
    .abi = TARTAN_BACKEND_ABI,
    .fail = tartan_i_fail,
    .allocate = tartan_i_allocate,
    .free = tartan_i_free,
    .text_add = tartan_i_text_add,
    .plan = tartan_i_layout_plan,
    .mask_plan = tartan_i_block_mask_plan,
    .cpu = &tartan_i_backend_cpu,
    .columns = tartan_i_layout_columns,
};

/* Installed by tests. */
static const tartan_backend *_Atomic installed[INSTALLED_TYPES];

__attribute__((format(printf, 1, 2))) static void explain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cuda_reason, sizeof cuda_reason, format, arguments);
    va_end(arguments);
}

/* Opens one candidate. Returns true if the search is over: it is our plug-in, or one that must not be used. */
static bool try_plugin(const char *path) {
    FILE *there = fopen(path, "rb");
    if (there == NULL) return false;
    fclose(there);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        explain("%s", dlerror());
        return true;
    }
    tartan_plugin_get_function get;
    *(void **)&get = dlsym(library, "tartan_plugin_get");
    const tartan_backend *backend = get != NULL ? get(&tartan_i_host) : NULL;
    if (backend == NULL) {
        explain("%s: not a Tartan plug-in", path);
    } else if (backend->abi != TARTAN_BACKEND_ABI) {
        explain("%s: made for backend ABI %d, expected %d", path, backend->abi, TARTAN_BACKEND_ABI);
    } else if (backend->device_type != TARTAN_CUDA) {
        explain("%s: serves another kind of device", path);
    } else {
        cuda_backend = backend; /* stays loaded as long as the process */
        return true;
    }
    dlclose(library);
    return true;
}

static bool try_folder(const char *folder, const char *below) {
    char path[PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s%s/" CUDA_PLUGIN, folder, below);
    return length > 0 && length < (int)sizeof path && try_plugin(path);
}

static void load_cuda(void) {
    const char *wish = getenv("TARTAN_PLUGIN_PATH");
    if (wish != NULL && wish[0] != '\0') { /* then no other place is searched */
        if (!try_folder(wish, "")) explain("no %s in TARTAN_PLUGIN_PATH %s", CUDA_PLUGIN, wish);
        return;
    }
    Dl_info here;
    char folder[PATH_MAX];
    /* The address of any of our objects tells where libtartan, or the program it is linked into, was loaded from. */
    if (dladdr(&tartan_i_backend_cpu, &here) != 0 && here.dli_fname != NULL &&
        snprintf(folder, sizeof folder, "%s", here.dli_fname) < (int)sizeof folder) {
        char *slash = strrchr(folder, '/');
        if (slash != NULL) {
            *slash = '\0';
            if (try_folder(folder, "") || try_folder(folder, "/tartan")) return;
        }
    }
    if (TARTAN_I_PLUGIN_DIR[0] != '\0' && try_folder(TARTAN_I_PLUGIN_DIR, "")) return;
    explain("the plug-in %s is not installed", CUDA_PLUGIN);
}

const tartan_backend *tartan_i_backend_find(int32_t device_type, const char **out_reason) {
    *out_reason = "";
    if (device_type >= 0 && device_type < INSTALLED_TYPES) {
        const tartan_backend *backend = atomic_load(&installed[device_type]);
        if (backend != NULL) return backend;
    }
    if (device_type == TARTAN_CPU) return &tartan_i_backend_cpu;
    if (device_type == TARTAN_CUDA) {
        pthread_once(&cuda_once, load_cuda);
        *out_reason = cuda_reason;
        return cuda_backend;
    }
    *out_reason = "no such kind of device";
    return NULL;
}

void tartan_i_backend_install(int32_t device_type, const tartan_backend *backend) {
    if (device_type >= 0 && device_type < INSTALLED_TYPES) atomic_store(&installed[device_type], backend);
}

bool tartan_i_backend_supports(const tartan_context *context, const tartan_op *op, const char **out_reason) {
    return context->backend->supports(context->device, op, out_reason);
}

static tartan_status run_listed(const tartan_context *context, const tartan_op *op) {
    const char *reason;
    if (!tartan_i_backend_supports(context, op, &reason))
        return tartan_i_fail(TARTAN_ERR_UNSUPPORTED, op->function, "backend %s: %s", context->backend->name,
                             reason);
    return tartan_i_interrupt_status(op->function, context, context->backend->run(context, op));
}

tartan_status tartan_i_backend_run(const tartan_context *context, const tartan_op *op) {
    if (op->operands != NULL) return run_listed(context, op);
    tartan_i_operand operands[TARTAN_I_MAX_OPERANDS];
    tartan_op listed = *op;
    tartan_i_op_list(&listed, operands);
    return run_listed(context, &listed);
}
