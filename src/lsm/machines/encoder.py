"""The encoder of images and sound comes into device memory just in time, and leaves at once (S5).

One batch of media is one window:  host -> (no room: the weights leave) -> the encoder comes -> encode -> the encoder leaves -> (the
weights come back) -> host.  The encoder has left before the weights return, so the two are never on the device together where they do
not fit together.  The KV cache stays where it is all the time.  Becoming awake does not bring the encoder in, nor does a text.

The engine thread performs the effects within one step, so nothing else looks at the memory meanwhile.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine, ignoring

ENCODER = Machine(
    name="encoder",
    initial="absent",
    states={
        "absent": "the model has no projector, or it is not loaded yet",
        "clearing": "the weights are leaving, so that the projector can be loaded",
        "arriving": "the projector is being loaded, beside the weights",
        "arriving_alone": "the projector is being loaded, in place of the weights",
        "settling": "the projector is loaded, and its encoder is leaving; the weights are there",
        "settling_alone": "the projector is loaded, and its encoder is leaving; the weights have left",
        "refilling": "the weights are coming back after the load",
        "host": "the encoder is in host memory: nothing is being encoded",
        "evicting": "the weights are leaving, so that the encoder can come",
        "entering": "the encoder is coming, beside the weights",
        "entering_alone": "the encoder is coming, in place of the weights",
        "encoding": "a batch is being encoded, beside the weights",
        "encoding_alone": "a batch is being encoded, in place of the weights",
        "leaving": "the encoder is leaving; the weights are there",
        "leaving_alone": "the encoder is leaving; the weights have left",
        "returning": "the weights are coming back",
        "lost": "the weights did not come back, or the encoder did not leave: nothing runs until the model has slept; or its file is "
        "another one: until the model has been freed",
        "resident": "the encoder stays in device memory while the model is awake; nothing is being encoded",
        "serving": "a batch is being encoded by an encoder that stays",
    },
    facts={
        "fits": "the device has room for the encoder beside what is there",
        "fits_alone": "the device has room for the encoder in place of the weights",
        "for_room": "it failed because the device has no room for it",
        "changed": "it failed because the projector's file is not the one that was loaded",
        "on_demand": "the encoder is in device memory only while it encodes (--mmproj-ondemand)",
    },
    effects={
        "open": "load the projector -> opened | open_failed",
        "fail_open": "the load of the model fails: the device has no room for the projector, or its file is wrong",
        "release_weights": "free the weights; the file is their copy -> weights_left | leave_failed",
        "restore_weights": "-> weights_entered | enter_failed",
        "release_encoder": "free the encoder; the file is its copy -> left | leave_failed",
        "restore_encoder": "-> entered | enter_failed",
        "run": "encode the batch; its embeddings are in host memory then -> encoded | encode_failed",
        "fail_media": "the request whose media these are ends with 500; the others are served",
        "report_lost": "residency: weights_lost",
        "report_changed": "load: source_changed; all requests end with 503, and the next load reads the file that is there then",
    },
    edges=(
        E("absent", "arrive", "arriving", when=("fits",), do=("open",)),
        E("absent", "arrive", "clearing", when=("!fits", "fits_alone"), do=("release_weights",)),
        E("absent", "arrive", "absent", when=("!fits", "!fits_alone"), do=("fail_open",)),
        E("clearing", "weights_left", "arriving_alone", do=("open",)),
        E("clearing", "leave_failed", "absent", do=("fail_open",)),
        E("arriving", "opened", "settling", when=("on_demand",), do=("release_encoder",)),
        E("arriving", "opened", "resident", when=("!on_demand",)),
        E("arriving", "open_failed", "absent", do=("fail_open",)),
        E("arriving_alone", "opened", "settling_alone", when=("on_demand",), do=("release_encoder",)),
        E("arriving_alone", "opened", "absent", when=("!on_demand",), do=("fail_open",), why="it could not stay beside the weights"),
        E("arriving_alone", "open_failed", "absent", do=("fail_open",)),
        E("settling", "left", "host"),
        E("settling", "leave_failed", "absent", do=("fail_open",)),
        E("settling_alone", "left", "refilling", do=("restore_weights",)),
        E("settling_alone", "leave_failed", "absent", do=("fail_open",)),
        E("refilling", "weights_entered", "host"),
        E("refilling", "enter_failed", "absent", do=("fail_open",)),
        E("host", "encode", "entering", when=("fits",), do=("restore_encoder",)),
        E("host", "encode", "evicting", when=("!fits", "fits_alone"), do=("release_weights",)),
        E("host", "encode", "host", when=("!fits", "!fits_alone"), do=("fail_media",), why="it would be more than the budget"),
        E("evicting", "weights_left", "entering_alone", do=("restore_encoder",)),
        E("evicting", "leave_failed", "host", do=("fail_media",)),
        E("entering", "entered", "encoding", do=("run",)),
        E("entering", "enter_failed", "evicting", when=("for_room", "!changed"), do=("release_weights",), why="it did not fit after all"),
        E("entering", "enter_failed", "lost", when=("changed",), do=("report_changed",), why="it would fail for ever"),
        E("entering", "enter_failed", "host", when=("!for_room", "!changed"), do=("fail_media",), why="its file cannot be read, perhaps"),
        E("entering_alone", "entered", "encoding_alone", do=("run",)),
        E("entering_alone", "enter_failed", "lost", when=("changed",), do=("report_changed",)),
        E("entering_alone", "enter_failed", "returning", when=("!changed",), do=("fail_media", "restore_weights"), why="no room at all"),
        E("encoding", "encoded", "leaving", do=("release_encoder",)),
        E("encoding", "encode_failed", "leaving", do=("fail_media", "release_encoder")),
        E("encoding_alone", "encoded", "leaving_alone", do=("release_encoder",)),
        E("encoding_alone", "encode_failed", "leaving_alone", do=("fail_media", "release_encoder")),
        E("leaving", "left", "host"),
        E("leaving", "leave_failed", "lost", do=("report_lost",), why="an encoder that stays would be in the way of everything"),
        E("leaving_alone", "left", "returning", do=("restore_weights",), why="only now: the peak is the larger of the two"),
        E("leaving_alone", "leave_failed", "lost", do=("report_lost",)),
        E("returning", "weights_entered", "host"),
        E("returning", "enter_failed", "lost", do=("report_lost",), why="the device may have room after another turn in the line"),
        E("lost", "woken", "host"),
        E("resident", "encode", "serving", do=("run",)),
        E("serving", "encoded", "resident"),
        E("serving", "encode_failed", "resident", do=("fail_media",)),
        E("host", "freed", "absent"),
        E("resident", "freed", "absent"),
        E("lost", "freed", "absent"),
    ),
    ignores=ignoring("woken", "absent", "host", "resident") | ignoring("freed", "absent"),
)
