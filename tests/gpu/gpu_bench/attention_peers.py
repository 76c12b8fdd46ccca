# SPDX-License-Identifier: Apache-2.0
"""The others: dense attention of PyTorch by cuDNN and by FlashAttention, and FlexAttention."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .attention_cases import BACKWARD, FORWARD
from .peers import Absent
from .timing import Arm

BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def arms_of(function, inputs, backward):
    """{direction: arm} of a function of q, k and v. Its backward pass reuses one recorded forward pass."""
    q, k, v = inputs.q, inputs.k, inputs.v

    def forward():
        with torch.no_grad():
            return function(q, k, v)
    forward()
    arms = {FORWARD: Arm([forward], capture=False)}
    if backward:
        leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        out = function(*leaves)
        arms[BACKWARD] = Arm([lambda: torch.autograd.grad(out, leaves, inputs.out_grad, retain_graph=True)], capture=False)
    return arms


def dense(name, case, inputs, causal, backward):
    """({direction: arm}, operations of a forward pass that sees all pairs)."""
    with sdpa_kernel([BACKENDS[name]]):  # the choice is made at each call
        arms = arms_of(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal), inputs, backward)
    forward = arms[FORWARD].calls[0]

    def chosen():
        with sdpa_kernel([BACKENDS[name]]):
            return forward()
    arms[FORWARD].calls = [chosen]
    return arms, 4.0 * case.d * case.batch * case.heads * case.tq * case.tk


# ---- FlexAttention ----

def everything(_batch, _head, query, _key):
    return query >= 0


def causal_rule(_batch, _head, query, key):
    return query >= key


def ordered(mask):
    """(counts, indices) of the blocks of each row: FlexAttention's form of a block mask [heads, rows, columns]."""
    indices = torch.argsort(mask.int(), dim=-1, descending=True, stable=True).int()
    return mask.sum(-1, dtype=torch.int32)[None], indices[None].contiguous()


def block_mask(case, stored):
    """The same blocks and elements as ours. Blocks on the diagonal of a causal case need the rule, the others do not. `stored`
    is expanded to all heads, so that all cases of one size share one compiled kernel."""
    from torch.nn.attention.flex_attention import BlockMask
    stored = stored.expand(case.heads, -1, -1)
    partial = torch.zeros_like(stored)
    if case.causal:
        diagonal = torch.eye(stored.shape[1], stored.shape[2], dtype=torch.bool, device=stored.device)
        partial = stored & diagonal
        above = torch.ones_like(diagonal).triu(1)
        stored = stored & ~above
    return BlockMask.from_kv_blocks(*ordered(partial), *ordered(stored & ~partial), BLOCK_SIZE=case.block,
                                    mask_mod=causal_rule if case.causal else everything, seq_lengths=(case.tq, case.tk))


class Flex:
    """torch.compile'd flex_attention."""

    def __init__(self):
        import torch._dynamo
        import torch._functorch.config
        from torch.nn.attention.flex_attention import flex_attention
        torch._dynamo.config.recompile_limit = 64  # a kernel for each shape and kind of mask
        torch._functorch.config.donated_buffer = False  # the backward pass is repeated
        self.function = torch.compile(flex_attention, dynamic=False)

    def arms(self, ours, backward):
        case = ours.case
        if case.block[0] != case.block[1]:
            raise Absent("not tried: blocks are not square")
        mask = block_mask(case, ours.stored())
        options = None
        if case.block[0] < 128:
            edge = case.block[0]
            options = {"BLOCK_M": edge, "BLOCK_N": edge, "BLOCK_M1": edge, "BLOCK_N1": edge, "BLOCK_M2": edge,
                       "BLOCK_N2": edge}

        # With gradients, so that one compilation serves both passes; theirs writes lse then, as ours does.
        # On the CPU it has no backward pass.
        backward = backward and ours.out.is_cuda
        leaves = [tensor.detach().requires_grad_(backward) for tensor in (ours.inputs.q, ours.inputs.k, ours.inputs.v)]

        def forward():
            return self.function(*leaves, block_mask=mask, kernel_options=options)
        out = forward()
        note = agreement(out.detach(), ours.out)
        arms = {FORWARD: Arm([forward], capture=False)}
        if backward:
            arms[BACKWARD] = Arm([lambda: torch.autograd.grad(out, leaves, ours.inputs.out_grad, retain_graph=True)],
                                 capture=False)
        return arms, note


def agreement(result, ours):
    """A note where the peer's result is not ours."""
    apart = float((result.float() - ours.float()).norm() / ours.float().norm())
    return "" if apart < 0.02 else f"the peer's result differs ({apart:.2g})"
