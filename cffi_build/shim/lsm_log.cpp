// llama.cpp logs fragments: a line may come in several calls, the later ones with level CONT. They are joined here, and filtered here:
// the sink is Python, and a debug line in every decode step must not cost the interpreter's lock.

#include "lsm_log.h"

#include "ggml.h"
#include "llama.h"
#include "mtmd-helper.h"

#include <atomic>
#include <string>

namespace {

std::atomic<lsm_log_sink> current_sink{nullptr};
std::atomic<int> current_min_level{GGML_LOG_LEVEL_WARN};

struct Line {
    int level = GGML_LOG_LEVEL_INFO;
    std::string text;
};
thread_local Line line;

void deliver_whole_lines() {
    for (size_t end; (end = line.text.find('\n')) != std::string::npos;) {
        const std::string whole = line.text.substr(0, end);
        line.text.erase(0, end + 1);  // before the call: the sink may come back here
        lsm_log_sink sink = current_sink.load();
        if (sink && !whole.empty()) {
            sink(line.level, whole.c_str());
        }
    }
}

void on_log(ggml_log_level level, const char * text, void *) {
    try {
        if (level != GGML_LOG_LEVEL_CONT) {
            line.level = level;
        }
        if (line.level < current_min_level.load() || !current_sink.load()) {
            line.text.clear();
            return;
        }
        line.text += text;
        deliver_whole_lines();
    } catch (...) {
        // Out of memory while logging: the line is lost, the caller is C code that knows no exceptions.
    }
}

}  // namespace

void lsm_log_start(lsm_log_sink sink) {
    current_sink = sink;
    llama_log_set(on_log, nullptr);
    mtmd_helper_log_set(on_log, nullptr);
}

void lsm_log_set_min_level(int min_level) {
    current_min_level = min_level;
}

void lsm_log_stop(void) {
    current_sink = nullptr;
}
