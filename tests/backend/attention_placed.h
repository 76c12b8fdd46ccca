// SPDX-License-Identifier: Apache-2.0
// Attention with its operands on the device of a backend under test.
#ifndef TARTAN_TESTS_ATTENTION_PLACED_H
#define TARTAN_TESTS_ATTENTION_PLACED_H

#include "../ops/attention_support.h"
#include "placed.h"

namespace tartan_test {

class AttentionOnBackend : public OnBackend {
  protected:
    // A problem whose operands are on the device.
    struct There {
        const Attention &p;
        Placed q, k, v, bias, sinks, out, lse, out_grad, q_grad, k_grad, v_grad, bias_grad, sinks_grad;
        There(tartan_context *c, const Attention &p_)
            : p(p_), q(c, p.q), k(c, p.k), v(c, p.v), out(c, p.out), lse(c, p.lse), out_grad(c, p.out_grad),
              q_grad(c, p.q_grad), k_grad(c, p.k_grad), v_grad(c, p.v_grad) {
            if (p.bias_kind != TARTAN_I_BIAS_NONE)
                bias = Placed(c, p.bias), bias_grad = Placed(c, p.bias_grad);
            if (p.has_sinks) sinks = Placed(c, p.sinks), sinks_grad = Placed(c, p.sinks_grad);
        }
        const tartan_array *bias_array() const { return p.bias_array() != nullptr ? &bias.array : nullptr; }
        const tartan_array *sinks_array() const { return p.has_sinks ? &sinks.array : nullptr; }
        tartan_status forward(tartan_context *c) {
            return attention_forward(c, p.layout.get(), &q.array, &k.array, &v.array, p.options().c_str(),
                                     p.mask.get(), bias_array(), sinks_array(), &out.array, &lse.array);
        }
        tartan_status backward(tartan_context *c) {
            return attention_backward(c, p.layout.get(), &q.array, &k.array, &v.array, p.options().c_str(),
                                      p.mask.get(), bias_array(), &out.array, &lse.array, &out_grad.array,
                                      &q_grad.array, &k_grad.array, &v_grad.array);
        }
        tartan_status bias_gradient(tartan_context *c) {
            return attention_bias_gradient(c, p.layout.get(), &q.array, &k.array, &v.array,
                                           p.options().c_str(), p.mask.get(), bias_array(), sinks_array(),
                                           &out.array, &lse.array, &out_grad.array,
                                           p.bias_array() != nullptr ? &bias_grad.array : nullptr,
                                           p.has_sinks ? &sinks_grad.array : nullptr);
        }
    };
    // Whether the call ran.
    bool ran(tartan_status status) const {
        if (dummy() || on_host() || status != TARTAN_ERR_UNSUPPORTED) {
            EXPECT_OK(status);
        }
        return status == TARTAN_OK;
    }
};

} // namespace tartan_test

#endif
