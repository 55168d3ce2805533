/* Slots and requests of one engine: the world of slots.py, written a second time.
 *
 * The tables come from slots_tables.pml: request_EVENT(r) and slot_EVENT(s) move one machine and do what the edge says; an event that
 * the table refuses fails an assertion.  What is in the cache and what the scheduler believes are the same here: that they always are
 * is an invariant of slots.py.
 *
 * With -DFAMILY the requests 0 and 1 are two choices of one job, and request 2 takes any slot; with -DCONTEXT=4 a slot is full after that
 * many rows, and its first row leaves where it may.
 */
#define SLOTS 2
#define REQUESTS 3
#define TOKENS 2
#define ROWS 2
#define NOBODY 9

#ifndef PROMPT
#define PROMPT 2
#endif
#ifndef CONTEXT
#define CONTEXT 9
#endif

#ifdef FAMILY
#define pinned(r) false
#define fills(r) false
#define is_lead(r) (r == 0)
#define is_choice(r) (r < 2)
#else
/* Kinds of requests: 0 takes any slot, 1 only slot 0, 2 only fills the cache. */
#define pinned(r) (r == 1)
#define fills(r) (r == 2)
#define is_lead(r) false
#define is_choice(r) false
#endif

byte r_state[REQUESTS], r_slot[REQUESTS] = NOBODY, r_tokens[REQUESTS], r_told[REQUESTS];
bool r_came[REQUESTS];
byte s_state[SLOTS], s_request[SLOTS] = NOBODY, s_rows[SLOTS];
byte queue[REQUESTS], queued, order[SLOTS], busy;
bool shared; /* the slots have rows in the same cells */
bool whole, lead, shifts; /* facts; false but for the event that asks for them */
bool others; /* the other choices are still to fail; false between two steps */

#include "slots_tables.pml"

#define live(r) (r_came[r] && (r_state[r] == request_queued || r_state[r] == request_prefilling || r_state[r] == request_generating))

inline leave_queue(r) {
  k = 0;
  do
  :: k < queued && queue[k] != r -> k++
  :: k < queued && queue[k] == r ->
     do
     :: k + 1 < queued -> queue[k] = queue[k + 1]; k++
     :: k + 1 == queued -> break
     od;
     queued--; queue[queued] = 0; break
  :: k == queued -> break
  od;
  k = 0
}

inline leave_order(s) {
  if
  :: order[0] == s -> order[0] = order[1]
  :: else
  fi;
  busy--; order[busy] = 0
}

inline told(r) { r_told[r]++; r_slot[r] = NOBODY; leave_queue(r) }
inline do_report_done(r) { told(r) }
inline do_report_failed(r) { told(r) }
inline do_report_cancelled(r) { told(r) }
inline do_slot_finish(r) { t = r_slot[r]; slot_finish(t); s_request[t] = NOBODY; leave_order(t); t = 0 }
inline do_slot_fail(r) { t = r_slot[r]; slot_fail(t); s_request[t] = NOBODY; leave_order(t); t = 0 }
inline do_others_fail(r) { others = true }
inline do_prefix_keep(s) { skip }
inline do_tokens_keep(s) { skip }
inline do_cache_clear(s) { s_rows[s] = 0; shared = false }
inline do_prompt_copy(s) { s_rows[s] = s_rows[1 - s]; shared = true }
inline do_context_shift(s) {
  if
  :: shared -> s_rows[1 - s] = 0; shared = false
  :: else
  fi;
  s_rows[s]--
}
inline do_request_limit(s) { u = s_request[s]; request_finish(u); u = 0 }

/* A request, and with it the other choice of its job.  v is the one at hand, as everywhere below. */
inline fail(x) {
  v = x;
  do
  :: others = false; request_fail(v);
     if
     :: is_choice(v) && others && v == x -> v = 1 - v
     :: else -> break
     fi
  od;
  v = 0; others = false
}

inline be_queued(r) { r_came[r] = true; r_state[r] = request_queued; r_tokens[r] = 0; r_told[r] = 0 }
inline come(r) {
  be_queued(r);
  if
  :: is_lead(r) -> be_queued(1)
  :: else
  fi;
  queue[queued] = r; queued++
}

inline occupy(r, s) { r_slot[r] = s; s_request[s] = r; order[busy] = s; busy++; request_start(r) }

/* Any part of the cache may fit, but for the last row of the prompt.  Another choice keeps what is in its slot until the prompt is there. */
inline start(r, s) {
  leave_queue(r);
  occupy(r, s);
  lead = true; slot_assign(s); lead = false;
  if
  :: s_rows[s] = 0; shared = false
  :: s_rows[s] >= 1 -> s_rows[s] = 1
  :: s_rows[s] >= 2 && PROMPT > 2 -> s_rows[s] = 2
  fi;
  if
  :: is_lead(r) -> v = 1 - s; occupy(1, v); slot_assign(v); v = 0
  :: else
  fi
}

#define idle(s) (s_request[s] == NOBODY)

/* In their order, whoever waits gets some slot that is idle; who waits for one slot lets others pass, who needs both lets nobody. */
inline assign() {
  i = 0;
  do
  :: i == queued -> break
  :: i < queued -> r = queue[i];
     if
     :: is_lead(r) && !(idle(0) && idle(1)) -> break
     :: !is_lead(r) && idle(0) || is_lead(r) && idle(0) && idle(1) -> start(r, 0)
     :: (!is_lead(r) && idle(1) || is_lead(r) && idle(0) && idle(1)) && !pinned(r) -> start(r, 1)
     :: !is_lead(r) && !idle(0) && (!idle(1) || pinned(r)) -> i++
     fi
  od;
  i = 0; r = 0
}

