// The outcome of an inner function: a code of lsm_error and a sentence.
#pragma once
#include "lsm_device.h"
#include <exception>
#include <new>
#include <string>
#include <utility>

namespace lsm {

struct Status {
    int         code = LSM_OK;
    std::string message;

    bool ok() const { return code == LSM_OK; }
    static Status error(int code, std::string message) { return { code, std::move(message) }; }
};

// Copies at most err_len - 1 bytes and always terminates.
void write_message(const std::string & message, char * err, int err_len);

// Runs `body` (returning Status) so that no C++ exception leaves: C callers could not catch it.
template <typename Body> int guarded(char * err, int err_len, Body && body) {
    Status status;
    try {
        status = body();
    } catch (const std::bad_alloc &) {
        status = { LSM_E_NO_MEMORY, "the host has no memory for this call" };
    } catch (const std::exception & e) {
        status = { LSM_E_FAILED, e.what() };
    } catch (...) {
        status = { LSM_E_FAILED, "an unknown C++ exception" };
    }
    if (!status.ok()) write_message(status.message, err, err_len);
    return status.code;
}

}  // namespace lsm
