"""Every setting of the server, once: what follows from a field (help, the reference, environment names) is made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsm.batching import Batching
from lsm.config.batching import BATCHING
from lsm.config.checks import check_together
from lsm.config.generation import GENERATION, with_model_defaults
from lsm.config.keeping import KEEPING
from lsm.config.media import MEDIA, MediaSettings
from lsm.config.placing import PLACING
from lsm.config.readers import Choice, CommaList, FilePath, Number, Prefix, Size, SizeOrAuto, Text, UrlList, Whole
from lsm.config.setting import Setting, flat, setting, settings_of, switch
from lsm.config.speculating import SPECULATING
from lsm.config.steering import STEERING
from lsm.config.tuning import TUNING
from lsm.keeping import Keeping
from lsm.speculating import Speculating
from lsm.tuning import Computing, Loading, Placing, Steering
from lsm.values import Options

MODELS = "Models"
CONTEXT = "Context, batches, threads"
SHARING = "Sharing the device"
CHAT = "Chat"
HTTP = "HTTP server"
LOG = "Log"

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
SHADOWS = ("file", "pinned", "pageable")
MAX_SLOTS = 256  # llama.cpp's own limit on sequences
N_UBATCH = 512  # a smaller --batch-size lowers it


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model to serve: the GGUF file, the name that clients call it by, and the projector if it sees or hears."""

    path: Path
    alias: str
    projector: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All that can be chosen.  Immutable; a ConfigError names the fields that contradict each other."""

    model_paths: tuple[Path, ...] = setting(
        "-m",
        "--model",
        group=MODELS,
        read=FilePath(),
        default=(),
        env="LLAMA_ARG_MODEL",
        collect=tuple,
        help="GGUF file to serve; a name without a folder is looked up in the current folder, then in the one of `lsm pull`",
    )
    aliases: tuple[str, ...] = setting(
        "-a",
        "--alias",
        group=MODELS,
        read=CommaList(),
        default=(),
        env="LLAMA_ARG_ALIAS",
        collect=flat,
        default_text="the file's name without .gguf",
        help="name of each model for clients, in the order of -m",
    )
    n_ctx: int = setting(
        "-c",
        "--ctx-size",
        group=CONTEXT,
        read=Whole(0, 2**31 - 1),
        default=0,
        env="LLAMA_ARG_CTX_SIZE",
        unit="tokens",
        help="size of the context; 0 takes the model's",
    )
    n_batch: int = setting(
        "-b",
        "--batch-size",
        group=CONTEXT,
        read=Whole(1, 2**20),
        default=512,
        env="LLAMA_ARG_BATCH",
        unit="tokens",
        help="most tokens in one step; the device changes hands, and a request can be cancelled, only between two steps",
    )
    n_ubatch: int = setting(
        "-ub",
        "--ubatch-size",
        group=CONTEXT,
        read=Whole(1, 2**20),
        default=N_UBATCH,
        env="LLAMA_ARG_UBATCH",
        unit="tokens",
        help="most tokens in one computation; a longer step is divided; where not given, no more than --batch-size",
    )
    n_parallel: int = setting(
        "-np",
        "--parallel",
        group=CONTEXT,
        read=Whole(1, MAX_SLOTS, {"-1": -1, "auto": -1}),
        default=-1,
        env="LLAMA_ARG_N_PARALLEL",
        unit="slots",
        help="requests answered at the same time, per model; -1 is 4 with one shared KV cache",
    )
    kv_unified: bool | None = switch(
        "-kvu",
        "--kv-unified",
        off=("-no-kvu", "--no-kv-unified"),
        group=CONTEXT,
        default=None,
        env="LLAMA_ARG_KV_UNIFIED",
        default_text="on if -np is -1",
        help="one KV cache that all slots share, instead of equal parts",
    )
    swa_full: bool = switch(
        "--swa-full", group=CONTEXT, default=False, env="LLAMA_ARG_SWA_FULL", help="full-size cache for sliding-window layers"
    )
    flash_attn: str = setting(
        "-fa",
        "--flash-attn",
        group=CONTEXT,
        read=Choice(("on", "off", "auto")),
        default="auto",
        env="LLAMA_ARG_FLASH_ATTN",
        help="flash attention",
    )
    cache_type_k: str = setting(
        "-ctk",
        "--cache-type-k",
        group=CONTEXT,
        read=Choice(CACHE_TYPES),
        default="f16",
        env="LLAMA_ARG_CACHE_TYPE_K",
        help="type of the K cache",
    )
    cache_type_v: str = setting(
        "-ctv",
        "--cache-type-v",
        group=CONTEXT,
        read=Choice(CACHE_TYPES),
        default="f16",
        env="LLAMA_ARG_CACHE_TYPE_V",
        help="type of the V cache",
    )
    threads: int = setting(
        "-t",
        "--threads",
        group=CONTEXT,
        read=Whole(1, 512, {"-1": -1}),
        default=-1,
        env="LLAMA_ARG_THREADS",
        help="CPU threads for generation; -1: the cores that this process may use",
    )
    threads_batch: int = setting(
        "-tb",
        "--threads-batch",
        group=CONTEXT,
        read=Whole(1, 512, {"-1": -1}),
        default=-1,
        env="LLAMA_ARG_THREADS_BATCH",
        help="CPU threads for prompts; -1: the same as -t",
    )
    arena: Path | None = setting(
        "--arena",
        group=SHARING,
        read=FilePath("DIR"),
        default=None,
        env=("LSM_ARENA", "LLAMA_VRAM_ARENA"),
        default_text="$XDG_RUNTIME_DIR/lsm, else a private directory in /tmp",
        help="directory that all processes sharing the device name alike",
    )
    sleep_idle_seconds: float = setting(
        "--sleep-idle-seconds",
        group=SHARING,
        read=Number(0.0, words={"-1": -1.0}),
        default=-1.0,
        unit="s",
        help="leave device memory after this long without work; -1: only when another process waits",
    )
    sleep_evict_kv: bool = switch(
        "--sleep-evict-kv",
        group=SHARING,
        default=False,
        env=("LSM_SLEEP_EVICT_KV", "LLAMA_SLEEP_EVICT_KV"),
        help="a sleeping model's KV cache leaves device memory too; the CPU's goes to a file in LSM_SPILL_DIR (~/.cache/lsm-server/spill)",
    )
    vram_budget: int | str | None = setting(
        "--vram-budget",
        group=SHARING,
        read=SizeOrAuto(),
        default=None,
        env="LSM_VRAM_BUDGET",
        unit="bytes",
        default_text="none: one model at a time",
        help="let models stay in device memory side by side up to this size together; auto: the GPU's memory, less a margin",
    )
    shadow: str = setting(
        "--shadow",
        group=SHARING,
        read=Choice(SHADOWS),
        default="file",
        env="LSM_SHADOW",
        help="what weights come back from: the model's own file, pinned as far as --shadow-max permits; or a copy in host memory, made at"
        " the load, pinned or pageable",
    )
    shadow_max_bytes: int = setting(
        "--shadow-max",
        group=SHARING,
        read=Size(),
        default=-1,
        env="LSM_SHADOW_MAX",
        unit="bytes",
        default_text="half of the machine's memory",
        help="host memory that pinned parts of files, copies of weights and pinned room for the KV cache may take together in this process;"
        " what has no room comes from the file, more slowly",
    )
    min_hold_ms: int = setting(
        "--min-hold-ms",
        group=SHARING,
        read=Whole(0, 60_000),
        default=100,
        env="LSM_MIN_HOLD_MS",
        unit="ms",
        help="keep the device at least this long after waking",
    )
    quantum_ms: int = setting(
        "--quantum-ms",
        group=SHARING,
        read=Whole(0, 3_600_000),
        default=2000,
        env="LSM_QUANTUM_MS",
        unit="ms",
        help="hand the device on, even within an answer, once another has waited this long; 0: never within an answer",
    )

    loading: Loading = field(default_factory=Loading)
    placing: Placing = field(default_factory=Placing)
    computing: Computing = field(default_factory=Computing)
    batching: Batching = field(default_factory=Batching)
    keeping: Keeping = field(default_factory=Keeping)
    steering: Steering = field(default_factory=Steering)
    speculating: Speculating = field(default_factory=Speculating)

    options: Options = field(default_factory=Options)  # what a request that does not say otherwise gets
    grammar_file: Path | None = setting(
        "--grammar-file", group=GENERATION[0].group, read=FilePath(), default=None, help="file with the grammar"
    )
    json_schema_file: Path | None = setting(
        "-jf", "--json-schema-file", group=GENERATION[0].group, read=FilePath(), default=None, help="file with the JSON schema"
    )

    chat_template: str | None = setting(
        "--chat-template",
        group=CHAT,
        read=Text("JINJA"),
        default=None,
        env="LLAMA_ARG_CHAT_TEMPLATE",
        default_text="the model's own",
        help="text of the chat template",
    )
    chat_template_file: Path | None = setting(
        "--chat-template-file",
        group=CHAT,
        read=FilePath(),
        default=None,
        env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
        help="file with the chat template",
    )

    media: MediaSettings = field(default_factory=MediaSettings)

    host: str = setting(
        "--host",
        group=HTTP,
        read=Text("ADDRESS"),
        default="127.0.0.1",
        env="LLAMA_ARG_HOST",
        help="address to listen on, or several with commas; one that ends in .sock is a Unix socket",
    )
    port: int = setting(
        "--port", group=HTTP, read=Whole(0, 65535), default=8080, env="LLAMA_ARG_PORT", help="port to listen on; 0 takes a free one"
    )
    api_prefix: str = setting(
        "--api-prefix", group=HTTP, read=Prefix(), default="", env="LLAMA_ARG_API_PREFIX", help="path in front of every route"
    )
    api_keys: tuple[str, ...] = setting(
        "--api-key",
        group=HTTP,
        read=CommaList("KEY,.."),
        default=(),
        env="LLAMA_API_KEY",
        collect=flat,
        secret=True,
        default_text="none: no key is asked for",
        help="keys of which each request must carry one",
    )
    api_key_file: Path | None = setting(
        "--api-key-file",
        group=HTTP,
        read=FilePath(),
        default=None,
        env="LLAMA_ARG_API_KEY_FILE",
        help="file with one key a line; lines that start with # are comments",
    )
    timeout_s: int = setting(
        "-to",
        "--timeout",
        group=HTTP,
        read=Whole(1, 2**31 - 1),
        default=3600,
        env="LLAMA_ARG_TIMEOUT",
        unit="s",
        help="longest wait for a client to read or write",
    )
    sse_ping_interval_s: int = setting(
        "--sse-ping-interval",
        group=HTTP,
        read=Whole(1, 2**31 - 1, {"-1": -1}),
        default=30,
        env="LLAMA_ARG_SSE_PING_INTERVAL",
        unit="s",
        help="a silent stream is kept open by a comment this often; -1 is off",
    )
    metrics: bool = switch("--metrics", group=HTTP, default=False, env="LLAMA_ARG_ENDPOINT_METRICS", help="answer GET /metrics")
    props: bool = switch("--props", group=HTTP, default=False, env="LLAMA_ARG_ENDPOINT_PROPS", help="answer POST /props")
    slots: bool = switch("--slots", group=HTTP, default=True, env="LLAMA_ARG_ENDPOINT_SLOTS", help="answer GET /slots")
    ui: bool = switch("--ui", "--webui", group=HTTP, default=True, env="LLAMA_ARG_UI", help="answer GET / with the page")
    page_peers: tuple[str, ...] = setting(
        "--page-peers",
        group=HTTP,
        read=UrlList(),
        default=(),
        env="LSM_PAGE_PEERS",
        collect=flat,
        default_text="none",
        help="other servers of the same arena that the page shows beside this one",
    )

    log_file: Path | None = setting(
        "--log-file",
        group=LOG,
        read=FilePath(),
        default=None,
        env="LLAMA_ARG_LOG_FILE",
        default_text="standard error",
        help="where the log goes",
    )
    verbosity: int = setting(
        "-lv",
        "--verbosity",
        "--log-verbosity",
        group=LOG,
        read=Whole(0, 5),
        default=3,
        env="LLAMA_ARG_LOG_VERBOSITY",
        constants={"-v": "5", "--verbose": "5", "--log-verbose": "5"},
        help="1 errors, 2 warnings, 3 what happens, 4 and 5 more and more of the inside; 0 nothing",
    )

    given: frozenset[str] = frozenset()  # names of the settings that the user spelled out; filled by parse_arguments
    warnings: tuple[str, ...] = ()  # what the user should hear at start; filled by parse_arguments

    def __post_init__(self) -> None:
        check_together(self)

    def options_for(self, model: Sequence[tuple[str, Any]]) -> Options:
        """What a request gets that says nothing.  `model`: fields of Sampling, and what the model file says of them."""
        return with_model_defaults(self.options, self.given, model)

    @property
    def models(self) -> tuple[ModelSource, ...]:
        names = self.aliases or tuple(path.name.removesuffix(".gguf") for path in self.model_paths)
        projectors = self.media.projectors(len(self.model_paths))
        return tuple(map(ModelSource, self.model_paths, names, projectors))


SETTINGS: tuple[Setting, ...] = (
    *settings_of(Settings), *MEDIA, *PLACING, *TUNING, *STEERING, *SPECULATING, *BATCHING, *KEEPING, *GENERATION,
)  # fmt: skip
BY_SPELLING = {spelling: entry for entry in SETTINGS for spelling in entry.spellings}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(entry.group for entry in SETTINGS))