inline add_row(s) { row[rows] = s; rows++ }

#define prompting(s) (r_tokens[s_request[s]] == 0 && s_state[s] != slot_wait_other)

inline fill() {
  i = 0;
  do
  :: i < busy -> if :: r_tokens[s_request[order[i]]] > 0 -> add_row(order[i]) :: else fi; i++
  :: i == busy -> break
  od;
  i = 0;
  do
  :: i < busy && prompting(order[i]) && rows < ROWS -> s = order[i]; r = PROMPT - s_rows[s];
     if :: r > ROWS - rows -> n = ROWS - rows :: else -> n = r fi;
     if
     :: s_state[s] == slot_started || s_state[s] == slot_processing_prompt -> whole = (n == r); slot_batch(s); whole = false
     :: else
     fi;
     do :: n > 0 -> add_row(s); n-- :: n == 0 -> break od;
     i++
  :: i < busy && (!prompting(order[i]) || rows == ROWS) -> i++
  :: i == busy -> break
  od;
  i = 0; s = 0; r = 0
}

/* The last one perhaps; else a full slot shifts, where no busy one shares its cells, or ends the answer. */
inline token(x) {
  v = r_slot[x];
  if
  :: r_tokens[x] == 0 -> assert(s_rows[v] == PROMPT); slot_sampled(v); request_first_token(x)
  :: else
  fi;
  r_tokens[x]++;
  if
  :: request_finish(x)
  :: r_tokens[x] < TOKENS ->
     if
     :: s_rows[v] + 1 >= CONTEXT -> shifts = !shared || idle(1 - v); slot_full(v); shifts = false
     :: else
     fi
  fi;
  v = 0
}

inline decode_row(s) {
  r = s_request[s];
  s_rows[s]++;
  if
  :: r_tokens[r] == 0 && s_rows[s] < PROMPT
  :: !(r_tokens[r] == 0 && s_rows[s] < PROMPT) && fills(r) -> request_finish(r)
  :: !(r_tokens[r] == 0 && s_rows[s] < PROMPT) && !fills(r) ->
     if
     :: is_lead(r) && r_tokens[r] == 0 -> v = r_slot[1]; slot_share(v); v = 0
     :: else
     fi;
     do
     :: token(r);
        if
        :: is_lead(r) && r_tokens[1] == 0 && live(1) -> r = 1
        :: else -> break
        fi
     od
  fi;
  r = 0
}

inline fail_slot(s) {
  if
  :: s_request[s] != NOBODY -> r = s_request[s]; fail(r); r = 0
  :: else
  fi
}

/* How many rows are decoded (n), and what then happens to the next one (mode): nothing, no room, or the decode fails. */
inline decode() {
  if
  :: n = rows; mode = 0
  :: rows > 0 -> n = 0; mode = 1
  :: rows > 1 -> n = 1; mode = 1
  :: rows > 0 -> n = 0; mode = 2
  :: rows > 1 -> n = 1; mode = 2
  fi;
  i = 0;
  do :: i < n -> s = row[i]; decode_row(s); i++ :: i == n -> break od;
  if
  :: mode == 0
  :: mode > 0 ->
     if :: mode == 1 -> i = n; rows = n + 1 :: mode == 2 -> i = 0 fi;
     do :: i < rows -> s = row[i]; fail_slot(s); i++ :: i == rows -> break od
  fi;
  i = 0; n = 0; mode = 0; s = 0; rows = 0; row[0] = 0; row[1] = 0
}

inline fail_all() {
  i = 0;
  do
  :: i < REQUESTS -> if :: live(i) -> fail(i) :: else fi; i++
  :: i == REQUESTS -> break
  od;
  i = 0
}

#define ended(x) (r_state[x] == request_done || r_state[x] == request_failed || r_state[x] == request_cancelled)
inline cancel(x) {
  request_cancel(x);
  if
  :: is_lead(x) -> request_cancel(1); assert(ended(1))
  :: else
  fi;
  assert(ended(x))
}

#define CLIENT(x) \
  :: atomic { !live(x) && !(is_lead(x) && live(1)) -> come(x) } \
  :: atomic { !live(x) && !(is_lead(x) && live(1)) -> come(x); fail(x) } \
  :: atomic { r_came[x] -> cancel(x) }
#define ROOM(x) :: atomic { s_request[x] == NOBODY && s_rows[x] > 0 -> s_rows[x] = 0; shared = false }

active proctype engine() {
  byte i, k, n, r, s, t, u, v, mode, rows, row[ROWS]; /* all 0 between two steps */
end:
  do
  CLIENT(0)
#ifndef FAMILY
  CLIENT(1)
#endif
  CLIENT(2)
  ROOM(0)
  ROOM(1)
  :: atomic { true -> fail_all() }
  :: atomic { queued + busy > 0 -> assign(); fill(); decode();
       assert(busy == (s_request[0] != NOBODY) + (s_request[1] != NOBODY));
       assert((s_request[0] == NOBODY) == (s_state[0] == slot_idle) && (s_request[1] == NOBODY) == (s_state[1] == slot_idle)) }
  od
}
