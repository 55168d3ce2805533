/* An encoder that comes just in time, and the residency of its model: the world of encoder.py, written a second time.
 *
 * The tables come from encoder_tables.pml: encoder_EVENT(i) and residency_EVENT(i) move the one machine of each kind and do what the edge
 * says; an event that the table refuses fails an assertion.
 */
#ifndef BUDGET
#define BUDGET 5
#endif
#ifdef STAYS
#define on_demand 0
#define encoder_stays 1
#else
#define on_demand 1
#define encoder_stays 0
#endif
#define evict_kv 1
#define NOBODY 2
#ifndef ENC
#define ENC 3
#endif
#define REST (kv + compute)
#define fits (3 * weights + REST + ENC <= BUDGET)
#define fits_alone (REST + ENC <= BUDGET)

#define TEXT 1
#define MEDIA 2
#define ENCODED 3

#define NOTHING 0
#define RELEASE_WEIGHTS 1
#define RESTORE_WEIGHTS 2
#define RELEASE_ENCODER 3
#define RESTORE_ENCODER 4
#define OPEN 5
#define RUN 6

byte e_state[1], r_state[1];
bit weights, kv, compute, enc; /* classes with memory on the device */
byte todo, want[2], batch = NOBODY;
bool ending[2], asked;
bool for_room, changed; /* facts of `enter_failed` */

#include "encoder_tables.pml"

#define idle (e_state[0] == encoder_absent || e_state[0] == encoder_host || e_state[0] == encoder_lost || e_state[0] == encoder_resident)

inline do_release_weights(i) {
  if :: in_residency -> weights = 0 :: else -> todo = RELEASE_WEIGHTS fi
}
inline do_release_encoder(i) {
  if :: in_residency -> enc = 0 :: else -> todo = RELEASE_ENCODER fi
}
inline do_restore_weights(i) { todo = RESTORE_WEIGHTS }
inline do_restore_encoder(i) { todo = RESTORE_ENCODER }
inline do_open(i) { todo = OPEN }
inline do_run(i) { todo = RUN }
inline do_fail_open(i) { skip }
inline do_fail_media(i) { ending[batch] = true }
inline do_report_lost(i) { residency_weights_lost(i) }
inline do_report_changed(i) { free_all(); want[0] = 0; want[1] = 0; asked = false; residency_freed(i); encoder_freed(i) }
inline do_release_compute(i) { compute = 0 }
inline do_release_kv(i) { kv = 0 }
inline do_restore(i) { weights = 1; kv = 1; compute = 1 }
inline do_restore_with_encoder(i) { weights = 1; kv = 1; compute = 1; enc = 1 }
inline do_rest(i) { asked = (r_state[0] == residency_hollow) }
inline do_report_left(i) { skip }
inline do_recount(i) { skip }
inline do_tell_granted(i) { skip }
inline do_tell_source_changed(i) { skip }
inline do_tell_mapped(i) { skip }
inline do_tell_map_failed(i) { skip }
inline do_tell_unmapped(i) { skip }

inline end_if_ending(x) { if :: ending[x] -> want[x] = 0; ending[x] = false :: else fi }
inline settled() {
  if
  :: todo == NOTHING && idle -> batch = NOBODY; end_if_ending(0); end_if_ending(1)
  :: else
  fi;
  for_room = false;
  changed = false
}
inline free_all() { weights = 0; kv = 0; compute = 0; enc = 0 }

inline come(x, what) { want[x] = what }
inline encode(x) { batch = x; encoder_encode(0); settled() }
inline serve(x) { if :: want[x] == TEXT || want[x] == ENCODED -> want[x] = 0 :: else fi }

#define CLIENT(x) \
  :: atomic { want[x] == 0 -> come(x, TEXT) } \
  :: atomic { want[x] == 0 -> come(x, MEDIA) } \
  :: atomic { want[x] != 0 && todo != NOTHING -> ending[x] = true } \
  :: atomic { want[x] != 0 && todo == NOTHING -> want[x] = 0 }

