"""One module for each group of routes; each has `make_routes(context)`."""
