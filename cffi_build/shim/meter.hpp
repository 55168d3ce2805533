// How much an owner has on the device, and the most it had at one time: counted where memory is taken and given back, not at the end of a move.
#pragma once
#include <cstdint>

namespace lsm {

void meter_taken(int owner, uint64_t size_bytes);
void meter_given_back(int owner, uint64_t size_bytes);
uint64_t meter_peak(int owner, bool restart);
void meter_forget(int owner);

}  // namespace lsm