#define NOW(act) todo == act -> todo = NOTHING
#define awake (todo == NOTHING && r_state[0] == residency_resident && !asked)

active proctype model() {
  bool in_residency; /* false between two steps */
end:
  do
  CLIENT(0)
  CLIENT(1)
  :: atomic { r_state[0] == residency_resident -> asked = true }
  :: atomic { true -> e_state[0] = encoder_absent; r_state[0] = residency_absent; free_all(); todo = NOTHING; batch = NOBODY;
       want[0] = 0; want[1] = 0; ending[0] = false; ending[1] = false; asked = false }

  :: atomic { NOW(RELEASE_WEIGHTS); weights = 0; encoder_weights_left(0); settled() }
  :: atomic { NOW(RELEASE_WEIGHTS); for_room = true; encoder_leave_failed(0); settled() }
  :: atomic { NOW(RESTORE_WEIGHTS); weights = 1; encoder_weights_entered(0); settled() }
  :: atomic { NOW(RESTORE_WEIGHTS); for_room = true; encoder_enter_failed(0); settled() }
  :: atomic { NOW(RELEASE_ENCODER); enc = 0; encoder_left(0); settled() }
  :: atomic { NOW(RELEASE_ENCODER); for_room = true; encoder_leave_failed(0); settled() }
  :: atomic { NOW(RESTORE_ENCODER); enc = 1; encoder_entered(0); settled() }
  :: atomic { NOW(RESTORE_ENCODER); for_room = true; encoder_enter_failed(0); settled() }
  :: atomic { NOW(RESTORE_ENCODER); changed = true; encoder_enter_failed(0); settled() }
  :: atomic { NOW(RESTORE_ENCODER); encoder_enter_failed(0); settled() }
  :: atomic { NOW(OPEN); enc = 1; encoder_opened(0); settled() }
  :: atomic { NOW(OPEN); for_room = true; encoder_open_failed(0); settled() }
  :: atomic { NOW(RUN); assert(enc); want[batch] = ENCODED; encoder_encoded(0); settled() }
  :: atomic { NOW(RUN); want[batch] = ENCODED; if :: want[1 - batch] == MEDIA -> want[1 - batch] = ENCODED :: else fi;
       encoder_encoded(0); settled() }
  :: atomic { NOW(RUN); for_room = true; encoder_encode_failed(0); settled() }

  :: atomic { todo == NOTHING && r_state[0] == residency_absent -> weights = 1; residency_enter(0); encoder_arrive(0); settled() }
  :: atomic { todo == NOTHING && r_state[0] == residency_arriving -> free_all(); encoder_freed(0); residency_load_failed(0); settled() }
  :: atomic { todo == NOTHING && r_state[0] == residency_arriving && e_state[0] != encoder_absent -> kv = 1; compute = 1;
       residency_loaded(0); settled() }
  :: atomic { todo == NOTHING && r_state[0] == residency_away -> residency_enter(0); residency_entered(0); encoder_woken(0); settled() }
  :: atomic { todo == NOTHING && r_state[0] == residency_away -> residency_enter(0); free_all(); residency_enter_failed(0); settled() }
  :: atomic { todo == NOTHING && (r_state[0] == residency_resident || r_state[0] == residency_hollow || r_state[0] == residency_away) ->
       free_all(); want[0] = 0; want[1] = 0; asked = false; residency_freed(0); encoder_freed(0); settled() }
  :: atomic { todo == NOTHING && asked && (r_state[0] == residency_resident || r_state[0] == residency_hollow) ->
       in_residency = true; residency_leave(0); residency_left(0); in_residency = false; asked = false; settled() }
  :: atomic { awake && want[0] == MEDIA -> encode(0) }
  :: atomic { awake && want[0] != MEDIA && want[1] == MEDIA -> encode(1) }
  :: atomic { awake && (want[0] == TEXT || want[0] == ENCODED || want[1] == TEXT || want[1] == ENCODED) ->
       assert(weights && kv && compute); serve(0); serve(1) }
  od
}
