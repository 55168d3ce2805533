"""What stands for each property and each known fault: planted mistakes, claims, tests; or why nothing does.

A planted mistake whose `about`, and a test whose docstring, has the name of a row stands for it without being listed here.
"""

from __future__ import annotations

# Evidence: the name of a planted mistake or of a claim, a test as "file::name" below tests/, or "not modelled: why".
Evidence = tuple[str, ...]

ROUTER = "not modelled: the router does not exist yet"
QUESTIONS = "runtime/test_owner.py::test_questions_are_answered_and_change_nothing_while_the_token_is_waited_for"
BIT_FOR_BIT = "native/test_cycles.py::test_all_memory_comes_back_bit_for_bit"
LEAVES_PROCESS = "native/test_rss.py::test_weights_and_a_used_cache_leave_the_process"
CALLED_OFF = "engine/test_engine.py::test_a_load_can_be_stopped_and_tried_again"
FORGOTTEN = "demand that came while falling asleep is forgotten"
LOST_WAKE_UP = "runtime/test_owner.py::test_a_task_posted_while_falling_asleep_wakes_the_model"

PROPERTIES: dict[str, tuple[str, Evidence]] = {
    "P1": (
        "one owner performs every step; all else is an event",
        ("every table is total, unambiguous and alive", "owner, 2 clients, explorer"),
    ),
    "P2": ("every wait lists its exits; every end wakes all who wait", ("owner, 2 clients, nothing lasts for ever, SPIN",)),
    "P3": ("check and claim are one step", ("line, 3 processes, explorer", "budget, 3 processes, two fit, explorer")),
    "P4": ("demand is registered before work, and guards sleep", ("owner, 2 clients, explorer", FORGOTTEN)),
    "P5": ("no livelock", ("budget, who waits comes to be awake", "the minimum hold is not asked for")),
    "P6": (
        "old generations are not heard",
        ("a back-off that was called off still rings", "a model is freed without the answer to a move under way"),
    ),
    "P7": ("success says what is", ("sleep releases nothing", "awake is told before the memory is back", LEAVES_PROCESS)),
    "P8": (
        "sleep and wake: idempotent, atomic, any number of times",
        ("a second sleep is refused", "a failed restore keeps what it took", BIT_FOR_BIT),
    ),
    "P9": ("no dead end: each failure leads back", ("failed is for ever", "owner, 1 client, load, unload, wake and sleep calls, explorer")),
    "P10": (
        "an index entry dies with its bytes",
        (
            "a cached prompt that cannot be put back leaves its rubbish",
            "engine/test_steering.py::test_a_cache_that_other_scales_made_is_not_used",
        ),
    ),
    "P11": (
        "budgets are bytes, and everything is charged",
        ("budget, 2 processes, one fits, explorer", "runtime/test_budget.py::test_room_for_an_encoder_is_charged_or_refused_at_once"),
    ),
    "P12": (
        "memory on the device only with the token, or in the ledger; owners die",
        ("line, 3 processes, explorer", "the token goes before the memory"),
    ),
    "P13": (
        "cancel is local, total, prompt, leaks nothing",
        ("slots, 2 slots, three requests, explorer", "a cancelled request keeps its slot"),
    ),
    "P14": (
        "nothing of what was stopped is alive",
        ("cli/test_demo.py::test_killed_supervisor_takes_its_servers_along", "not modelled: children have no machine yet"),
    ),
    "P15": ("looking changes nothing", (QUESTIONS, "transports/http/test_states.py::test_looking_at_a_sleeping_model_does_not_wake_it")),
    "P16": (
        "everything is bounded",
        ("a batch stays halved", "transports/http/test_guards.py::test_a_body_over_the_limit_is_refused_and_drained"),
    ),
    "P17": (
        "what cannot be honoured is refused",
        (
            "cli/test_arguments.py::test_unknown_flag_names_the_nearest",
            "cli/test_arguments.py::test_file_of_keys_without_a_key_does_not_open_the_server",
        ),
    ),
    "P18": (
        "words from outside never gain meaning",
        (
            "chat/test_media.py::test_the_marker_cannot_be_guessed",
            "runtime/test_media_source.py::test_private_addresses_are_refused_before_anything_is_sent",
        ),
    ),
    "P19": (
        "equal to the reference",
        (
            "engine/test_stashing.py::test_the_cache_never_changes_an_answer",
            "runtime/test_host.py::test_sleep_in_the_middle_of_an_answer_changes_no_token",
        ),
    ),
    "P20": (
        "costs have a ceiling",
        (
            "a full list takes no new snapshot",
            "native/test_cycles.py::test_the_cost_of_kv_follows_its_use",
        ),
    ),
}

