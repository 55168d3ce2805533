/* One model's owner and everything that can happen to it: the world of owner.py, written a second time.
 *
 * The tables come from owner_tables.pml: token_EVENT(i), sleep_EVENT(i), load_EVENT(i) and residency_EVENT(i) move the one machine of each
 * kind and do what the edge says; an event that the table refuses fails an assertion.  What a machine tells another is post(MACHINE_EVENT
 * as a number); handle(m) delivers it.  What the engine thread is told is a list of jobs, and each job one step, or two.
 *
 * -DCLIENTS=2 -DINBOX_LIMIT=2 -DEVICT_KV=1 -DIDLE_SLEEP=1 ...     as in the Scenario there; each is needed
 * -DLIVE     for liveness: `calm` comes at some moment, or never; from then on nobody cancels or calls, and nothing fails
 *
 * Who goes on if he can is a process of his own.  All variables that are not in owner_state.py are 0 between two steps. */
#define BATCHES 2
#define WAKES   3
#define COMPUTE 1
#define WEIGHTS 2
#define KV      4
#define EVERYTHING 7
#define MESSAGES 12
#define JOBS    16
#define ASK_ALL 2

/* jobs; a number from FAIL on is the set of the clients whose requests fail */
#define RESUME 1
#define DRAIN 2
#define RELEASE_COMPUTE 3
#define RELEASE_WEIGHTS 4
#define RELEASE_KV 5
#define EVICTED 6
#define LEFT 7
#define FREE 8
#define LOAD 9
#define LOADING 10
#define RESTORE 11
#define RESTORING 12
#define FAIL 32

byte t_state[1], s_state[1], l_state[1], r_state[1];
byte inbox[MESSAGES], posted, jobs[JOBS], n_jobs;
byte client[CLIENTS], demand, device, charged, asked, quantum;
byte failing; /* the clients whose failure is on the list */
bool context, running, locked, booked, idle_timer, young, progress;
bool patient, hopeless, others; /* facts of one event */
byte first, k, set, x;
#ifdef LIVE
bool calm;
#define finite !calm
#else
#define finite true
#endif

/* ---- facts ---- */
#define asks(i)   (client[i] > 0 && client[i] <= BATCHES)
#if CLIENTS == 1
#define requested asks(0)
#define needed    (client[0] > 0)
#elif CLIENTS == 2
#define requested (asks(0) || asks(1))
#define needed    ((client[0] > 0) + (client[1] > 0))
#else
#define requested (asks(0) || asks(1) || asks(2))
#define needed    ((client[0] > 0) + (client[1] > 0) + (client[2] > 0))
#endif
#define demanded  (demand > 0)
#define evict_kv  (EVICT_KV || asked == ASK_ALL)
#define owed      (asked == ASK_ALL && charged > 0)
#define alone     (!BUDGET)
#define budgeted  (BUDGET)
#define wanted    (others || asked > 0)
#define encoder_stays (false)
#define rested    (!young)
#define due       (!requested || quantum == 2)

/* specs/worlds/encoder.pml has encoders, specs/worlds/token.pml the kernel calls of the line */
#define do_restore_with_encoder(i) assert(false)
#define do_release_encoder(i) skip
#define do_door_try(i) skip
#define do_ticket_make(i) skip
#define do_ticket_lock(i) skip
#define do_door_open(i) skip
#define do_bell_ring(i) skip
#define do_look_ahead(i) skip
#define do_token_try(i) skip
#define do_room_look(i) skip
#define do_asks_drop(i) skip
#define do_ticket_unlink(i) skip
#define do_ticket_close(i) skip
#define do_want_drop(i) skip
#define do_backoff_start(i) skip
#define do_load_abort(i) skip /* it may come too late: the load ends as it likes */

#include "owner_tables.pml"

/* ---- messages, jobs, demand ---- */
inline post(message) { assert(posted < MESSAGES); inbox[posted] = message; posted++ }
inline give(what) { assert(n_jobs < JOBS); jobs[n_jobs] = what; n_jobs++ }
inline next_message() {
  posted--;
  do :: k < posted -> inbox[k] = inbox[k + 1]; k++ :: else -> break od;
  inbox[posted] = 0; k = 0
}
inline next_job() {
  n_jobs--;
  do :: k < n_jobs -> jobs[k] = jobs[k + 1]; k++ :: else -> break od;
  jobs[n_jobs] = 0; k = 0
}
inline more() { demand++; post(MSG_sleep_demand) }
inline less() { demand--; if :: demand == 0 -> post(MSG_sleep_relaxed) :: else fi }
inline end_wakers() {
  x = 0;
  do
  :: x < CLIENTS -> if :: client[x] == WAKES -> client[x] = 0; less() :: else fi; x++
  :: else -> break
  od;
  x = 0
}
inline fail_later() {
  do
  :: k < CLIENTS -> if :: asks(k) && !(failing & (1 << k)) -> set = set | (1 << k) :: else fi; k++
  :: else -> break
  od;
  k = 0;
  if :: set > 0 -> give(FAIL + set); failing = failing | set :: else fi;
  set = 0
}

