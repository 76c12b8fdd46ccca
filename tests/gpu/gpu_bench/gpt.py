# SPDX-License-Identifier: Apache-2.0
"""The language model whose training is measured, dense, by hand with `spmm`, from `patch_model`, and that with the last layer and its
loss in one; one linear layer; layers whose layouts change; and a last layer alone."""

import dataclasses

import torch
from tartan import Layout, spmm
from tartan.torch import BlockSparseLinear, Sparsifier, linear_cross_entropy, patch_model

F = torch.nn.functional


@dataclasses.dataclass
class Scale:
    width: int = 2048
    layers: int = 12
    tokens: int = 2048
    batch: int = 4
    vocabulary: int = 50304
    head: int = 128
    density: float = 0.1
    blocks: tuple = (64, 32)
    linear: int = 4096  # sides of the single layer, and rows of its input
    changing: int = 16  # such layers, one after another, whose layouts change
    classes: tuple = (8192, 4096, 131072)  # lines, features and classes of the last layer alone


TINY = Scale(width=64, layers=2, tokens=32, batch=2, vocabulary=96, head=16, density=0.25, blocks=(16, 8), linear=128, changing=2,
             classes=(64, 32, 96))
PATTERN = r"blocks\.\d+\.(qkv|proj|up|down)"


class Block(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        n = scale.width
        self.head = scale.head
        self.first, self.second = torch.nn.RMSNorm(n), torch.nn.RMSNorm(n)
        self.qkv, self.proj = torch.nn.Linear(n, 3 * n, bias=False), torch.nn.Linear(n, n, bias=False)
        self.up, self.down = torch.nn.Linear(n, 4 * n, bias=False), torch.nn.Linear(4 * n, n, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, -1, self.head)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.embed = torch.nn.Embedding(scale.vocabulary, scale.width)
        self.blocks = torch.nn.ModuleList(Block(scale) for _ in range(scale.layers))
        self.norm = torch.nn.RMSNorm(scale.width)
        self.out = torch.nn.Linear(scale.width, scale.vocabulary, bias=False)

        self.loss_in_one = False

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        if self.loss_in_one:
            return linear_cross_entropy(self.norm(x), self.out.weight, labels)
        return F.cross_entropy(self.out(self.norm(x)).flatten(0, 1), labels.flatten())


class ByHand(torch.nn.Module):
    """What a user of `spmm` alone writes."""

    def __init__(self, layer):
        super().__init__()
        self.layout, self.values = layer.layout, torch.nn.Parameter(layer.values.detach().clone())

    def forward(self, x):
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        return spmm(self.layout, x.to(dtype), values=self.values.to(dtype), side="right", transpose=True)


def dense(scale, device):
    torch.manual_seed(1)
    with torch.device(device):
        return Gpt(scale)


def patched(scale, device, block):
    model = dense(scale, device)
    report = patch_model(model, {PATTERN: dict(density=scale.density, block=block, keep="random")})
    return model, report


def by_hand(model, scale, device):
    """A model with the layouts and the values of a patched one."""
    result = dense(scale, "meta").to_empty(device=device)
    with torch.no_grad():
        for name, module in list(result.named_modules()):
            source = model.get_submodule(name)
            if isinstance(source, BlockSparseLinear):
                path, _, last = name.rpartition(".")
                setattr(result.get_submodule(path), last, ByHand(source))
            else:
                for mine, theirs in zip(module._parameters.values(), source._parameters.values()):
                    if mine is not None:
                        mine.copy_(theirs)
    return result


class Training:
    """A step of training as a call: the loss under autocast, its gradients, AdamW."""

    def __init__(self, model, scale, device, compiled=None, graphs=False):
        self.model, self.device, self.graphs = model, device, graphs
        mode = {"mode": "reduce-overhead"} if graphs else {}
        self.run = model if compiled is None else torch.compile(model, backend=compiled, **mode)
        options = {"fused": True} if device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-4, **options)
        generator = torch.Generator(device=device).manual_seed(2)
        shape = (scale.batch, scale.tokens + 1)
        tokens = torch.randint(scale.vocabulary, shape, generator=generator, device=device)
        self.tokens, self.labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss(self):
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(self.device, torch.bfloat16):
            return self.run(self.tokens, self.labels)

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimizer.step()


def last_layers(scale, device):
    """A last layer with its loss in bfloat16, forward and backward: PyTorch's, ours, and the three products alone, as calls; and a call
    that returns the losses of the first two."""
    lines, features, classes = scale.classes
    x = torch.randn(lines, features, device=device, dtype=torch.bfloat16, requires_grad=True)
    weight = (torch.randn(classes, features, device=device, dtype=torch.bfloat16) * features**-0.5).requires_grad_()
    labels = torch.randint(classes, (lines,), device=device)
    slope = torch.randn(lines, classes, device=device, dtype=torch.bfloat16)
    given, w = x.detach(), weight.detach()

    def theirs():
        return F.cross_entropy((x @ weight.t()).float(), labels)

    def ours():
        return linear_cross_entropy(x, weight, labels)

    def products():
        return given @ w.t(), slope @ w, slope.t() @ given
    return (lambda: torch.autograd.grad(theirs(), (x, weight)), lambda: torch.autograd.grad(ours(), (x, weight)), products,
            lambda: (float(ours().detach()), float(theirs().detach())))


def linear_layers(scale, device, block):
    """nn.Linear and a block-sparse layer in bfloat16, forward and backward, as calls."""
    n = scale.linear
    with torch.device(device):
        dense = torch.nn.Linear(n, n, bias=False, dtype=torch.bfloat16)
        layout = Layout.pattern("random", (n, n), block, density=scale.density, seed=3)
        ours = BlockSparseLinear.from_linear(dense, keep=layout)
        x = torch.randn(n, n, dtype=torch.bfloat16, requires_grad=True)
        grad = torch.randn(n, n, dtype=torch.bfloat16)
    masked = torch.nn.Linear(n, n, bias=False, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        masked.weight.copy_(ours.to_dense())

    def step(layer, parameter):
        return lambda: torch.autograd.grad(layer(x), (x, parameter), grad)
    return step(dense, dense.weight), step(ours, ours.values), lambda: (ours(x), masked(x))


def changing_layers(scale, device, block):
    """Layers one after another: a step of their training, and the change of all their layouts with what Adam knows, as calls; and a call
    that returns the number of blocks."""
    n = scale.linear
    torch.manual_seed(4)
    with torch.device(device):
        layers = [BlockSparseLinear(n, n, bias=False, density=scale.density, block=block) for _ in range(scale.changing)]
        x, grad = (torch.randn(n, n, dtype=torch.bfloat16) for _ in range(2))
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, **({"fused": True} if device == "cuda" else {}))
    sparsifier = Sparsifier(model, optimizer, swap=0.1, decay="constant", growth="random", every=1, end=10**6)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            y = model(x)
        y.backward(grad)
        optimizer.step()
    return step, sparsifier.step, lambda: sum(layer.layout.blocks for layer in layers)
