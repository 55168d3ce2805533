/* The world of specs/worlds/budget.py, written a second time for SPIN: two or three processes under one budget, the ledger, the bells on its
   pages, kill -9 between any two acts.

   The table comes from budget_tables.pml: token_EVENT(i) moves process i and does what the edge says; an event that the table refuses fails an
   assertion.  What is to be done is a set of acts, which are done in the order in which they stand here.

   -DN=2 -DBUDGET=3 -DLEAVES=2 -DSTAYS=0     as in the Scenario there
   -DNO_CRASH -DNO_ESCAPES -DSURE_RINGS -DIDLE     what does not happen
   -DLIVE     for liveness: process 0 is not killed, does not give up, and its device does not fail; the others do so ESCAPES times in all */
#define NEEDS (LEAVES + STAYS)
#define SOME 1
#define ALL  2
#define DEAD 99

#define ROOM_LOOK    1
#define ASKS_DROP    2
#define DISCHARGE    4
#define TOKEN_DROP   8
#define TICKET_CLOSE 16

byte p_state[N], todo[N], entry[N], old[N], memory[N], quantum[N], line[N], length;
bool token[N], look[N], young[N], busy[N];
typedef row { byte bell[N] };
row asks[N];                                   /* asks[i].bell[j]: how i has locked the bell of j */
byte a, b;                                     /* scratch, 0 between steps */
bool heard;

#ifdef LIVE
#ifndef ESCAPES
#define ESCAPES 1
#endif
byte escapes = ESCAPES;
#define may_escape(i) (i > 0 && escapes > 0)
#define escape        escapes--
#else
#define may_escape(i) (1)
#define escape        skip
#endif
#ifdef NO_CRASH
#define may_die(i) (0)
#else
#define may_die(i) may_escape(i)
#endif
#ifdef NO_ESCAPES
#define may_give_up(i) (0)
#else
#define may_give_up(i) may_escape(i)
#endif

/* ---- who else there is: one or two ---- */
#define O1(i) ((i + 1) % N)
#if N == 2
#define max3(x, y, z) (x > y -> x : y)
#define asked(i)      (asks[O1(i)].bell[i])
#define asks_any(i)   (asks[i].bell[O1(i)] > 0)
#define tokens        (token[0] + token[1])
#define had(i)        count(O1(i))
#define alive_have(i) living(O1(i))
#define on_device     (memory[0] + memory[1])
#define O2_level(i)   0
#define gives2(i, y)  0
#define ok2(i, y)     (y == 0)
#define lower2(i, y)  0
#else
#define O2(i) ((i + 2) % N)
#define asked(i)      (asks[O1(i)].bell[i] > asks[O2(i)].bell[i] -> asks[O1(i)].bell[i] : asks[O2(i)].bell[i])
#define asks_any(i)   (asks[i].bell[O1(i)] > 0 || asks[i].bell[O2(i)] > 0)
#define tokens        (token[0] + token[1] + token[2])
#define had(i)        (count(O1(i)) + count(O2(i)))
#define alive_have(i) (living(O1(i)) + living(O2(i)))
#define on_device     (memory[0] + memory[1] + memory[2])
#define O2_level(i)   asks[i].bell[O2(i)]
#define gives2(i, y)  gives(O2(i), y)
#define ok2(i, y)     ok(O2(i), y)
#define lower2(i, y)  lower(O2(i), y)
#endif