REQUIREMENTS: dict[str, tuple[str, Evidence]] = {
    "S1": (
        "waiting is a lock: rings (a)-(e), order, a blocked loop (f)",
        (QUESTIONS, "a ticket leads to the token: must fail: a lost ring and nobody looks now and then"),
    ),
    "S2": ("both lost wake-ups", (FORGOTTEN, LOST_WAKE_UP)),
    "S3": ("the minimum hold", ("the minimum hold is not asked for",)),
    "S4": (
        "no wake-ups while idle",
        ("arena/test_wait.py::test_no_wake_up_while_waiting", "not modelled: time is measured on the program"),
    ),
    "S5": ("the encoder's order", ("encoder that takes turns with the weights, explorer",)),
    "S6": ("the KV cache is back before anything looks at it", ("the KV cache comes back after the wake",)),
    "S7": ("the token before the first byte", ("a model is loaded without the token",)),
    "S8": ("requests wake with idle sleep off", ("requests do not wake while idle sleep is off",)),
    "S9": (
        "the KV cache leaves and returns",
        ("the end of a release is not reported", "native/test_cycles.py::test_the_contents_of_the_cache_stay_the_same"),
    ),
    "S10": ("resident if and only if the token is held", ("line, 2 processes, explorer",)),
    "S11": ("spacing of snapshots", ("snapshots, 1 slot, explorer",)),
    "S12": ("a queue for models that never hangs", (ROUTER,)),
}

