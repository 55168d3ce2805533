"""Flags of llama-server that lsm-server knows and does not have, each with the reason.

A flag that would do nothing is refused, never swallowed.
"""

from __future__ import annotations

from collections.abc import Mapping

_NOT_YET = "is not supported yet"
_LOCAL = "is not supported: models are local files here. Name one with -m FILE, or fetch a demo model with `lsm pull NAME`"
_ALWAYS_ON = "is not needed: it is always on here. Leave it away"
_GONE = "is gone: llama-server replaced it by"
_OPENMP = "is not supported: OpenMP runs the threads"
_REMOVED = "was removed by llama-server:"
_DRAFT_THREADS = "is not supported: the draft model is computed by the threads of the model, see --cpu-mask and --prio"

_REASONS: tuple[tuple[str, str], ...] = (
    ("-mu --model-url -hf -hfr --hf-repo -hff --hf-file -hft --hf-token -dr --docker-repo --offline -cl --cache-list", _LOCAL),
    ("--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec", _LOCAL),
    ("--fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default", _LOCAL),
    ("--vision-gemma-4b-default --vision-gemma-12b-default", _LOCAL),
    ("--mmap", f"{_GONE} --load-mode mmap"),
    ("--no-mmap --no-direct-io", f"{_GONE} --load-mode none"),
    ("-dio --direct-io", f"{_GONE} --load-mode dio"),
    ("--mlock", f"{_GONE} --load-mode mlock, which is refused here: locked memory cannot be given back"),
    ("--tensor-read-lazy", f"{_GONE} --lazy-mode"),
    ("--rpc", "is not supported: memory of another machine cannot leave and come back"),
    ("--numa", _NOT_YET),
    ("-fitp --fit-print", "is a tool of llama.cpp's: the log of the load says what was fitted"),
    ("-Cb --cpu-mask-batch -Crb --cpu-range-batch", "is not supported: the threads of prompts are those of generation, see --cpu-mask"),
    ("--prio-batch", "is not supported: the threads of prompts are those of generation, see --prio"),
    ("--cpu-strict --cpu-strict-batch", f"{_OPENMP}: OMP_PROC_BIND=true in the environment gives each thread a CPU of its own"),
    ("--poll --poll-batch", f"{_OPENMP}: GOMP_SPINCOUNT in the environment says how long they wait before they sleep"),
    ("--perf --no-perf", _NOT_YET),
    ("-dt --defrag-thold", "is gone: llama.cpp ignores it"),
    ("--jinja", _ALWAYS_ON),
    ("--no-jinja", "is not supported: chat templates are Jinja here"),
    ("-e --escape --no-escape", _NOT_YET),
    ("-mmu --mmproj-url", "is not supported: models are local files here. Name the projector with --mmproj FILE"),
    ("--video-fps --video-timestamp-interval --video-ffmpeg-dir", f"{_NOT_YET} (video)"),
    ("--tags --reuse-port --path --threads-http --log-prompts-dir", _NOT_YET),
    ("--cors-origins --cors-methods --cors-headers --cors-credentials --no-cors-credentials", _NOT_YET),
    ("--ssl-key-file --ssl-cert-file", f"{_NOT_YET}: put a reverse proxy with TLS in front"),
    ("--ui-config --ui-config-file --webui-config --webui-config-file --ui-mcp-proxy --no-ui-mcp-proxy", _NOT_YET),
    ("--webui-mcp-proxy --no-webui-mcp-proxy", _NOT_YET),
    ("--tools --tools-runtime -ag --agent -no-ag --no-agent --mcp-servers-config --mcp-servers-json", f"{_NOT_YET} (tools on the server)"),
    ("--models-dir --models-preset --models-max --models-autoload --no-models-autoload", f"{_NOT_YET}: repeat -m for each model"),
    ("--chat-template-kwargs --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant", _NOT_YET),
    ("--reasoning-format -rea --reasoning --reasoning-effort --reasoning-budget --reasoning-budget-message", f"{_NOT_YET} (reasoning)"),
    ("--reasoning-preserve --no-reasoning-preserve", f"{_NOT_YET} (reasoning)"),
    ("--spec-draft-hf -hfd -hfrd --hf-repo-draft", "is not supported: models are local files here. Name the draft model with -md FILE"),
    ("--spec-draft-sampling", f"{_NOT_YET}: a guess is the draft model's likeliest token, and is right if the model draws the same"),
    ("--spec-draft-p-split --draft-p-split", "is not needed: it is about trees of guesses, which only an example of llama.cpp's draws"),
    ("--spec-draft-backend-sampling --no-spec-draft-backend-sampling", "is not needed: for draft-simple it does nothing in llama-server"),
    ("--spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft", _DRAFT_THREADS),
    ("--spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft", _DRAFT_THREADS),
    ("--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft --spec-draft-cpu-range-batch -Crbd", _DRAFT_THREADS),
    ("--cpu-range-batch-draft --spec-draft-cpu-strict-batch --cpu-strict-batch-draft --spec-draft-prio-batch", _DRAFT_THREADS),
    ("--prio-batch-draft --spec-draft-poll-batch --poll-batch-draft", _DRAFT_THREADS),
    ("--draft --draft-n --draft-max", f"{_REMOVED} use --spec-draft-n-max or --spec-ngram-mod-n-max"),
    ("--draft-min --draft-n-min", f"{_REMOVED} use --spec-draft-n-min or --spec-ngram-mod-n-min"),
    ("--spec-ngram-size-n", f"{_REMOVED} use the --spec-ngram-*-size-n of the kind, or --spec-ngram-mod-n-match"),
    ("--spec-ngram-size-m", f"{_REMOVED} use the --spec-ngram-*-size-m of the kind"),
    ("--spec-ngram-min-hits", f"{_REMOVED} use the --spec-ngram-*-min-hits of the kind"),
    ("--log-disable", "is not supported: use --verbosity 0"),
    ("--log-jsonl --no-log-jsonl --log-colors --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps", _NOT_YET),
    ("--completion-bash --usage", _NOT_YET),
)

REFUSED: Mapping[str, str] = {flag: reason for flags, reason in _REASONS for flag in flags.split()}
