#include "meter.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace lsm {
namespace {

struct Reading { uint64_t now = 0, peak = 0; };

std::mutex mutex;
std::unordered_map<int, Reading> readings;

}  // namespace

void meter_taken(int owner, uint64_t size_bytes) {
    std::lock_guard lock(mutex);
    Reading & reading = readings[owner];
    reading.now += size_bytes;
    reading.peak = std::max(reading.peak, reading.now);
}

void meter_given_back(int owner, uint64_t size_bytes) {
    std::lock_guard lock(mutex);
    readings[owner].now -= size_bytes;
}

uint64_t meter_peak(int owner, bool restart) {
    std::lock_guard lock(mutex);
    Reading & reading   = readings[owner];
    const uint64_t peak = reading.peak;
    if (restart) reading.peak = reading.now;
    return peak;
}

void meter_forget(int owner) {
    std::lock_guard lock(mutex);
    const auto it = readings.find(owner);
    if (it != readings.end() && it->second.now == 0) readings.erase(it);
}

}  // namespace lsm
