# SPDX-License-Identifier: Apache-2.0
"""tartan.torch.patch_model, on models of PyTorch and of Transformers."""

import copy

import pytest

import tartan

torch = pytest.importorskip("torch")
from tartan.torch import BlockSparseLinear, Sparsifier, patch_model, unpatch_model  # noqa: E402


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(48, 32)
        self.first, self.second = torch.nn.Linear(32, 32), torch.nn.Linear(32, 64)
        self.again = self.first
        self.back = torch.nn.Linear(64, 32)
        self.head = torch.nn.Linear(32, 48, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.back(self.second(self.again(self.first(self.embed(x))))))


def test_density_of_one_changes_nothing():
    model = Tied()
    tokens = torch.randint(48, (2, 7))
    before, parameters = model(tokens), sum(p.numel() for p in model.parameters())
    report = patch_model(model, density=1, block=16)
    torch.testing.assert_close(model(tokens), before)
    assert report.parameters_before == report.parameters_after == parameters
    assert report.tied == [["first", "again"]] and model.first is model.again
    assert report.skipped == {"head": "its weight is also embed.weight"}
    assert [x.name for x in report.layers] == ["first", "second", "back"]
    assert unpatch_model(model) == ["first", "second", "back"] and model.first is model.again
    assert all(type(m) is torch.nn.Linear for m in (model.first, model.second, model.back))
    torch.testing.assert_close(model(tokens), before)


def test_settings_of_each_layer():
    model = Tied()
    layout = tartan.Layout.pattern("banded", (32, 64), 8)
    report = patch_model(model, {"first|again": dict(pattern=("butterfly", {"base": 2}), block=8), "sec.*": dict(density=0.25), "back": dict(layout=layout),
                                 "head": None}, block=(16, 8))  # fmt: skip
    assert model.first.layout == tartan.Layout.pattern("butterfly", (32, 32), 8, base=2)
    assert model.second.layout.block_shape == (16, 8) and model.second.density == 0.25 and model.back.layout == layout
    assert type(model.head) is torch.nn.Linear and not report.skipped
    text = str(report)
    assert "second   16x8     0.25" in text and f"{report.parameters_after:,}" in text and "tied: first = again" in text
    again = patch_model(model, density=0.5, block=8, skip=["head"])  # what is block-sparse already stays
    assert not again.layers and model.second.density == 0.25


@pytest.mark.parametrize("patterns, settings, words", [
    ({"nothing": {}}, {"density": 0.5, "block": 8}, "patterns has 'nothing', which matches no linear layer; there are: first, second"),
    ({"first": {"sparsity": 1}}, {}, "'first' has sparsity, expected some of block, density, keep, layout, pattern"),
    (None, {"density": 0.5}, "first: density is 0.5 and block is None, expected both"),
    (None, {"density": 2, "block": 8}, "first: density is 2"),
    ({"second": {"layout": tartan.Layout.pattern("dense", (8, 8), 8)}}, {}, r"second: layout has shape \(8, 8\), expected \(64, 32\)"),
])  # fmt: skip
def test_refusals_replace_nothing(patterns, settings, words):
    model = Tied()
    with pytest.raises(tartan.ArgumentError, match=words):
        patch_model(model, patterns, **settings)
    assert not any(isinstance(m, BlockSparseLinear) for m in model.modules())


def test_layers_that_are_not_what_they_seem():
    class Own(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = torch.nn.ModuleDict({
        "own": Own(16, 16), "attention": torch.nn.MultiheadAttention(16, 2), "hooked": torch.nn.Linear(16, 16),
        "normed": torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 16)), "plain": torch.nn.Linear(16, 16),
    })  # fmt: skip
    model["hooked"].register_forward_hook(lambda *_: None)
    report = patch_model(model, density=0.5, block=8)
    assert [x.name for x in report.layers] == ["plain"] and set(report.skipped) == {"own", "attention.out_proj", "hooked", "normed"}
    assert "skipped own: it is a Own, whose forward pass is not that of nn.Linear" in str(report)
    with pytest.raises(tartan.ArgumentError, match="model is of type dict"):
        patch_model({}, density=0.5, block=8)


