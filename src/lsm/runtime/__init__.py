"""The only room that waits: actors, performers of effects, worker threads, clock, trace."""
