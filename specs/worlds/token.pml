/* The world of specs/worlds/token.py, written a second time for SPIN: N processes, tickets in a line, flocks, one device,
   kill -9 between any two kernel calls.

   -DN=3          processes
   -DLIVE         for liveness: process 0 never dies, cancels, releases or loses the arena; a map fails only for want of room;
                  no stranger
   -DESCAPES=k    (with LIVE) the others die, cancel, release or lose the arena at most k times in all, so that nothing holds only
                  because somebody gives up
   -DSURE_RINGS   rings are not lost            -DNO_SLOW_CHECK   level state is not looked at now and then
   -DIDLE         the holder never has work     -DYIELD_IDLE      (a mistake) it yields only when it has none          */
#ifndef N
#define N 2
#endif
#include "token_tables.pml"

#define NOBODY 0                               /* in line[] and watch[], process i stands as i + 1 */
#define FIRST  254
#define GONE   253
#define ORPHAN 255                             /* in line[]: a ticket file that nobody has locked */

byte state[N], todo[N], watch[N], quantum[N], line[N], length;
bool door[N], want[N], ticket[N], token[N], resident[N], young[N], busy[N], look[N], stranger;
byte doors, wants, tokens, residents, serving;     /* sums of the above; serving: how many are awake */

#ifdef LIVE
#ifndef ESCAPES
#define ESCAPES 0
#endif
byte escapes = ESCAPES;
#define may_escape(i)    (i > 0 && escapes > 0)
#define escape           escapes--
#define no_room_only(i)  (residents - resident[i] > 0)
#else
#define may_escape(i)    (1)
#define escape           skip
#define no_room_only(i)  (1)
#endif

/* ---- events: when they may come ---- */
#define in_door(i)        (state[i] == doorway && door[i])
#define ev_need(i)        (1)
#define ev_door_won(i)    (door[i])
#define ev_door_busy(i)   (door[i] && serving > 0)     /* a holder may be probing want.lock just now */
#define ev_made(i)        (1)
#define ev_first(i)       (watch[i] == FIRST)
#define ev_ahead_gone(i)  (watch[i] == GONE)
#define ev_token_won(i)   (tokens == 0 && !stranger)
#define ev_token_busy(i)  (0)                          /* changes nothing */
#define ev_mapped(i)      (residents - resident[i] == 0)
#define ev_map_failed(i)  (no_room_only(i))
#define ev_backoff_over(i) (1)
#define ev_look(i)        (look[i])
#define ev_drained(i)     (!busy[i])
#define ev_unmapped(i)    (1)
#define ev_cancel(i)      (may_escape(i) && !in_door(i))
#define ev_line_failed(i) (may_escape(i) && !in_door(i))
#define ev_release(i)     (may_escape(i))
#define ev_room(i)        (0)

/* ---- facts; `patient` is free: both edges are open ---- */
#define fact_wanted(i)  (wants - want[i] > 0)
#define fact_rested(i)  (!young[i])
#ifdef YIELD_IDLE
#define fact_due(i)     (!busy[i])
#else
#define fact_due(i)     (!busy[i] || quantum[i] == 2)
#endif
#define fact_patient(i) (1)
#define fact_alone(i)    (1)                            /* under a budget: budget.pml */
#define fact_budgeted(i) (0)
#define not_alone(i)     (0)
#define not_budgeted(i)  (1)
#define not_wanted(i)   (!fact_wanted(i))
#define not_rested(i)   (!fact_rested(i))
#define not_due(i)      (!fact_due(i))
#define not_patient(i)  (1)

/* ---- the line ---- */
byte a, b, c;                                  /* scratch, 0 between steps */
inline unlist(who) { d_step { a = 0; b = 0;
  do :: a < length -> if :: line[a] != who -> line[b] = line[a]; b++ :: else fi; a++ :: else -> break od;
  a = b; do :: a < length -> line[a] = 0; a++ :: else -> break od;
  length = b; a = 0; b = 0 } }
inline orphan(i) { d_step { a = 0;
  do :: a < length -> if :: line[a] == i + 1 -> line[a] = ORPHAN :: else fi; a++ :: else -> break od; a = 0 } }
inline hang_up(i) { d_step { a = 0;
  do :: a < N -> if :: watch[a] == i + 1 -> watch[a] = GONE :: else fi; a++ :: else -> break od; a = 0 } }
inline look_from(i) { d_step { a = 0; c = FIRST;
  do :: a < length && line[a] != i + 1 -> if :: line[a] != ORPHAN && ticket[line[a] - 1] -> c = line[a] :: else fi; a++ :: else -> break od;
  watch[i] = c; a = 0; c = 0 } }
inline ring() { a = 0;
  do :: a < N && state[a] != awake -> a++ :: else -> break od;
  if
  :: a < N -> look[a] = 1
#ifndef SURE_RINGS
  :: a < N -> skip
#endif
  :: a == N -> skip
  fi; a = 0 }
inline in_turn(i) { d_step { a = 0;            /* nobody alive is overtaken, and our own ticket is listed */
  do :: a < length && line[a] != i + 1 -> assert(line[a] == ORPHAN || !ticket[line[a] - 1]); a++ :: else -> break od;
  assert(a < length && tokens == 1); a = 0 } }