/* ---- effects; those that tell another machine something come with the tables ---- */
inline recounted() { if :: BUDGET -> charged = (booked -> EVERYTHING : device) :: else fi }
inline do_token_drop(i) { locked = false }
inline do_discharge(i) { if :: BUDGET -> booked = false :: else fi; recounted() }
inline do_recount(i) { recounted() }
inline do_hold_start(i) { young = true; booked = false }
inline do_quantum_start(i) { quantum = (quantum > 0 -> quantum : 1) }
inline do_quantum_stop(i) { quantum = 0 }
inline do_demand_add(i) { more() }
inline do_demand_drop(i) { less() }
inline do_idle_start(i) { idle_timer = IDLE_SLEEP }
inline do_idle_stop(i) { idle_timer = false }
inline do_fail_demand(i) { fail_later(); end_wakers(); post(MSG_load_refused) }
inline do_engine_load(i) { give(LOAD) }
inline do_engine_free(i) { fail_later(); give(FREE) }
inline do_engine_resume(i) { give(RESUME); end_wakers() }
inline do_drain(i) { give(DRAIN) }
inline do_release_compute(i) { give(RELEASE_COMPUTE) }
inline do_release_weights(i) { give(RELEASE_WEIGHTS) }
inline do_release_kv(i) { give(RELEASE_KV) }
inline do_report_left(i) { give(LEFT) }
inline do_report_evicted(i) { give(EVICTED) }
inline do_restore(i) { give(RESTORE) }

/* ---- what must hold after each step; what TOKEN forgets when it is not awake ---- */
#define moving  (t_state[0] == token_clearing || t_state[0] == token_waking || t_state[0] == token_retrying)
#define holding (moving || t_state[0] == token_awake || t_state[0] == token_draining || t_state[0] == token_sleeping)
#define loads   (l_state[0] == load_queued || l_state[0] == load_loading || l_state[0] == load_aborting)
inline hold() {
  assert(demand == needed + loads);
  assert(!(running && n_jobs == 0) || t_state[0] == token_awake || t_state[0] == token_draining);
  assert(!(running && n_jobs == 0 && requested) || device == EVERYTHING);
  if
  :: BUDGET -> assert((device & charged) == device); assert(!locked || moving || t_state[0] == token_sleeping)
  :: else -> assert(!(device & (WEIGHTS | COMPUTE)) || locked); assert(locked == holding)
  fi
}
inline fired() { if :: t_state[0] != token_awake -> young = false; quantum = 0 :: else fi; hold() }

#define at(STATE) t_state[0] == token_##STATE
#define next(what) n_jobs > 0 && jobs[0] == what
#define room (posted < INBOX_LIMIT)

active proctype Owner() { end: do
  :: atomic { posted > 0 -> first = inbox[0]; next_message();
       if
       :: (first == MSG_token_map_failed && finite) || first == MSG_load_load_failed -> patient = true; hopeless = true
       :: skip
       fi;
       handle(first); first = 0; patient = false; hopeless = false; fired() }
  od }

active proctype Engine() { end: do
  :: atomic { next(RESUME) -> next_job(); running = true; progress = false; hold() }
  :: atomic { next(DRAIN) -> next_job(); running = false; post(MSG_token_drained); hold() }
  :: atomic { next(RELEASE_COMPUTE) -> next_job(); device = device & ~COMPUTE; hold() }
  :: atomic { next(RELEASE_WEIGHTS) -> next_job(); device = device & ~WEIGHTS; hold() }
  :: atomic { next(RELEASE_KV) -> next_job(); device = device & ~KV; hold() }
  :: atomic { next(EVICTED) -> next_job(); post(MSG_residency_evicted); hold() }
  :: atomic { next(LEFT) -> next_job(); post(MSG_residency_left); hold() }
  :: atomic { next(FREE) -> next_job(); device = 0; context = false; running = false; post(MSG_load_freed); hold() }
  :: atomic { next(LOAD) -> jobs[0] = LOADING; device = EVERYTHING; hold() }
  :: atomic { next(RESTORE) -> jobs[0] = RESTORING; if :: context -> device = EVERYTHING :: else fi; hold() }
  :: atomic { next(LOADING) -> next_job(); context = true; post(MSG_load_loaded); hold() }
  :: atomic { next(LOADING) && finite -> next_job(); device = 0; post(MSG_load_load_failed); hold() }
  :: atomic { next(RESTORING) && !context -> next_job(); post(MSG_residency_enter_failed); hold() }
  :: atomic { next(RESTORING) && context -> next_job(); device = EVERYTHING; post(MSG_residency_entered); hold() }
  :: atomic { next(RESTORING) && context && finite -> next_job(); device = (EVICT_KV -> 0 : KV); post(MSG_residency_enter_failed); hold() }
  :: atomic { next(RESTORING) && context && finite && FILE_CHANGES -> next_job(); device = (EVICT_KV -> 0 : KV);
       post(MSG_residency_source_changed); hold() }
  :: atomic { n_jobs > 0 && jobs[0] >= FAIL -> set = jobs[0] - FAIL; failing = failing & ~set; next_job();
       do
       :: x < CLIENTS -> if :: (set & (1 << x)) && client[x] > 0 -> client[x] = 0; less() :: else fi; x++
       :: else -> break
       od;
       x = 0; set = 0; hold() }
  od }

