// The log of llama.cpp, ggml and mtmd, handed over in whole lines.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Levels as in ggml: 1 debug, 2 info, 3 warning, 4 error.
typedef void (*lsm_log_sink)(int level, const char * line);

// Send every line to `sink`, from whichever thread logs it.
void lsm_log_start(lsm_log_sink sink);

// Lines below this level cost no call of the sink. At first: warnings and errors only.
void lsm_log_set_min_level(int min_level);

// Drop everything from now on; for the end of the process, when the sink can no longer run.
void lsm_log_stop(void);

#ifdef __cplusplus
}
#endif
