"""Flags of the devices that hold a model, and of what its memory is copied to: `lsm.tuning.Placing` and two of the process."""

from __future__ import annotations

from lsm.config.placing_readers import DeviceNames, Shares
from lsm.config.readers import Choice, Whole
from lsm.config.setting import Setting
from lsm.config.tuning import tuning_entry
from lsm.tuning import SPLIT_MODES

DEVICES = "Devices"
LAYERS_MAX = 100_000

PLACING: tuple[Setting, ...] = (
    tuning_entry(
        "devices",
        "-dev",
        "--device",
        group=DEVICES,
        read=DeviceNames(),
        env="LLAMA_ARG_DEVICE",
        default_text="every GPU whose memory can leave and come back",
        help="devices for the model, as --list-devices names them; none: the CPU alone",
    ),
    tuning_entry(
        "gpu_layers",
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        group=DEVICES,
        read=Whole(0, LAYERS_MAX, {"auto": -1, "all": -1, "-1": -1}),
        env="LLAMA_ARG_N_GPU_LAYERS",
        default_text="auto: all",
        help="layers that go to the GPUs, from the last one on; the rest stay in the CPU's memory, and are not moved",
    ),
    tuning_entry(
        "split_mode",
        "-sm",
        "--split-mode",
        group=DEVICES,
        read=Choice(SPLIT_MODES),
        env="LLAMA_ARG_SPLIT_MODE",
        help="with several GPUs: whole layers to each (layer), parts of each layer to all (row, tensor), or all on one (none)",
    ),
    tuning_entry(
        "tensor_split",
        "-ts",
        "--tensor-split",
        group=DEVICES,
        read=Shares(),
        env="LLAMA_ARG_TENSOR_SPLIT",
        default_text="by free memory",
        help="how much each GPU takes, in proportion: 3,1",
    ),
    tuning_entry(
        "main_gpu",
        "-mg",
        "--main-gpu",
        group=DEVICES,
        read=Whole(0, 1000),
        env="LLAMA_ARG_MAIN_GPU",
        help="the GPU for all of it with --split-mode none, counted in the list of --device",
    ),
)
