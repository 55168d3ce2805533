"""Mistakes around an encoder that comes just in time: in its table, in that of residency, or in how the engine joins them."""

from __future__ import annotations

from lsm.machines.encoder import ENCODER
from lsm.machines.residency import RESIDENCY
from specs.planting import at, in_encoder, without
from specs.worlds.encoder import Scenario

PEAK = "the peak is within the budget"
ONLY_FOR_MEDIA = "an encoder on demand is on the device only for media"
HAS_WEIGHTS = "an awake model has its weights, or gives them up for media, or stands still"
RESIDENT = Scenario(on_demand=False, budget=8)

ENCODERS = (
    in_encoder("the weights come back before the encoder has left", "S5", PEAK, 12,
               at(at(ENCODER, "encoding_alone", "encoded", target="returning", do=("restore_weights",)),
                  "returning", "weights_entered", target="leaving", do=("release_encoder",))),
    in_encoder("the weights come back although the encoder failed and is still there", "S5", PEAK, 12,
               at(ENCODER, "encoding_alone", "encode_failed", target="returning", do=("fail_media", "restore_weights"))),
    in_encoder("the encoder comes before the weights have left", "S5", PEAK, 9,
               at(ENCODER, "host", "encode", "!fits", "fits_alone", target="entering", do=("restore_encoder",))),
    in_encoder("the projector is loaded beside weights that leave no room for it", "S5", PEAK, 2,
               at(ENCODER, "absent", "arrive", "!fits", "fits_alone", target="arriving", do=("open",))),
    in_encoder("the encoder stays behind after its batch", "S5", ONLY_FOR_MEDIA, 8,
               at(ENCODER, "encoding", "encoded", target="host", do=()), scenario=Scenario(budget=8)),
    in_encoder("becoming awake brings the encoder in", "S5", PEAK, 9,
               at(RESIDENCY, "away", "enter", "!encoder_stays", do=("restore_with_encoder",))),
    in_encoder("going cold leaves the encoder behind", "S5", "a model that is away has left the device", 5,
               at(RESIDENCY, "resident", "leave", do=("release_compute", "release_weights", "release_kv", "report_left")),
               scenario=RESIDENT),
    in_encoder("a text brings the encoder in", "S5", "the encoder comes for media alone", 8, mistake="a text brings the encoder in"),
    in_encoder("the KV cache makes room, too", "S5", "the KV cache and the compute buffers stay while the model is awake", 9,
               mistake="the KV cache makes room, too"),
    in_encoder("an encoder that does not fit leaves the model without weights", "S5", HAS_WEIGHTS, 10,
               at(ENCODER, "entering_alone", "enter_failed", "!changed", target="host", do=("fail_media",))),
    in_encoder("nobody hears that the weights did not come back", "S5", HAS_WEIGHTS, 11, at(ENCODER, "returning", "enter_failed", do=())),
    in_encoder("a model without its weights waits for ever", "S5", "a request", 12, at(RESIDENCY, "resident", "weights_lost", do=())),
    in_encoder("a batch runs while the weights are lost", "S5", "a batch runs only with everything on the device", 13,
               mistake="a batch runs while the weights are lost"),
    in_encoder("an encoder is lost for good", "S5", "a request", 14, without(ENCODER, ("lost", "woken"), ignored=True)),
    in_encoder("an encoder comes that is larger than the room that the weights leave", "S5", PEAK, 10,
               at(ENCODER, "host", "encode", "!fits", "!fits_alone", target="evicting", do=("release_weights",)),
               scenario=Scenario(encoder_size=4)),
    in_encoder("a model is freed in the middle of a loss", "S5", "no event is refused", 12, without(RESIDENCY, ("hollow", "freed"))),
)  # fmt: skip
