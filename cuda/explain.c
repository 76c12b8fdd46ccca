/* SPDX-License-Identifier: Apache-2.0
 * What would run, and why; the texts of tartan_explain. */
#include "explain.h"

/* One kernel of an operation, and what the tables say of it. */
typedef struct candidate {
    const char *name, *refusal; /* NULL: it can */
    double rate;
} candidate;

/* `note` is added to why. */
static void write(const tartan_host *host, const candidate *all, int32_t count, int32_t chosen,
                  const char *note, tartan_i_text *text) {
    int32_t able = 0, written = 0;
    for (int32_t i = 0; i < count; i++) able += all[i].refusal == NULL;
    host->text_add(
        text, "\"kernel\": \"%s\", \"why\": \"%s%s\", \"refused\": [", all[chosen].name,
        able == 1 ? "no other kernel can do it" : "the highest expected rate of those that can do it", note);
    for (int32_t i = 0; i < count; i++) {
        if (i == chosen) continue;
        host->text_add(text, "%s{\"kernel\": \"%s\", \"why\": \"", written++ > 0 ? ", " : "", all[i].name);
        if (all[i].refusal != NULL)
            host->text_add(text, "%s\"}", all[i].refusal);
        else
            host->text_add(text, "expected to give %.3g TFLOP/s, which is not more\"}", all[i].rate);
    }
    host->text_add(text, "], \"expected_tflops\": %.4g", all[chosen].rate);
}

void tartan_cuda_explain_spmm(const tartan_host *host, const tartan_cuda_chip *chip,
                              const tartan_cuda_spmm *p, const tartan_cuda_figures *figures,
                              tartan_i_text *text) {
    candidate all[TARTAN_CUDA_SPMM_KERNELS];
    for (int32_t i = 0; i < TARTAN_CUDA_SPMM_KERNELS; i++) {
        const tartan_cuda_spmm_kernel *kernel = &tartan_cuda_spmm_kernels[i];
        all[i] = (candidate){kernel->name, kernel->refuses(chip, p), tartan_cuda_spmm_rate(i, p, figures)};
    }
    const int32_t chosen = tartan_cuda_spmm_choose(chip, p, figures);
    write(host, all, TARTAN_CUDA_SPMM_KERNELS, chosen,
          chosen == TARTAN_CUDA_SPMM_DENSE ? ": cuBLAS, with a dense copy of a" : "", text);
}

void tartan_cuda_explain_sddmm(const tartan_host *host, const tartan_cuda_chip *chip,
                               const tartan_cuda_sddmm *p, tartan_i_text *text) {
    candidate all[TARTAN_CUDA_SDDMM_KERNELS];
    for (int32_t i = 0; i < TARTAN_CUDA_SDDMM_KERNELS; i++) {
        const tartan_cuda_sddmm_kernel *kernel = &tartan_cuda_sddmm_kernels[i];
        all[i] = (candidate){kernel->name, kernel->refuses(chip, p), tartan_cuda_sddmm_rate(i, p)};
    }
    write(host, all, TARTAN_CUDA_SDDMM_KERNELS, tartan_cuda_sddmm_choose(chip, p), "", text);
}
