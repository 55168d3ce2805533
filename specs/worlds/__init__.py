"""What surrounds the machines: other processes, the kernel, the engine, clients, and everything that can go wrong."""
