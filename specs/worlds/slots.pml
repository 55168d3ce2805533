/* Slots and requests of one engine: the world of slots.py, written a second time.
 *
 * The tables come from slots_tables.pml: request_EVENT(r) and slot_EVENT(s) move one machine and do what the edge says; an event that
 * the table refuses fails an assertion.  What is in the cache and what the scheduler believes are the same here: that they always are
 * is an invariant of slots.py.
 */
#define SLOTS 2
#define REQUESTS 3
#define PROMPT 2
#define TOKENS 2
#define ROWS 2
#define NOBODY 9

/* Kinds of requests: 0 takes any slot, 1 only slot 0, 2 only fills the cache. */
#define pinned(r) (r == 1)
#define fills(r) (r == 2)

byte r_state[REQUESTS], r_slot[REQUESTS] = NOBODY, r_tokens[REQUESTS], r_told[REQUESTS];
bool r_came[REQUESTS];
byte s_state[SLOTS], s_request[SLOTS] = NOBODY, s_rows[SLOTS];
byte queue[REQUESTS], queued, order[SLOTS], busy;
bool whole; /* a fact of `batch` */

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
inline do_prefix_keep(s) { skip }
inline do_tokens_keep(s) { skip }
inline do_cache_clear(s) { s_rows[s] = 0 }

inline come(r) { r_came[r] = true; r_state[r] = request_queued; r_tokens[r] = 0; r_told[r] = 0; queue[queued] = r; queued++ }

/* Any part of the cache may fit, but for the last row of the prompt. */
inline start(r, s) {
  r_slot[r] = s; s_request[s] = r; order[busy] = s; busy++;
  leave_queue(r);
  request_start(r);
  slot_assign(s);
  if
  :: s_rows[s] = 0
  :: s_rows[s] >= 1 -> s_rows[s] = 1
  fi
}

/* In their order, whoever waits gets some slot that is idle; who waits for one slot lets others pass. */
inline assign() {
  i = 0;
  do
  :: i == queued -> break
  :: i < queued -> r = queue[i];
     if
     :: s_request[0] == NOBODY -> start(r, 0)
     :: s_request[1] == NOBODY && !pinned(r) -> start(r, 1)
     :: s_request[0] != NOBODY && (s_request[1] != NOBODY || pinned(r)) -> i++
     fi
  od;
  i = 0; r = 0
}

inline add_row(s) { row[rows] = s; rows++ }

inline fill() {
  i = 0;
  do
  :: i < busy -> if :: r_tokens[s_request[order[i]]] > 0 -> add_row(order[i]) :: else fi; i++
  :: i == busy -> break
  od;
  i = 0;
  do
  :: i < busy && r_tokens[s_request[order[i]]] == 0 && rows < ROWS -> s = order[i]; r = PROMPT - s_rows[s];
     if :: r > ROWS - rows -> n = ROWS - rows :: else -> n = r fi;
     if
     :: s_state[s] == slot_started || s_state[s] == slot_processing_prompt -> whole = (n == r); slot_batch(s); whole = false
     :: else
     fi;
     do :: n > 0 -> add_row(s); n-- :: n == 0 -> break od;
     i++
  :: i < busy && (r_tokens[s_request[order[i]]] > 0 || rows == ROWS) -> i++
  :: i == busy -> break
  od;
  i = 0; s = 0; r = 0
}

inline decode_row(s) {
  r = s_request[s];
  s_rows[s]++;
  if
  :: r_tokens[r] == 0 && s_rows[s] < PROMPT
  :: !(r_tokens[r] == 0 && s_rows[s] < PROMPT) && fills(r) -> request_finish(r)
  :: !(r_tokens[r] == 0 && s_rows[s] < PROMPT) && !fills(r) ->
     if
     :: r_tokens[r] == 0 -> slot_sampled(s); request_first_token(r)
     :: else
     fi;
     r_tokens[r]++;
     if
     :: request_finish(r)
     :: r_tokens[r] < TOKENS
     fi
  fi;
  r = 0
}

inline fail_slot(s) {
  if
  :: s_request[s] != NOBODY -> r = s_request[s]; request_fail(r); r = 0
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
  :: mode == 1 -> s = row[n]; fail_slot(s)
  :: mode == 2 -> i = 0; do :: i < rows -> s = row[i]; fail_slot(s); i++ :: i == rows -> break od
  fi;
  i = 0; n = 0; mode = 0; s = 0; rows = 0; row[0] = 0; row[1] = 0
}

inline fail_if_live(x) { if :: live(x) -> request_fail(x) :: else fi }
inline cancel(x) {
  request_cancel(x);
  assert(r_state[x] == request_done || r_state[x] == request_failed || r_state[x] == request_cancelled)
}

#define CLIENT(x) \
  :: atomic { !live(x) -> come(x) } \
  :: atomic { !live(x) -> come(x); request_fail(x) } \
  :: atomic { r_came[x] -> cancel(x) }
#define ROOM(x) :: atomic { s_request[x] == NOBODY && s_rows[x] > 0 -> s_rows[x] = 0 }

active proctype engine() {
  byte i, k, n, r, s, t, mode, rows, row[ROWS]; /* all 0 between two steps */
end:
  do
  CLIENT(0)
  CLIENT(1)
  CLIENT(2)
  ROOM(0)
  ROOM(1)
  :: atomic { true -> fail_if_live(0); fail_if_live(1); fail_if_live(2) }
  :: atomic { queued + busy > 0 -> assign(); fill(); decode();
       assert(busy == (s_request[0] != NOBODY) + (s_request[1] != NOBODY));
       assert((s_request[0] == NOBODY) == (s_state[0] == slot_idle) && (s_request[1] == NOBODY) == (s_state[1] == slot_idle)) }
  od
}
