// The backend objects that llama.cpp makes for an owner: handles, scratch memory and captured graphs hang on them.
#pragma once
#include "ggml-backend-impl.h"

namespace lsm {

// Called for each backend that is made inside an owner's scope; it is forgotten by itself when it is freed.
void remember_backend(int owner, ggml_backend_t);

// Gives back what the owner's backends have gathered on devices whose provider says that they do: each gets the insides of a new one.
// They are made anew when the next graph needs them. No graph of the owner may run.
void renew_backends(int owner);

}  // namespace lsm