/* ---- what the world does along with an event; state[i] is still the source ---- */
#define at_need(i)         skip
#define at_door_won(i)     want[i] = 1; wants++
#define at_door_busy(i)    door[i] = 0; doors--
#define at_made(i)         unlist(ORPHAN); line[length] = i + 1; length++
#define at_first(i)        watch[i] = 0
#define at_ahead_gone(i)   watch[i] = 0
#define at_token_won(i)    token[i] = 1; tokens++; in_turn(i)
#define at_token_busy(i)   skip
#define at_mapped(i)       resident[i] = 1; residents++; assert(residents == 1 && token[i])
#define at_map_failed(i)   skip
#define at_backoff_over(i) skip
#define at_look(i)         look[i] = 0
#define at_drained(i)      skip
#define at_unmapped(i)     residents = residents - resident[i]; resident[i] = 0
#define at_cancel(i)       escape; watch[i] = 0
#define at_line_failed(i)  escape; watch[i] = 0; if :: state[i] == joining -> unlist(ORPHAN) :: else fi
#define at_room(i)         skip
#define at_release(i)      escape; young[i] = 0
/* after an edge: outside `awake` nothing of a turn is left */
#define settle(i)          if :: state[i] != awake -> look[i] = 0; quantum[i] = 0 :: else fi; \
                           d_step { serving = 0; a = 0; do :: a < N -> serving = serving + (state[a] == awake); a++ :: else -> break od; a = 0 }

/* ---- effects ---- */
#define do_hold_start(i)    young[i] = 1
#define do_quantum_start(i) quantum[i] = (quantum[i] -> quantum[i] : 1)
#define do_quantum_stop(i)  quantum[i] = 0
#define do_ticket_lock(i)   ticket[i] = 1
#define do_door_open(i)     door[i] = 0; doors--
#define do_want_drop(i)     want[i] = 0; wants--
#define do_token_drop(i)    token[i] = 0; tokens--
#define do_ticket_unlink(i) unlist(i + 1)
#define do_ticket_close(i)  ticket[i] = 0; watch[i] = 0; hang_up(i)
#define do_look_ahead(i)    look_from(i)
#define do_bell_ring(i)     ring()

active [N] proctype P() {                      /* a kill sits in the machine's own process: fairness must not force it */
end: do
  MACHINE_STEPS(_pid)
  :: atomic { state[_pid] == doorway && !todo[_pid] && !door[_pid] && doors == 0 -> door[_pid] = 1; doors++ }
  :: atomic { next_is_ticket_lock(todo[_pid]) && may_escape(_pid) -> escape; unlist(_pid + 1); door[_pid] = 0; doors--;
       todo[_pid] = todo_waiting_line_failed; state[_pid] = asleep }
  :: atomic { state[_pid] != dead && may_escape(_pid) -> escape; state[_pid] = dead; todo[_pid] = 0; busy[_pid] = 0; young[_pid] = 0;
       watch[_pid] = 0; if :: !ticket[_pid] -> orphan(_pid) :: else fi; settle(_pid) }
  :: atomic { state[_pid] == dead && door[_pid] -> door[_pid] = 0; doors-- }   /* lock by lock, in any order */
  :: atomic { state[_pid] == dead && want[_pid] -> want[_pid] = 0; wants-- }
  :: atomic { state[_pid] == dead && token[_pid] -> token[_pid] = 0; tokens-- }
  :: atomic { state[_pid] == dead && ticket[_pid] -> ticket[_pid] = 0; orphan(_pid); hang_up(_pid) }
  :: atomic { state[_pid] == dead && resident[_pid] -> resident[_pid] = 0; residents-- }
  :: atomic { state[_pid] == dead && !door[_pid] && !want[_pid] && !token[_pid] && !ticket[_pid] && !resident[_pid] -> state[_pid] = asleep }
  od }

/* Clocks and load are processes of their own, so that weak fairness makes each of them go on. */
#if N == 2
#define EACH(OPTION) OPTION(0) OPTION(1)
#elif N == 3
#define EACH(OPTION) OPTION(0) OPTION(1) OPTION(2)
#else
#define EACH(OPTION) OPTION(0) OPTION(1) OPTION(2) OPTION(3)
#endif
#define hold_over(i)    :: atomic { young[i] -> young[i] = 0; look[i] = 1 }
#define quantum_over(i) :: atomic { quantum[i] == 1 -> quantum[i] = 2; look[i] = 1 }
#ifdef IDLE
#define serve(i)
#else
#define serve(i)        :: atomic { state[i] == awake && !busy[i] -> busy[i] = 1 }
#endif
#define done(i)         :: atomic { busy[i] -> busy[i] = 0; look[i] = (state[i] == awake) }
#define slow_check(i)   :: atomic { state[i] == awake && !look[i] -> look[i] = 1 }
active proctype Hold()    { end: do EACH(hold_over) od }
active proctype Quantum() { end: do EACH(quantum_over) od }
active proctype Load()    { end: do EACH(serve) EACH(done) od }
#ifndef NO_SLOW_CHECK
active proctype Slow()    { end: do EACH(slow_check) od }
#endif

#ifdef LIVE
ltl served { [] ((state[0] == waiting) -> <> (state[0] == waking)) }
#else
active proctype Stranger() { end: do :: atomic { stranger -> stranger = 0 } :: atomic { !stranger && tokens == 0 -> stranger = 1 } od }
#endif