FAULTS: dict[str, tuple[str, Evidence]] = {
    "A3": ("memory grows with each cycle", (BIT_FOR_BIT,)),
    "A4": ("a later wake fails where the first worked", (BIT_FOR_BIT,)),
    "A5": ("a sleeper still holds device memory", (LEAVES_PROCESS,)),
    "A6": ("a wake without room never recovers", ()),
    "A7": ("routes hang or crash while asleep", (QUESTIONS, "transports/test_door.py::test_a_request_wakes_a_sleeping_model")),
    "A9": ("a wake brings back only a part", ()),
    "A10": ("a pass runs while a part is away", ()),
    "A11": ("memory leaves under a running stream", ()),
    "A12": ("what was accepted while falling asleep waits for ever", (FORGOTTEN, LOST_WAKE_UP)),
    "A13": ("a failed wake keeps what it took", ()),
    "A14": ("sleep or wake twice is an error", ()),
    "A15": ("the release is told before the memory is free", ("the token is told before the memory has left",)),
    "A16": ("a sleep frees nothing", ()),
    "A17": ("the sweeper puts to sleep what is being woken", ()),
    "A18": ("host memory is not given back", (LEAVES_PROCESS,)),
    "B4": ("evicted between ready and its first request", ("a model is sent away within its minimum hold", ROUTER)),
    "B5": ("a cancelled waiter blocks the rest", ()),
    "B6": ("a request for one kills a stream of another", ("memory leaves under a running batch", ROUTER)),
    "B7": ("a model that loads is chosen as victim; stop is not heard", (CALLED_OFF, ROUTER)),
    "B8": ("two models evict each other before serving", ("the minimum hold is not started", "line, 2 processes, explorer")),
    "B9": ("one huge model keeps all others out", ()),
    "B10": ("a crashed child stays listed as loaded", (ROUTER,)),
    "B11": ("a preset without a model starts a router", (ROUTER,)),
    "B12": ("unloaded on purpose is shown as failed", ("runtime/test_owner_faults.py::test_a_load_that_is_called_off_is_no_warning",)),
    "B13": ("time limits are ignored or misread", (ROUTER,)),
    "B14": ("stop does nothing while a model loads", ()),
    "B15": ("slot files through the router fail", (ROUTER,)),
    "B16": ("a key is valid on some routes only", ("transports/http/test_routes.py::test_keys", ROUTER)),
    "B17": ("a child survives its end", (ROUTER,)),
    "B18": ("the router itself takes device memory", (ROUTER,)),
    "C1": ("two starts for one model", (ROUTER,)),
    "C2": ("a request while stopping is lost", (FORGOTTEN, LOST_WAKE_UP)),
    "C5": ("what has just become ready is unloaded at once", ("the idle timer puts a model to sleep that somebody has just woken",)),
    "C6": ("failed is for ever", ()),
    "C7": ("a start that fails tells nobody", ()),
    "C8": ("a wrapper's children survive", ("not modelled: children have no machine yet",)),
    "C9": ("the memory of the dead", ()),
    "C10": ("a container runs on after the stop", ("not modelled: children have no machine yet",)),
    "C11": ("a queue cut in two by one request", (ROUTER,)),
    "C12": ("a load that nobody wants any more goes on", ("a load that was called off is granted", CALLED_OFF)),
    "C14": ("a stopping target is not counted as alive", (ROUTER,)),
    "C15": ("a victim gets a new request and lives on", ("a busy model is never sent away", ROUTER)),
    "C16": ("steady traffic blocks a change for ever", ("a ticket leads to the token: must fail: a holder that yields only when idle",)),
    "C17": ("read after it was unloaded", ("native/test_failures.py::test_a_model_is_freed_while_its_memory_is_away",)),
    "C18": ("an event of an old life acts on the new one", ()),
    "C20": ("a stop waits for a runaway answer", ("runtime/test_host.py::test_closing_ends_running_answers_with_an_error",)),
    "C22": ("another context size reloads every time", (ROUTER,)),
    "C23": (
        "waits for memory that is free already",
        ("runtime/test_owner_faults.py::test_a_load_waits_for_the_memory_of_a_dead_peer_too",),
    ),
    "C25": ("a cache that no budget has", ("engine/test_prompt_cache.py::test_what_is_larger_than_the_limit_disturbs_nothing",)),
    "C26": ("a slow load is killed though it goes on", ("not modelled: a load has no deadline; it can be called off",)),
    "C27": ("whoever kills waits for the victim", (ROUTER,)),
    "C29": ("an unknown name goes to an empty server", ("transports/http/test_routes.py::test_unknown_model_names_the_known_ones",)),
    "C30": (
        "success is told before the change",
        ("awake is told before the memory is back", "transports/http/test_states.py::test_sleep_and_wake_by_name"),
    ),
    "C31": ("questions wait while a model starts", (QUESTIONS,)),
    "C32": ("a request ends another one", ("a slot is given to two requests",)),
    "D1": ("a child keeps the lock", ()),
    "D2": ("a child lets go of the lock", ()),
    "D3": ("the lock is free while memory is not", ()),
    "D4": (
        "the plan forgets what comes later",
        ("native/test_footprint.py::test_an_outline_has_the_sizes_of_the_loaded_model_byte_for_byte",),
    ),
    "D5": ("what says that it frees, does not", (LEAVES_PROCESS, "sleep releases nothing")),
    "D6": ("the floor rises with each start", ()),
    "D7": ("unloading leaves memory behind", ("engine/test_engine.py::test_closing_frees_all_memory_also_while_it_is_away",)),
    "D8": ("a reading taken too early", ("e2e/test_budget.py::test_the_bytes_of_a_killed_resident_come_back",)),
    "E1": ("a large image ends the server", ("engine/test_media_steps.py::test_an_image_that_cannot_be_encoded_ends_its_request_alone",)),
    "E2": ("a failed reservation is found by the first image", ("native/test_media.py::test_the_measure_is_what_it_takes",)),
    "E3": (
        "what made room is not restored",
        ("an encoder is lost for good", "native/test_cycles.py::test_an_encoder_comes_back_bit_for_bit"),
    ),
    "E4": ("overlapping images: restored too early", ("the weights come back before the encoder has left",)),
    "E5": ("the encoder never finds room", ("a model without its weights waits for ever",)),
    "E6": ("over-commit in silence", ("runtime/test_budget.py::test_room_for_an_encoder_is_charged_or_refused_at_once",)),
    "E7": ("an image without an encoder ends the process", ("transports/http/test_media.py::test_what_is_wrong_is_a_400_that_says_so",)),
    "F1": ("decoding goes on behind what was restored", ()),
    "F2": ("short prompts get no snapshot", ()),
    "F3": ("all snapshots sit at the end", ("engine/test_checkpoints.py::test_the_default_list_of_32_is_spaced",)),
    "F4": ("good snapshots are dropped", ()),
    "F5": ("a full list replaces its last one", ()),
    "F6": ("a snapshot that does not fit ends the server", ()),
    "F7": ("another adapter's cache is used", ()),
    "F8": ("other media with the same text", ()),
    "F9": ("the limit of the cache is exceeded", ()),
    "F10": ("a cache that looks like a leak", ("transports/http/test_formats.py::test_metrics_names_and_values",)),
    "F11": ("a bad state is kept after an error", ()),
    "F12": ("the same prompt again fails", ()),
    "F13": ("a recurrent model's second request fails", ()),
    "F14": ("equal times of use select nobody", ()),
    "F15": ("a prompt that stands still", ("not modelled: a batch that never ends is the device's; it can be seen in the state",)),
    "G6": ("only the last small prompt is saved", ()),
    "I1": ("the client has gone and the answer goes on", ()),
    "I2": ("what was cancelled in the queue is run", ()),
    "I3": ("a cancel during the prompt is not heard", ()),
    "I5": ("a cancel between accepting and queueing", ()),
    "I10": (
        "an answer that was cut off looks whole",
        ("transports/http/test_hostile.py::test_the_end_of_the_server_ends_a_stream_with_an_error",),
    ),
    "J9": ("data addresses of some kinds only", ("chat/test_media.py::test_an_address_is_a_url_a_file_a_data_url_or_base64",)),
    "J10": ("a marker in a text is taken for an image", ("chat/test_media.py::test_the_marker_cannot_be_guessed",)),
    "K5": ("a number out of range moves cells", ()),
    "K9": (
        "an image address reaches inside",
        ("runtime/test_media_source.py::test_private_addresses_are_refused_before_anything_is_sent",),
    ),
    "L5": ("reply and cancel both end a request", ()),
}
