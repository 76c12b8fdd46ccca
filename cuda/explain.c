/* SPDX-License-Identifier: Apache-2.0 */
#include "explain.h"
#include "backend/operation.h"

/* "kernel", "why" of the kernel that runs. */
static void add_chosen(const tartan_host *host, const tartan_cuda_kernel *chosen, bool alone,
                       tartan_i_text *text) {
    host->text_add(text, "\"kernel\": \"%s\", \"why\": \"%s", chosen->name,
                   alone ? "no other kernel can do it" : "the highest expected rate of those that can do it");
    if (chosen->remark != NULL) host->text_add(text, ": %s", chosen->remark);
    host->text_add(text, "\"");
}

/* One of "refused". */
static void add_other(const tartan_host *host, const tartan_cuda_kernel *kernel, const char *refusal,
                      const void *problem, tartan_i_text *text) {
    host->text_add(text, "{\"kernel\": \"%s\", \"why\": \"", kernel->name);
    if (refusal != NULL)
        host->text_add(text, "%s\"}", refusal);
    else
        host->text_add(text, "slower: expected %.3g TFLOP/s\"}", tartan_cuda_kernel_rate(kernel, problem));
}

void tartan_cuda_explain(const tartan_host *host, const tartan_cuda_kernels *kernels,
                         const tartan_cuda_chip *chip, const void *problem, tartan_i_text *text) {
    const int32_t chosen = tartan_cuda_choose(kernels, chip, problem);
    int32_t able = 0;
    for (int32_t i = 0; i < kernels->count; i++)
        able += tartan_cuda_kernel_refuses(&kernels->rows[i], chip, problem) == NULL;
    if (chosen < 0)
        host->text_add(text, "\"kernel\": null, \"why\": \"no kernel can do it\"");
    else
        add_chosen(host, &kernels->rows[chosen], able == 1, text);
    host->text_add(text, ", \"refused\": [");
    bool first = true;
    for (int32_t i = 0; i < kernels->count; i++) {
        const tartan_cuda_kernel *kernel = &kernels->rows[i];
        if (i == chosen) continue;
        if (!first) host->text_add(text, ", ");
        first = false;
        add_other(host, kernel, tartan_cuda_kernel_refuses(kernel, chip, problem), problem, text);
    }
    if (chosen >= 0 && kernels->rows[chosen].rate != NULL)
        host->text_add(text, "], \"expected_tflops\": %.4g", kernels->rows[chosen].rate(problem));
    else
        host->text_add(text, "], \"expected_tflops\": null");
}
