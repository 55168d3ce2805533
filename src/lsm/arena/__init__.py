"""What the kernel remembers if we die: the fair line for one GPU, made of flock and FIFOs in a private directory.

    directory   where the arena is, and whether it is fit to be one      default_directory, open_directory
    line        the steps of one place in the line                       Line
    wait        a blocking driver, for programs without an event loop    wait, retry_pauses_s
    status      who holds and who waits, without touching a lock         status
"""