def test_frozen_modes_and_dtypes_are_kept():
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)).bfloat16().eval()
    model[0].weight.requires_grad_(False)
    patch_model(model, density=0.5, block=8)
    assert not model[0].values.requires_grad and model[1].values.requires_grad and not model[0].training
    assert model[0].values.dtype == torch.bfloat16 and model(torch.ones(2, 16, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("training", [True, False])
def test_encoder_of_torch(training):
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2)
    x = torch.randn(2, 5, 32)
    wanted = model.train(training)(x)
    report = patch_model(model, {r".*\.linear\d": dict(density=1, block=8)})
    assert len(report.layers) == 4
    torch.testing.assert_close(model(x), wanted)
    if not training:
        with torch.no_grad():
            torch.testing.assert_close(model(x), wanted)


# ---- Transformers ----


def bert(transformers):
    config = transformers.BertConfig(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    return transformers.BertForMaskedLM(config), r"bert\.encoder\.layer\.\d+\.(intermediate|output|attention\.output)\.dense", 6


def llama(transformers):
    config = transformers.LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      intermediate_size=128)  # fmt: skip
    return transformers.LlamaForCausalLM(config), r"model\.layers\..*", 14


def gpt2(transformers):
    config = transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=64)
    return transformers.GPT2LMHeadModel(config), r"transformer\.h\..*", 8


@pytest.mark.parametrize("make", [bert, llama, gpt2])
def test_models_of_transformers(make):
    transformers = pytest.importorskip("transformers")
    model, pattern, count = make(transformers)
    model.eval()
    tokens = torch.randint(96, (2, 12))
    wanted = model(tokens).logits
    whole, half = copy.deepcopy(model), copy.deepcopy(model)
    report = patch_model(whole, {pattern: dict(density=1, block=16)})
    assert len(report.layers) == count and report.parameters_before == report.parameters_after
    torch.testing.assert_close(whole(tokens).logits, wanted, rtol=1e-4, atol=1e-5)
    report = patch_model(half, {pattern: dict(density=0.5, block=16)})
    assert report.parameters_after < report.parameters_before
    half.train()
    optimiser = torch.optim.AdamW(half.parameters(), 1e-2)
    losses = []
    for _ in range(8):
        loss = half(tokens, labels=tokens).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    again = copy.deepcopy(model)
    patch_model(again, {pattern: dict(density=0.5, block=16, keep="random")})
    again.load_state_dict(half.state_dict())
    half.eval(), again.eval()
    torch.testing.assert_close(again(tokens).logits, half(tokens).logits)
    if make is gpt2:
        generated = half.generate(tokens, max_new_tokens=3, do_sample=False, pad_token_id=0)
        assert generated.shape == (2, 15)
    unpatch_model(half)
    torch.testing.assert_close(half(tokens).logits, again(tokens).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [bert, llama, gpt2])
def test_models_of_transformers_save(make, tmp_path):
    transformers = pytest.importorskip("transformers")
    safetensors = pytest.importorskip("safetensors.torch")
    model, pattern, _ = make(transformers)
    patch_model(model, {pattern: dict(density=0.5, block=16)})
    model.save_pretrained(tmp_path)
    state = {}
    for file in tmp_path.glob("*.safetensors"):
        state.update(safetensors.load_file(file))
    again, _, _ = make(transformers)
    patch_model(again, {pattern: dict(density=0.5, block=16, keep="random")})
    again.load_state_dict(state, strict=False)
    again.tie_weights()
    tokens = torch.randint(96, (2, 12))
    model.eval(), again.eval()
    torch.testing.assert_close(again(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("make", [bert, llama, gpt2])
def test_models_of_transformers_learn_their_gates(make):
    """Half of the blocks, compiled, with gates; stopped, restored from state dicts, and on with the same bits."""
    transformers = pytest.importorskip("transformers")

    def begun():
        torch.manual_seed(0)
        model, pattern, _ = make(transformers)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        patch_model(model, {pattern: dict(density=0.5)}, block=16)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        torch._dynamo.reset()
        return model, optimizer, Sparsifier(model, optimizer, score="gate", l0=0.5, gate_rate=0.5, begin=6, every=3)

    def train(run, first, last):
        model, optimizer, sparsifier = run
        compiled = torch.compile(model, backend="aot_eager")
        for step in range(first, last):
            torch.manual_seed(100 + step)
            tokens = torch.randint(96, (2, 12))
            optimizer.zero_grad()
            (compiled(tokens, labels=tokens).loss + sparsifier.penalty).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            sparsifier.step()

    run = begun()
    train(run, 0, 8)
    states = [copy.deepcopy(x.state_dict()) for x in run]
    train(run, 8, 13)
    again = begun()
    for x, state in zip(again, states):
        x.load_state_dict(state)
    train(again, 8, 13)
    found, wanted = (x[0].state_dict() for x in (again, run))
    assert found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in found)
    layers = list(run[2].layers.values())
    assert all(layer.density < 0.5 for layer in layers)
