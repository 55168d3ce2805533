"""Values by the names of settings into Settings, whose parts are dataclasses of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lsm.batching import Batching
from lsm.config.media import MediaSettings
from lsm.config.settings import N_UBATCH, Settings
from lsm.keeping import Keeping
from lsm.speculating import Speculating
from lsm.tuning import Computing, Loading, Placing, Steering
from lsm.values import Options, Sampling


def build_settings(values: Mapping[str, Any]) -> Settings:
    """Dotted names are fields of a part: `options.sampling.top_k`.  Raises ConfigError for values that contradict each other."""
    sampling = replace(Sampling(), **_under("options.sampling.", values))
    return Settings(
        options=replace(Options(sampling=sampling), **_under("options.", values)),
        media=replace(MediaSettings(), **_under("media.", values)),
        loading=replace(Loading(), **_under("loading.", values)),
        placing=replace(Placing(), **_under("placing.", values)),
        computing=replace(Computing(), **_under("computing.", values)),
        batching=replace(Batching(), **_under("batching.", values)),
        keeping=replace(Keeping(), **_under("keeping.", values)),
        steering=replace(Steering(), **_under("steering.", values)),
        speculating=replace(Speculating(), **_under("speculating.", values)),
        **_under("", {"n_ubatch": min(N_UBATCH, values.get("n_batch", N_UBATCH)), **values}),
    )


def _under(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values whose name is `prefix` and one word."""
    stripped = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    return {name: value for name, value in stripped.items() if "." not in name}
