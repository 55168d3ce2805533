// A build without CUDA.
#include "provider.hpp"

namespace lsm {

const Provider * cuda_provider(ggml_backend_dev_t, int &) { return nullptr; }

}  // namespace lsm
