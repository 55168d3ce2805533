"""The commands: `lsm-server` (server.py), and `lsm` with its verbs pull, models, state, doctor and demo (main.py)."""