active proctype Batch() { end: do
  :: atomic { n_jobs == 0 && running && requested -> progress = true;
       do
       :: x < CLIENTS ->
          if
          :: client[x] == 1 -> client[x] = 0; less()
          :: asks(x) && client[x] > 1 -> client[x]--
          :: else
          fi;
          x++
       :: else -> break
       od;
       x = 0; hold() }
  :: atomic { n_jobs == 0 && running && requested && WEIGHTS_GET_LOST && finite ->
       running = false; device = device & ~WEIGHTS; post(MSG_residency_weights_lost); hold() }
  od }

/* ---- the line, seen from one process ---- */
active proctype Line() { end: do
  :: atomic { at(doorway) -> token_door_won(0); fired(); token_made(0); fired() }
  :: atomic { at(doorway) && LINE_FAILS && finite -> token_line_failed(0); fired() }
  :: atomic { at(doorway) && LINE_FAILS && finite -> token_door_won(0); fired(); token_line_failed(0); fired() }
  :: atomic { at(waiting) -> token_first(0); fired() }
  :: atomic { at(taking) -> locked = true; asked = 0; token_token_won(0); fired() }
  :: atomic { at(clearing) -> charged = EVERYTHING; booked = true; token_room(0); fired() }
  :: atomic { (at(waiting) || at(taking) || at(clearing)) && LINE_FAILS && finite -> token_line_failed(0); fired() }
  od }
/* This may happen again and again, and changes nothing. */
active proctype Stranger() { end: do
  :: atomic { at(doorway) -> token_door_busy(0); fired() }
  :: atomic { at(taking) -> token_token_busy(0); fired() }
  :: atomic { at(clearing) -> token_look(0); fired() }
  od }
active proctype Look() { end: do
  :: atomic { at(awake) -> token_look(0); fired() }
  od }
active proctype Ring() { end: do
  :: atomic { BUDGET && !moving && !locked && posted == 0 && n_jobs == 0 && asked > 0 -> post(MSG_residency_look) }
  od }

active proctype Backoff() { end: do
  :: atomic { at(retrying) -> token_backoff_over(0); fired() }
  od }
active proctype Hold() { end: do
  :: atomic { young -> young = false }
  od }
active proctype Quantum() { end: do
  :: atomic { quantum == 1 && (progress || demand == 0) -> quantum = 2 }
  od }

/* ---- whoever is not obliged to do anything ---- */
inline come(i) { client[i] = BATCHES; more() }
inline wake(i) {
  if :: l_state[0] == load_unloaded || l_state[0] == load_failed -> post(MSG_load_load) :: else fi;
  client[i] = WAKES; more()
}
#define silent(i) (client[i] == 0 && !(failing & (1 << i)) && room)
#define CLIENT(i) \
  :: atomic { client[i] > 0 && room && finite -> client[i] = 0; less(); hold() } \
  :: atomic { silent(i) && l_state[0] == load_ready -> come(i); hold() } \
  :: atomic { silent(i) && WAKE_CALLS && finite && s_state[0] != sleep_awake -> wake(i); hold() }

active proctype Environment() { end: do
  CLIENT(0)
#if CLIENTS > 1
  CLIENT(1)
#endif
#if CLIENTS > 2
  CLIENT(2)
#endif
  :: atomic { room && finite && (LOAD_CALLS || l_state[0] == load_unloaded || l_state[0] == load_failed) -> post(MSG_load_load) }
  :: atomic { room && finite && LOAD_CALLS -> post(MSG_load_unload) }
  :: atomic { room && finite && REST_CALLS && l_state[0] == load_ready -> post(MSG_sleep_rest) }
  :: atomic { room && idle_timer -> idle_timer = false; post(MSG_sleep_idle_over) }
  :: atomic { !BUDGET && at(awake) -> others = true; token_look(0); others = false; fired() }
  :: atomic { BUDGET && finite && !moving && !locked && posted == 0 && n_jobs == 0 -> asked = 0 }
  :: atomic { BUDGET && finite && !moving && !locked && posted == 0 && n_jobs == 0 -> asked = ASK_ALL }
#ifdef LIVE
  :: atomic { !calm -> calm = true }
  :: x == 0 /* or nothing */
#endif
  od }

#ifdef LIVE
#define passes(what) [] ((calm && (what)) -> <> !(what))
ltl client_waits { passes(client[0] > 0) }
ltl load_waits { passes(l_state[0] == load_queued) }
ltl load_is_under_way { passes(l_state[0] == load_loading || l_state[0] == load_aborting) }
ltl unload { passes(l_state[0] == load_unloading || l_state[0] == load_failing) }
ltl falling_asleep { passes(s_state[0] == sleep_falling_asleep) }
ltl asked_for_everything { passes(asked == ASK_ALL && charged > 0) }
#endif
