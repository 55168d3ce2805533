"""Settings of images and sound: the projectors that go with the models, and where media may come from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from lsm.config.readers import FilePath, Whole
from lsm.config.setting import Setting, setting, settings_of, switch

GROUP = "Images and sound"


@dataclass(frozen=True, slots=True)
class OneDevice:
    metavar: str = "DEVICE"

    def __call__(self, text: str) -> str:
        if not text.strip() or "," in text:
            raise ValueError("is not one device: only one device may be specified for mmproj")
        return text.strip()


@dataclass(frozen=True, slots=True)
class MediaSettings:
    mmproj_paths: tuple[Path, ...] = setting(
        "-mm",
        "--mmproj",
        group=GROUP,
        read=FilePath(),
        default=(),
        env="LLAMA_ARG_MMPROJ",
        collect=tuple,
        default_text="none: text only",
        help="projector that lets a model see or hear, one for each -m in its order ('none' for one without), or one for the only model",
    )
    mmproj_enabled: bool = switch(
        "--mmproj-auto", group=GROUP, default=True, env="LLAMA_ARG_MMPROJ_AUTO", off=("--no-mmproj", "--no-mmproj-auto"),
        help="use the projectors of --mmproj; --no-mmproj leaves them out",
    )  # fmt: skip
    mmproj_ondemand: bool = switch(
        "--mmproj-ondemand",
        group=GROUP,
        default=False,
        env=("LSM_MMPROJ_ONDEMAND", "LLAMA_MMPROJ_ONDEMAND"),
        help="an encoder is in device memory only while it encodes; where it does not fit beside the weights, they make room for it",
    )
    mmproj_offload: bool = switch(
        "--mmproj-offload", group=GROUP, default=True, env="LLAMA_ARG_MMPROJ_OFFLOAD", help="encode on the model's device, not on the CPU"
    )
    mmproj_device: str = setting(
        "-mmdev",
        "--mmproj-device",
        group=GROUP,
        read=OneDevice(),
        default="",
        env="MTMD_BACKEND_DEVICE",
        default_text="the model's",
        help="encode on this device; none is the CPU",
    )
    image_min_tokens: int = setting(
        "--image-min-tokens",
        group=GROUP,
        read=Whole(1, 2**20, {"-1": -1}),
        default=-1,
        env="LLAMA_ARG_IMAGE_MIN_TOKENS",
        unit="tokens",
        default_text="the projector's",
        help="for models that take images of any size: enlarge smaller ones",
    )
    image_max_tokens: int = setting(
        "--image-max-tokens",
        group=GROUP,
        read=Whole(1, 2**20, {"-1": -1}),
        default=-1,
        env="LLAMA_ARG_IMAGE_MAX_TOKENS",
        unit="tokens",
        default_text="the projector's",
        help="likewise: shrink larger ones",
    )
    mtmd_batch_max_tokens: int = setting(
        "--mtmd-batch-max-tokens",
        group=GROUP,
        read=Whole(1, 2**20),
        default=1024,
        env="LLAMA_ARG_MTMD_BATCH_MAX_TOKENS",
        unit="tokens",
        help="most tokens of images that are encoded in one go; a single image may have more",
    )
    media_path: Path | None = setting(
        "--media-path",
        group=GROUP,
        read=FilePath("DIR"),
        default=None,
        default_text="none",
        help="folder from which requests may name files as file://NAME",
    )
    media_private_urls: bool = switch(
        "--media-private-urls",
        group=GROUP,
        default=False,
        env="LSM_MEDIA_PRIVATE_URLS",
        help="let requests name URLs of this machine and of private networks, too",
    )

    @property
    def encodes_on(self) -> str:
        """Name of a device; "": the model's own, "none": the CPU."""
        return self.mmproj_device if self.mmproj_offload else "none"

    def projectors(self, n_models: int) -> tuple[Path | None, ...]:
        """For each of the models, in order."""
        if not self.mmproj_enabled or not self.mmproj_paths:
            return (None,) * n_models
        return tuple(None if str(path) == "none" else path for path in self.mmproj_paths)


MEDIA: tuple[Setting, ...] = tuple(dataclasses.replace(entry, name=f"media.{entry.name}") for entry in settings_of(MediaSettings))
