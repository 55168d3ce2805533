/* One slot and its snapshots: the world of checkpoints.py, written a second time.
 *
 * The table comes from checkpoints_tables.pml: checkpoint_EVENT(i) moves the machine and does what the edge says; an event that the table
 * refuses fails an assertion.  A text of the letters a and b is a number: 1, then a bit for each letter.  What the memory holds and what the
 * slot believes are the same here, and a snapshot is of what it says: that they always are is an invariant of checkpoints.py.
 */
#define NOTHING 1
#define LAST_PROMPT 31 /* bbbb */
#define UNKNOWN 255

byte s_state[1];
byte held = NOTHING, prompt = NOTHING, whole = NOTHING;
byte kept[2], n_kept;
bool away;
bool in_memory, found; /* facts of `match` */

#include "checkpoints_tables.pml"

inline length(text, n) { n = 0; t = text; do :: t > 1 -> t = t / 2; n++ :: else -> break od; t = 0 }

/* The first `n` letters. */
inline first(text, n, result) {
  result = text; length(text, u);
  do :: u > n -> result = result / 2; u-- :: else -> break od;
  u = 0
}

inline shared(one, other, n) {
  length(one, v); length(other, w);
  if :: v < w -> n = v :: else -> n = w fi;
  first(one, n, v); first(other, n, w);
  do :: v != w -> v = v / 2; w = w / 2; n-- :: else -> break od;
  v = 0; w = 0
}

/* The longest snapshot of at most `n` letters; 0: none. */
inline latest(n, result) {
  result = 0;
  if :: n_kept > 0 -> length(kept[0], v); if :: v <= n -> result = kept[0] :: else fi :: else fi;
  if :: n_kept > 1 -> length(kept[1], v); if :: v <= n -> result = kept[1] :: else fi :: else fi;
  v = 0
}

inline drop_last() { n_kept--; kept[n_kept] = 0 }
inline drop_first() { kept[0] = kept[1]; kept[1] = 0; n_kept-- }

inline do_forget_all(i) { kept[0] = 0; kept[1] = 0; n_kept = 0 }
inline do_forget_beyond(i) {
  do
  :: n_kept > 0 -> length(kept[n_kept - 1], v); if :: v > n_common -> drop_last() :: else -> break fi
  :: else -> break
  od;
  v = 0
}
inline do_trim(i) { first(held, n, v); held = v; v = 0 }
inline do_clear(i) { held = NOTHING }
inline do_restore(i) { copied = true }
inline do_make_room(i) {
  if
  :: n_kept > 0 && kept[0] == held -> drop_first()
  :: n_kept > 1 && kept[1] == held -> drop_last()
  :: else -> if :: n_kept == 2 -> drop_first() :: else fi
  fi
}
inline do_save(i) { skip }
inline do_keep(i) {
  if
  :: n_kept == 1 && kept[0] > held -> kept[1] = kept[0]; kept[0] = held
  :: else -> kept[n_kept] = held
  fi;
  n_kept++
}

inline lost() { checkpoint_lost(0); held = NOTHING; whole = NOTHING }

inline ask() {
  select(p : 2 .. LAST_PROMPT);
  shared(held, p, n_common);
  length(p, n); n--;
  if :: n_common < n -> n = n_common :: else fi;
  length(held, m);
  in_memory = (n == 0 || n == m);
  latest(n, m);
  found = (m != 0);
  checkpoint_match(0);
  if
  :: copied -> if :: true -> length(m, n); checkpoint_restored(0) :: true -> checkpoint_refused(0); fault = true fi
  :: else
  fi;
  length(held, m); shared(held, p, n_common); assert(m == n_common);
  length(whole, m); m--; shared(whole, p, n_common); length(p, n);
  if
  :: whole != NOTHING && m > 0 && m < n && n_common >= m && !fault -> length(held, n); assert(n >= m)
  :: else
  fi;
  prompt = p; whole = NOTHING;
  in_memory = false; found = false; copied = false; fault = false; p = 0; n = 0; m = 0; n_common = 0
}

inline batch() {
  length(held, n); length(prompt, m);
  if
  :: n > 0 && n == m - 1 -> checkpoint_due(0); if :: true -> checkpoint_saved(0) :: true -> checkpoint_refused(0); whole = UNKNOWN fi
  :: else
  fi;
  if :: n < m - 1 -> select(p : n + 1 .. m - 1) :: else -> p = m fi;
  first(prompt, p, v); held = v; v = 0;
  if
  :: p == m ->
     if :: whole == UNKNOWN -> whole = NOTHING :: else -> whole = prompt fi;
     prompt = NOTHING;
     if :: skip :: held = 2 * held :: held = 2 * held + 1 fi
  :: else
  fi;
  p = 0; n = 0; m = 0
}

active proctype slot() {
  byte n, m, p, n_common, t, u, v, w; /* all 0 between two steps */
  bool copied, fault;
end:
  do
  :: atomic { away = !away }
  :: atomic { prompt != NOTHING -> prompt = NOTHING }
  :: atomic { prompt == NOTHING && held != NOTHING -> lost() }
  :: atomic { prompt != NOTHING -> lost(); prompt = NOTHING } /* everything is failed */
  :: atomic { prompt != NOTHING && !away -> lost(); prompt = NOTHING } /* a decode fails */
  :: atomic { prompt == NOTHING && !away -> ask() }
  :: atomic { prompt != NOTHING && !away -> batch(); assert(s_state[0] == checkpoint_following && n_kept <= 2) }
  od
}
