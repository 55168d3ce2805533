"""The only room that touches the compiled module: handles and calls, no policy. Start reading at `library`."""
