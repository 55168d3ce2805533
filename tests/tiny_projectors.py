"""Random projectors of some hundred kilobytes: two that see, one that sees with M-RoPE, one that hears; and the models that they go with.

Real kinds, so that everything but the sense of their embeddings can be tested.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np

from tests import tiny_models
from tests.tiny_models import F32, N_VOCAB, Q4_0, Writer

N_EMBD_TEXT = 128  # of the tiny models
N_EMBD, N_FF, N_HEADS = 64, 128, 2


def _writer(path: Path, kind: str, seed: int, *, vision: bool) -> Writer:
    w = Writer(path, "clip", seed)
    w.gguf.add_bool("clip.has_vision_encoder", vision)
    w.gguf.add_bool("clip.has_audio_encoder", not vision)
    w.gguf.add_string("clip.projector_type", kind)
    w.gguf.add_bool("clip.use_gelu", True)
    return w


def _dimensions(w: Writer, modality: str, n_layer: int) -> None:
    w.gguf.add_uint32(f"clip.{modality}.embedding_length", N_EMBD)
    w.gguf.add_uint32(f"clip.{modality}.feed_forward_length", N_FF)
    w.gguf.add_uint32(f"clip.{modality}.block_count", n_layer)
    w.gguf.add_uint32(f"clip.{modality}.attention.head_count", N_HEADS)
    w.gguf.add_uint32(f"clip.{modality}.projection_dim", N_EMBD_TEXT)
    w.gguf.add_float32(f"clip.{modality}.attention.layer_norm_epsilon", 1e-6)


def _image(w: Writer, size: int, patch: int) -> None:
    w.gguf.add_uint32("clip.vision.image_size", size)
    w.gguf.add_uint32("clip.vision.patch_size", patch)
    w.gguf.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    w.gguf.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])


def _vector(w: Writer, name: str, size: int) -> None:
    w.tensor(name, (0.1 * w.random.standard_normal(size)).astype(np.float32))


def _patches(w: Writer, name: str, patch: int) -> None:
    values = 0.1 * w.random.standard_normal((N_EMBD, 3, patch, patch))
    w.gguf.add_tensor(name, values.astype(np.float16))


def _layers(w: Writer, prefix: str, n_layer: int, *, k_bias: bool = True) -> None:
    for i in range(n_layer):
        at = f"{prefix}.blk.{i}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            w.matrix(f"{at}{name}.weight", N_EMBD, N_EMBD)
            if name != "attn_k" or k_bias:
                _vector(w, f"{at}{name}.bias", N_EMBD)
        for name in ("ln1", "ln2"):
            w.norm(f"{at}{name}.weight", N_EMBD)
            _vector(w, f"{at}{name}.bias", N_EMBD)
        w.matrix(f"{at}ffn_up.weight", N_FF, N_EMBD)
        _vector(w, f"{at}ffn_up.bias", N_FF)
        w.matrix(f"{at}ffn_down.weight", N_EMBD, N_FF)
        _vector(w, f"{at}ffn_down.bias", N_EMBD)


def write_llava(path: Path, *, seed: int = 11, n_layer: int = 3, n_embd_text: int = N_EMBD_TEXT) -> Path:
    """CLIP with two linear layers: 16 embeddings for each image, nothing around them, causal."""
    w = _writer(path, "mlp", seed, vision=True)
    _dimensions(w, "vision", n_layer)
    _image(w, 32, 8)
    _patches(w, "v.patch_embd.weight", 8)
    _vector(w, "v.class_embd", N_EMBD)
    w.matrix("v.position_embd.weight", 17, N_EMBD, F32)
    w.norm("v.pre_ln.weight", N_EMBD)
    _vector(w, "v.pre_ln.bias", N_EMBD)
    _layers(w, "v", n_layer)
    for name, rows, columns in (("mm.0", N_EMBD, N_EMBD), ("mm.2", n_embd_text, N_EMBD)):
        w.matrix(f"{name}.weight", rows, columns)
        _vector(w, f"{name}.bias", rows)
    w.close()
    return path


def write_gemma3_projector(path: Path, *, seed: int = 12, n_layer: int = 2, n_embd_text: int = N_EMBD_TEXT) -> Path:
    """SigLIP as in Gemma 3: 16 embeddings for each image, between marks, that see each other in both directions."""
    w = _writer(path, "gemma3", seed, vision=True)
    _dimensions(w, "vision", n_layer)
    _image(w, 112, 14)
    w.gguf.add_uint32("clip.vision.projector.scale_factor", 2)
    _patches(w, "v.patch_embd.weight", 14)
    _vector(w, "v.patch_embd.bias", N_EMBD)
    w.matrix("v.position_embd.weight", 64, N_EMBD, F32)
    w.norm("v.post_ln.weight", N_EMBD)
    _vector(w, "v.post_ln.bias", N_EMBD)
    _layers(w, "v", n_layer)
    w.matrix("mm.input_projection.weight", N_EMBD, n_embd_text)
    w.norm("mm.soft_emb_norm.weight", N_EMBD)
    w.close()
    return path


def write_ultravox(path: Path, *, seed: int = 13) -> Path:
    """Whisper's encoder: 75 embeddings for each half minute of sound, or part of one."""
    stack, n_mel = 20, 80
    w = _writer(path, "ultravox", seed, vision=False)
    _dimensions(w, "audio", 1)
    w.gguf.add_uint32("clip.audio.num_mel_bins", n_mel)
    w.gguf.add_uint32("clip.audio.projector.stack_factor", stack)
    for i, n_in in ((1, n_mel), (2, N_EMBD)):
        w.gguf.add_tensor(f"a.conv1d.{i}.weight", (0.1 * w.random.standard_normal((N_EMBD, n_in, 3))).astype(np.float16))
        w.tensor(f"a.conv1d.{i}.bias", (0.1 * w.random.standard_normal((N_EMBD, 1))).astype(np.float32))
    w.matrix("a.position_embd.weight", 1500, N_EMBD, F32)
    w.norm("a.post_ln.weight", N_EMBD)
    _vector(w, "a.post_ln.bias", N_EMBD)
    _layers(w, "a", 1, k_bias=False)
    w.norm("mm.a.norm_pre.weight", N_EMBD * stack)
    w.matrix("mm.a.mlp.1.weight", 2 * N_EMBD, N_EMBD * stack)
    w.norm("mm.a.norm_mid.weight", N_EMBD)
    w.matrix("mm.a.mlp.2.weight", N_EMBD_TEXT, N_EMBD)
    w.close()
    return path