/* ---- room, and who is asked for it ---- */
#define count(j)       ((p_state[j] == DEAD && memory[j] == 0) -> 0 : entry[j])          /* a dead one's page is struck out once its memory is free */
#define living(j)      (p_state[j] == DEAD -> 0 : entry[j])                              /* nobody is asked for what comes back by itself */
#define stays_of(j)    (entry[j] < STAYS -> entry[j] : STAYS)
#define gives(j, l)    ((l) == 0 -> 0 : ((l) == SOME -> entry[j] - stays_of(j) : entry[j]))
#define open(j)        (p_state[j] != DEAD && !young[j])
#define gives_some(j)  (entry[j] > stays_of(j))
#define ok(j, l)       ((l) == 0 || (open(j) && (((l) == SOME && gives_some(j)) || ((l) == ALL && stays_of(j) > 0))))
#define lower(j, l)    (((l) == ALL && gives_some(j)) -> SOME : 0)
#define fits(i)        (had(i) + NEEDS <= BUDGET)
#define enough(i, x, y) (gives(O1(i), x) + gives2(i, y) + BUDGET >= alive_have(i) + NEEDS)
#define least(i, x, y)  (ok(O1(i), x) && ok2(i, y) && enough(i, x, y) && ((x) == 0 || !enough(i, lower(O1(i), x), y)) && \
                         ((y) == 0 || !enough(i, x, lower2(i, y))))
#define some_least(i)   (least(i, 0, 0) || least(i, 1, 0) || least(i, 2, 0) || least(i, 0, 1) || least(i, 1, 1) || least(i, 2, 1) || \
                         least(i, 0, 2) || least(i, 1, 2) || least(i, 2, 2))
#define is_now(i, x, y) (asks[i].bell[O1(i)] == x && O2_level(i) == y)
#define now_least(i)    least(i, asks[i].bell[O1(i)], O2_level(i))
#define may_choose(i, x, y) ((least(i, x, y) && (!now_least(i) || is_now(i, x, y))) || (!some_least(i) && is_now(i, x, y)))

/* ---- facts ---- */
#define alone    (false)
#define budgeted (true)
#define wanted   (asked(i) > 0)
#define rested   (!young[i])
#ifdef YIELD_IDLE
#define due      (!busy[i])
#else
#define due      (!busy[i] || quantum[i] == 2)
#endif
bool patient;

/* ---- effects ---- */
#define do_room_look(i)     assert(todo[i] < ROOM_LOOK); todo[i] = todo[i] | ROOM_LOOK
#define do_asks_drop(i)     assert(todo[i] < ASKS_DROP); todo[i] = todo[i] | ASKS_DROP
#define do_discharge(i)     assert(todo[i] < DISCHARGE); todo[i] = todo[i] | DISCHARGE
#define do_token_drop(i)    assert(todo[i] < TOKEN_DROP); todo[i] = todo[i] | TOKEN_DROP
#define do_ticket_close(i)  assert(todo[i] < TICKET_CLOSE); todo[i] = todo[i] | TICKET_CLOSE
#define do_hold_start(i)    young[i] = 1
#define do_quantum_start(i) quantum[i] = (quantum[i] -> quantum[i] : 1)
#define do_quantum_stop(i)  quantum[i] = 0

#include "budget_tables.pml"

/* ---- what a step does beside ---- */
#define settle(i) if :: p_state[i] != token_awake && p_state[i] != token_clearing -> look[i] = 0; quantum[i] = 0 :: else fi
#define hears(j)  (p_state[j] == token_awake || p_state[j] == token_clearing || \
                   ((p_state[j] == token_asleep || p_state[j] == token_waiting) && entry[j] > 0))
#define hears_ask(i, j)   (asks[i].bell[j] > 0 && hears(j) && !look[j])
#define hears_leave(j)    (p_state[j] == token_clearing && !look[j])
#if N == 2
#define asked_listen(i)   hears_ask(i, O1(i))
#define clearing_listen(i) hears_leave(O1(i))
#else
#define asked_listen(i)   (hears_ask(i, O1(i)) || hears_ask(i, O2(i)))
#define clearing_listen(i) (hears_leave(O1(i)) || hears_leave(O2(i)))
#endif
#ifdef SURE_RINGS                              /* a ring that nobody would hear cannot be lost */
#define may_be_lost(listens)
#else
#define may_be_lost(listens) :: listens
#endif
inline unlist(i) { d_step { a = 0; b = 0;
  do :: a < length -> if :: line[a] != i + 1 -> line[b] = line[a]; b++ :: else fi; a++ :: else -> break od;
  a = b; do :: a < length -> line[a] = 0; a++ :: else -> break od;
  length = b; a = 0; b = 0 } }
