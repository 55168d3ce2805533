"""How the pinned llama.cpp and our shim become one extension module. Build time only; never installed."""