def write_qwen2vl_projector(path: Path, *, seed: int = 14) -> Path:
    """As many embeddings as the image is large, at positions of rows and columns."""
    w = _writer(path, "qwen2vl_merger", seed, vision=True)
    _dimensions(w, "vision", 1)
    _image(w, 56, 14)
    _patches(w, "v.patch_embd.weight", 14)
    _patches(w, "v.patch_embd.weight.1", 14)
    w.norm("v.post_ln.weight", N_EMBD)
    _vector(w, "v.post_ln.bias", N_EMBD)
    _layers(w, "v", 1)
    for name, rows, columns in (("mm.0", 4 * N_EMBD, 4 * N_EMBD), ("mm.2", N_EMBD_TEXT, 4 * N_EMBD)):
        w.matrix(f"{name}.weight", rows, columns)
        _vector(w, f"{name}.bias", rows)
    w.close()
    return path


def write_qwen2vl(path: Path, *, seed: int = 15) -> Path:
    """Attention with M-RoPE: a position has four sections."""
    n_ff, head, n_heads, n_layer = 256, 64, 2, 2
    w = Writer(path, "qwen2vl", seed)
    w.vocabulary()
    w.gguf.add_context_length(2048)
    w.gguf.add_embedding_length(N_EMBD_TEXT)
    w.gguf.add_block_count(n_layer)
    w.gguf.add_feed_forward_length(n_ff)
    w.gguf.add_head_count(n_heads)
    w.gguf.add_head_count_kv(n_heads)
    w.gguf.add_layer_norm_rms_eps(1e-6)
    w.gguf.add_array("qwen2vl.rope.dimension_sections", [8, 12, 12, 0])
    w.gguf.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")
    w.matrix("token_embd.weight", N_VOCAB, N_EMBD_TEXT, Q4_0, scale=1.0)
    w.norm("output_norm.weight", N_EMBD_TEXT)
    for i in range(n_layer):
        at = f"blk.{i}."
        w.norm(f"{at}attn_norm.weight", N_EMBD_TEXT)
        for name in ("attn_q", "attn_k", "attn_v"):
            w.matrix(f"{at}{name}.weight", head * n_heads, N_EMBD_TEXT, Q4_0)
            _vector(w, f"{at}{name}.bias", head * n_heads)
        w.matrix(f"{at}attn_output.weight", N_EMBD_TEXT, head * n_heads, Q4_0)
        w.norm(f"{at}ffn_norm.weight", N_EMBD_TEXT)
        w.matrix(f"{at}ffn_gate.weight", n_ff, N_EMBD_TEXT, Q4_0)
        w.matrix(f"{at}ffn_up.weight", n_ff, N_EMBD_TEXT, Q4_0)
        w.matrix(f"{at}ffn_down.weight", N_EMBD_TEXT, n_ff, Q4_0)
    w.close()
    return path


def without(path: Path, target: Path, *names: str) -> Path:
    """The same file without some of its tensors: damaged, but a sound GGUF file."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(target, "clip")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            element = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=element)
    for tensor in reader.tensors:
        if tensor.name not in names:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


PAIRS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Path]]] = {
    "llava": (tiny_models.write_llama, write_llava),
    "gemma3": (tiny_models.write_gemma3, write_gemma3_projector),
    "ultravox": (tiny_models.write_llama, write_ultravox),
    "qwen2vl": (write_qwen2vl, write_qwen2vl_projector),
}


def write_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """A model and its projector, unless they are there already."""
    model, projector = folder / f"{name}.gguf", folder / f"{name}-mmproj.gguf"
    for path, write in zip((model, projector), PAIRS[name], strict=True):
        if not path.exists():
            write(path)
    return model, projector