inline strike_out() { d_step { a = 0;
  do :: a < N -> old[a] = 0; if :: p_state[a] == DEAD && memory[a] == 0 -> entry[a] = 0 :: else fi; a++ :: else -> break od; a = 0 } }
inline ask_nobody(i) { d_step { a = 0; do :: a < N -> asks[i].bell[a] = 0; a++ :: else -> break od; a = 0 } }
inline ring_asked(i) { if :: heard = 1 may_be_lost(asked_listen(i)) fi; d_step { a = 0;
  do :: a < N -> if :: heard && asks[i].bell[a] > 0 && hears(a) -> look[a] = 1 :: else fi; a++ :: else -> break od; a = 0; heard = 0 } }
inline ring_clearing(i) { if :: heard = 1 may_be_lost(clearing_listen(i)) fi; d_step { a = 0;
  do :: a < N -> if :: heard && p_state[a] == token_clearing -> look[a] = 1 :: else fi; a++ :: else -> break od; a = 0; heard = 0 } }
#define left_by(i) (asked(i) == ALL -> 0 : (memory[i] < STAYS -> memory[i] : STAYS))
#define in_line(i) ((length > 0 && line[0] == i + 1) || (length > 1 && line[1] == i + 1) || (length > N - 1 && line[N - 1] == i + 1))

#define at(STATE) (p_state[_pid] == token_##STATE && !todo[_pid])
#define looking   (todo[_pid] & ROOM_LOOK)
#if N == 2
#define choose(x, y) :: atomic { looking && !fits(_pid) && may_choose(_pid, x, y) -> todo[_pid] = todo[_pid] & ~ROOM_LOOK; strike_out(); \
    asks[_pid].bell[O1(_pid)] = x; ring_asked(_pid) }
#else
#define choose(x, y) :: atomic { looking && !fits(_pid) && may_choose(_pid, x, y) -> todo[_pid] = todo[_pid] & ~ROOM_LOOK; strike_out(); \
    asks[_pid].bell[O1(_pid)] = x; asks[_pid].bell[O2(_pid)] = y; ring_asked(_pid) }
#endif

