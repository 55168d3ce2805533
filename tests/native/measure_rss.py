"""Memory of this process around a release, as the kernel counts it, in JSON: `python -m tests.native.measure_rss MODEL N_CTX KIND`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lsm.native.library import lib
from lsm.native.model import Model
from tests.native.runner import ON_THE_CPU, Runner, open_context, prompt_tokens


def rss_bytes() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no Rss line in smaps_rollup")


def main(path: str, n_ctx: int, addresses: str) -> dict[str, int]:
    lib.lsm_device_let_cpu_buffers_move(addresses == "moving")
    with Model.load(path, 1, placing=ON_THE_CPU) as model:
        context = open_context(model, n_ctx=n_ctx, n_seq_max=1, n_batch=n_ctx, flash_attn="on", type_k="f32", type_v="f32")
        Runner(model, context).prompt(0, prompt_tokens(model, n_ctx, 1))
        found = {"weights": model.memory.bytes("weights").device, "kv": model.memory.bytes("kv").device, "loaded": rss_bytes()}
        model.memory.release("weights")
        found["without_weights"] = rss_bytes()
        model.memory.release("kv")
        found["kv_used"] = model.memory.bytes("kv").file
        found["without_kv"] = rss_bytes()
        model.memory.restore("weights", "kv")
        found["back"] = rss_bytes()
        return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