active [N] proctype P() {                      /* a kill sits in the machine's own process: fairness must not force it */
end: do
  :: atomic { at(asleep) -> token_need(_pid); token_door_won(_pid); token_made(_pid); settle(_pid); line[length] = _pid + 1; length++ }
  :: atomic { at(waiting) && line[0] == _pid + 1 && tokens == 0 -> token_first(_pid); token[_pid] = 1; token_token_won(_pid); settle(_pid) }
  :: atomic { at(waiting) && may_give_up(_pid) -> escape; token_cancel(_pid); settle(_pid) }
  :: atomic { at(clearing) && look[_pid] -> look[_pid] = 0; token_look(_pid); settle(_pid) }
  :: atomic { at(clearing) && may_give_up(_pid) -> escape; token_cancel(_pid); settle(_pid) }
  :: atomic { at(waking) -> memory[_pid] = NEEDS; assert(on_device <= BUDGET && entry[_pid] == NEEDS && token[_pid]); token_mapped(_pid); settle(_pid) }
  :: atomic { at(waking) && may_give_up(_pid) -> escape; patient = 1; token_map_failed(_pid); patient = 0; settle(_pid) }
  :: atomic { at(waking) && may_give_up(_pid) -> escape; token_map_failed(_pid); settle(_pid) }
  :: atomic { at(retrying) -> token_backoff_over(_pid); settle(_pid) }
  :: atomic { at(awake) && look[_pid] -> look[_pid] = 0; token_look(_pid); settle(_pid) }
  :: atomic { at(awake) && may_give_up(_pid) -> escape; young[_pid] = 0; token_release(_pid); settle(_pid) }
  :: atomic { at(draining) && !busy[_pid] -> token_drained(_pid); settle(_pid) }
  :: atomic { at(sleeping) -> memory[_pid] = left_by(_pid); token_unmapped(_pid); settle(_pid) }
  /* the look of RESIDENCY while away */
  :: atomic { (at(asleep) || at(waiting)) && look[_pid] -> look[_pid] = 0;
       if :: asked(_pid) == ALL && entry[_pid] > 0 -> memory[_pid] = 0; todo[_pid] = DISCHARGE :: else fi }
  /* one act after the other */
  :: atomic { looking && fits(_pid) -> todo[_pid] = todo[_pid] & ~ROOM_LOOK; strike_out(); entry[_pid] = NEEDS; token_room(_pid); settle(_pid) }
  choose(0, 0) choose(1, 0) choose(2, 0) choose(0, 1) choose(1, 1) choose(2, 1) choose(0, 2) choose(1, 2) choose(2, 2)
  :: atomic { !looking && (todo[_pid] & ASKS_DROP) -> todo[_pid] = todo[_pid] & ~ASKS_DROP; ask_nobody(_pid) }
  :: atomic { todo[_pid] % DISCHARGE == 0 && (todo[_pid] & DISCHARGE) -> todo[_pid] = todo[_pid] & ~DISCHARGE; entry[_pid] = memory[_pid];
       ring_clearing(_pid) }
  :: atomic { todo[_pid] % TOKEN_DROP == 0 && (todo[_pid] & TOKEN_DROP) -> todo[_pid] = todo[_pid] & ~TOKEN_DROP; token[_pid] = 0 }
  :: atomic { todo[_pid] == TICKET_CLOSE -> todo[_pid] = 0; unlist(_pid) }
  /* death, and what the kernel takes back, in any order */
  :: atomic { p_state[_pid] != DEAD && may_die(_pid) -> escape; p_state[_pid] = DEAD; todo[_pid] = 0; look[_pid] = 0; young[_pid] = 0;
       busy[_pid] = 0; quantum[_pid] = 0 }
  :: atomic { p_state[_pid] == DEAD && token[_pid] -> token[_pid] = 0 }
  :: atomic { p_state[_pid] == DEAD && asks_any(_pid) -> ask_nobody(_pid) }
  :: atomic { p_state[_pid] == DEAD && in_line(_pid) -> unlist(_pid) }
  :: atomic { p_state[_pid] == DEAD && memory[_pid] > 0 -> memory[_pid] = 0 }
  :: atomic { p_state[_pid] == DEAD && !token[_pid] && !asks_any(_pid) && !in_line(_pid) && memory[_pid] == 0 && (old[_pid] == 0 || entry[_pid] == 0) ->
       old[_pid] = old[_pid] + entry[_pid]; entry[_pid] = 0; p_state[_pid] = token_asleep }
  od }

/* Clocks and load are processes of their own, so that weak fairness makes each of them go on. */
#if N == 2
#define EACH(OPTION) OPTION(0) OPTION(1)
#else
#define EACH(OPTION) OPTION(0) OPTION(1) OPTION(2)
#endif
#define hold_over(i)    :: atomic { young[i] -> young[i] = 0; look[i] = 1 }
#define quantum_over(i) :: atomic { quantum[i] == 1 -> quantum[i] = 2; look[i] = 1 }
#define room_check(i)   :: atomic { p_state[i] == token_clearing && !look[i] -> look[i] = 1 }
#define done(i)         :: atomic { busy[i] -> busy[i] = 0; look[i] = look[i] || p_state[i] == token_awake }
#ifdef IDLE
#define serve(i)
#else
#define serve(i)        :: atomic { p_state[i] == token_awake && !busy[i] -> busy[i] = 1 }
#endif
active proctype Hold()    { end: do EACH(hold_over) od }
active proctype Quantum() { end: do EACH(quantum_over) od }
active proctype Check()   { end: do EACH(room_check) od }
active proctype Load()    { end: do EACH(serve) EACH(done) od }

#ifdef LIVE
ltl served { [] ((p_state[0] == token_waiting) -> <> (p_state[0] == token_awake)) }
#endif
